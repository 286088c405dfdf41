"""One row of a measurements file -> what to predict and what was measured.

Two layouts are read: `published_measurements.csv` (one line per measured configuration, with its
unspeculated partner on the same line; the second file has columns of the load besides, see
`row_load`) and `e2e_silicon_h200.csv` (plain serving points). A row that cannot be predicted raises
`SkipRow` with the reason, and is counted under it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specsim.accuracy.lookups import SkipRow, measurement, model_of, profile_of, whole
from specsim.accuracy.row_load import (
    QUEUED_TTFT_S,
    acceptance_length,
    arrival,
    gain_of_rates,
    inferencex_workload,
    measured_values,
    median_stated,
    published_workload,
    running_batch,
)
from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import SpecSimError
from specsim.latency.engine import engine_of_year, find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.methods.base import SpecSetup, find_method
from specsim.methods.registry import is_plain, server_method
from specsim.methods.resolve import resolve_setup
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel
from specsim.speculation.acceptance import Acceptance


@dataclass(frozen=True)
class PublishedCase:
    """A predictable row. measured: quantity -> value in SI units, of 'baseline_tpot_s',
    'spec_tpot_s', 'baseline_output_tok_s', 'spec_output_tok_s', 'speedup',
    'ttft_s'. lengths_stated: prompt and output lengths are the row's own, not its data set's: only
    then does a throughput of several requests tell a time per token. acceptance_length: None when
    not given. pure_decode: no prompts share the batch (disaggregated serving). forward_only: timed
    was the target's forward pass on the device (vLLM's adaptive_verification.py), of sequences with
    the prompt behind them. arrives: see `row_load`. median: the time to first token is one.
    gain_of_rates: the speedup is one of tokens per second though times per token are given too."""

    row_id: str
    set_id: str
    grade: str
    system: System
    workload: Workload
    concurrency: int
    measured: Mapping[str, float] = field(default_factory=dict)
    acceptance_length: float | None = None
    pure_decode: bool = False
    forward_only: bool = False
    lengths_stated: bool = True
    arrives: str = "closed"
    median: bool = False
    gain_of_rates: bool = False


_ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "sglang?": "sglang",
    "tensorrt-llm": "trtllm",
    "trtllm": "trtllm",
    "hf transformers (research code)": "transformers",
}
_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")


def _engine(row: Mapping[str, str]) -> EngineProfile:
    text = (row.get("engine") or row.get("backend") or "").strip().lower()
    if not text:
        raise SkipRow("engine not stated")
    name = _ENGINES.get(text)
    if name is None:
        raise SkipRow(f"engine not modelled: {text}")
    stated = row.get("engine_version") or row.get("backend_version") or ""
    match = _VERSION.search(stated)
    if match:
        return find_engine(name, match.group(1))
    return engine_of_year(name, (row.get("measured") or row.get("year") or "")[:4])


def _gpu_name(text: str) -> str:
    cleaned = re.sub(r"\(.*?\)", "", text).replace("?", "").strip()
    if not cleaned or "gpu" in cleaned.lower():
        raise SkipRow("GPU not stated")
    return cleaned


_WEIGHTS = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
            "awq int4": "int4", "int4": "int4", "4bit": "int4", "fp4": "nvfp4", "int8": "int8"}


def _model(row: Mapping[str, str]) -> ModelSpec:
    name = row.get("target_model") or row.get("model_path") or ""
    name = re.sub(r"\(.*?\)", "", name).strip()
    dtype = (row.get("weight_dtype") or row.get("precision") or "").strip().lower()
    spec = model_of(name, "")
    if spec is None:
        raise SkipRow(f"model not in the catalogue: {name}")
    if dtype.startswith("native"):  # the checkpoint's own, of several
        return spec
    if not dtype:
        default = MINDROUTER_WEIGHTS.get(name.lower()) if _is_mindrouter(row) else None
        if default is None:
            return spec
        dtype = default
    wanted = _WEIGHTS.get(dtype)
    if wanted is None:
        raise SkipRow(f"weight format not modelled: {dtype}")
    # A checkpoint with MXFP4 experts that a row calls bf16 or fp8 is named by its other layers, one
    # called fp4 by the experts.
    own = spec.weights == "mxfp4" and dtype != "nvfp4"
    if own or spec.weights in (wanted, f"{wanted}_block"):
        return spec
    return model_of(name, wanted) or spec


# The cluster serves its single-GPU endpoints in FP8 (its capacity report says so for gemma, and
# 122B and Nemotron fit one H200 in no other format; MR27's 11.5 ms per plain token lies below
# the bf16 weight-read time at the bandwidth that H200 kernels reach).
MINDROUTER_WEIGHTS = {
    "qwen3.6-27b": "fp8",
    "qwen3.6-35b": "fp8",
    "gemma-4-31b": "fp8",
    "qwen3.5-122b": "fp8",
    "nemotron-3-super-120b": "fp8",
    "qwen3.5-35b": "fp8",
}


def _is_mindrouter(row: Mapping[str, str]) -> bool:
    return (row.get("set_id") or "") in ("MRBLOG", "MR27", "MR122")


def _parallel(row: Mapping[str, str], spec: ModelSpec, capacity_bytes: float) -> Parallel:
    text = row.get("tp") or ""
    gpus = whole(row.get("n_gpus"))
    if text.upper().startswith("DEP"):
        size = whole(text) or 1
        return Parallel(1, size, size)
    tp = whole(text) or gpus
    if tp is None:
        raise_if_unfit(spec, capacity_bytes)
        tp = 1
    stated = _EXPERT_GPUS.search(row.get("notes") or "")
    return Parallel(tp, 1 if stated is None else int(stated[1] or tp))


# Experts over so many GPUs, or over all: "TP4/EP4", "TP4 EP1", "EP on".
_EXPERT_GPUS = re.compile(r"\bEP(?: on\b|(\d+)\b)")


def raise_if_unfit(spec: ModelSpec, capacity_bytes: float) -> None:
    """Rows that state neither tp nor GPUs are read as one GPU, which must hold the model."""
    from specsim.model.counts import weight_bytes

    if weight_bytes(spec).total > 0.95 * capacity_bytes:
        raise SkipRow("number of GPUs not stated")


_TREE = re.compile(r"steps (\d+) topk (\d+) draft(?:_tokens)? (\d+)")
# A table of draft lengths by batch size, followed during the run.
_DYNAMIC = re.compile(
    r"k as printed: (?:dynamic|\d+ \((?:tier|dynamic SD)\))|dynamic SD pinned to K=0"
)
_TRIPLE = re.compile(r"^(\d+)-(\d+)-(\d+)")


def _setup(row: Mapping[str, str], spec: ModelSpec, engine: EngineProfile) -> SpecSetup:
    text = (row.get("method") or "none").strip()
    if is_plain(text):
        return SpecSetup()
    method = server_method("vllm", text.lower())  # rows name methods as vLLM does
    if method is None:
        raise SkipRow(f"method not modelled: {text}")
    k_text = row.get("k") or ""
    notes = row.get("notes") or ""
    if _DYNAMIC.search(notes):
        raise SkipRow("draft length changes with the batch during the run")
    if "?" in k_text or "best" in k_text or "adaptive" in k_text or "not" in k_text:
        raise SkipRow("draft length not stated exactly")
    k = whole(k_text)
    if k is None:
        raise SkipRow("draft length not stated")
    tree = row.get("tree_topk") or ""
    topk, tokens = 1, 0
    shape = _TREE.search(tree) or _TRIPLE.match(tree) or _TREE.search(notes)
    if shape:
        steps, topk, tokens = (int(g) for g in shape.groups())
        k = steps
        if topk == 1:
            tokens = 0
    elif tree.startswith("tree depth"):
        numbers = [int(g) for g in re.findall(r"\d{1,3}", tree)[:2]]
        if len(numbers) < 2:
            raise SkipRow(f"tree shape not understood: {tree[:20]}")
        depth, branching = numbers
        k, topk = depth, branching
        tokens = (whole(k_text) or 0) + 1
    elif tree and tree not in ("1", "chain") and not tree.startswith("EAGLE"):
        raise SkipRow(f"tree shape not understood: {tree[:20]}")
    draft = _draft_name(row, method)
    try:
        return resolve_setup(
            spec, engine, method, k, draft=draft, tree_topk=topk, tree_tokens=tokens
        )
    except SpecSimError as error:
        if draft is not None:
            try:
                return resolve_setup(spec, engine, method, k, tree_topk=topk, tree_tokens=tokens)
            except SpecSimError:
                pass
        raise SkipRow(f"drafter: {_short(error)}") from None


def _draft_name(row: Mapping[str, str], method: str) -> str | None:
    text = re.sub(r"\(.*?\)", "", row.get("draft_model") or "").strip()
    known = find_method(method)
    own = "built-in" in text or text.lower() == f"{method} head"  # of the checkpoint
    if not text or known.lookup or known.in_checkpoint or own:
        return None
    return text


def _short(error: Exception) -> str:
    """The first clause of a message, without what it goes on to list."""
    return str(error).split(";")[0].split(" (")[0]


def published_case(row: Mapping[str, str]) -> PublishedCase:
    """A row of `published_measurements.csv`; SkipRow when it cannot be predicted."""
    if row.get("grade") == "C":
        raise SkipRow("grade C")
    engine = _engine(row)
    profile = profile_of(_gpu_name(row.get("gpu") or ""))
    if profile is None:
        raise SkipRow(f"GPU not modelled: {row.get('gpu')}")
    spec = _model(row)
    parallel = _parallel(row, spec, profile.mem_bytes)
    engine = engine.on(profile.name, profile.mem_bytes, parallel.tp)
    setup = _setup(row, spec, engine)
    measured = measured_values(row, setup.speculates)
    split = _DISAGGREGATED.search(row.get("notes") or "")
    if split:
        parallel = Parallel(int(split.group(1)))
    batch_text = row.get("batch_or_concurrency") or ""
    concurrency = 1 if "low" in batch_text else whole(batch_text)
    if concurrency is None:
        raise SkipRow("batch or concurrency not stated")
    workload = published_workload(row, concurrency, engine.server.random_lengths)
    arrives = arrival(row)
    al = acceptance_length(row, setup.k, chain=setup.tree_topk == 1)
    acceptance = None
    if setup.speculates:
        if al is not None and not 1 <= al <= setup.k + 1 + 1e-9:
            raise SkipRow("acceptance length outside 1..k+1")
        acceptance = Acceptance.from_mean_length(
            al if al is not None else 1 + 0.5 * setup.k, setup.k, source="row"
        )
    kv = (row.get("kv_dtype") or "").strip() or _kv_stated(row)
    kv = kv or engine.kv_dtype(spec, profile.arch)
    system = System(
        spec, profile, engine, parallel, kv_dtype=kv, setup=setup, acceptance=acceptance,
        max_num_seqs=max(concurrency, 1),
    )
    stated = workload.requests_per_client > 0 or workload.cached_share > 0
    dummy = _DUMMY.match(row.get("dataset") or "")
    workload = Workload(int(dummy[1]), 1) if dummy else workload
    if _queued(system, workload, concurrency, measured):
        concurrency = running_batch(row, measured, concurrency)
        system = system.with_(max_num_seqs=concurrency)
        # As memory frees, the queue is let in one by one: whoever runs starts at a time of its own.
        workload = replace(workload, spread=1.0, requests_per_client=0)
    return PublishedCase(
        row.get("id") or "", row.get("set_id") or "", row.get("grade") or "", system, workload,
        concurrency, measured, al if setup.speculates else None, pure_decode=split is not None,
        forward_only=dummy is not None, lengths_stated=stated, arrives=arrives,
        median=median_stated(row), gain_of_rates=gain_of_rates(row),
    )


def _queued(
    system: System, workload: Workload, concurrency: int, measured: Mapping[str, float]
) -> bool:
    """Whether a time to first token of seconds is a wait for admission: longer by far than the
    prompts of all clients, one after the other, explain."""
    ttft_s = measured.get("ttft_s", 0.0)
    if ttft_s <= QUEUED_TTFT_S:
        return False
    if running_limit(system, workload) < concurrency:
        return True
    return ttft_s > 2 * closed_loop(system, workload, concurrency).ttft_s


_DUMMY = re.compile(r"dummy step, synthetic (\d{1,7})-token KV")
# Prompts and decoding on separate GPUs: decode steps hold no prompt.
_DISAGGREGATED = re.compile(r"disaggregated TP\d+ prefill \+ TP(\d+) decode")


_KV_NOTE = re.compile(r"\bKV (fp8|bf16)\b|\b(fp8|bf16) KV\b")


def _kv_stated(row: Mapping[str, str]) -> str:
    noted = _KV_NOTE.search(row.get("notes") or "")
    if noted:
        return noted[1] or noted[2]
    name = (row.get("target_model") or "").lower()
    if _is_mindrouter(row) and name.startswith("gemma"):
        return "fp8"  # stated in the capacity report
    return ""


def silicon_case(row: Mapping[str, str], row_id: str) -> PublishedCase:
    """A row of `e2e_silicon_h200.csv`: plain serving, TTFT and TPOT in milliseconds. Its TTFT
    are taken for means: only those, with the start of a run in them, come as high as these with
    64 clients on an idle server's prefill."""
    if row.get("suspect"):
        raise SkipRow(f"marked suspect: {row['suspect']}")
    if (whole(row.get("pp_size")) or 1) > 1:
        raise SkipRow("pipeline parallelism is not modelled")
    engine = _engine(row)
    spec = _model(row)
    profile = profile_of("h200-sxm")
    if profile is None:
        raise SkipRow("GPU not modelled: h200-sxm")
    disagg = row.get("mode") == "disagg"
    prefix = "decode_" if disagg else ""
    tp = whole(row.get(f"{prefix}tp_size")) or 1
    dp = whole(row.get(f"{prefix}attention_dp_size")) or 1
    ep = whole(row.get(f"{prefix}moe_ep_size")) or 1
    experts = (whole(row.get("moe_tp_size")) or 1) * ep
    if experts > tp * dp:
        dp = experts // tp  # the experts span more GPUs than one attention group
    concurrency = whole(row.get("concurrency")) or whole(row.get("batch_size"))
    if concurrency is None:
        raise SkipRow("concurrency not stated")
    if dp > 1 and not row.get(f"{prefix}attention_dp_size"):
        concurrency *= dp  # stands in both columns for a batch, which is of one attention group
    workers = whole(row.get("decode_num_workers")) or 1
    if disagg and concurrency > 1 and not row.get("decode_num_workers"):
        # Rows alike in every column differ by up to 1.45: what one worker decodes is not known.
        raise SkipRow("number of decode workers not stated")
    isl, osl = whole(row.get("isl")), whole(row.get("osl"))
    tpot, ttft = measurement(row.get("silicon_tpot_ms")), measurement(row.get("silicon_ttft_ms"))
    if isl is None or osl is None or tpot is None:
        raise SkipRow("isl, osl or TPOT missing")
    measured = {"baseline_tpot_s": tpot / 1e3}
    if ttft and not disagg:
        measured["ttft_s"] = ttft / 1e3
    system = System(
        spec, profile, engine, Parallel(tp, ep, dp), kv_dtype=spec.default_kv_dtype,
        max_num_seqs=max(1, concurrency // workers),
    )
    name = f"{row.get('model_path', '').split('/')[-1]}|{row.get('backend')}"
    return PublishedCase(
        row_id, name, "A", system, _silicon_workload(row, isl, osl), max(1, concurrency // workers),
        measured, pure_decode=disagg,
    )


# NVIDIA's runs do not say how long they are. With one prompt's time p, TTFT of SGLang on one GPU is
# N p / 8 for N = 20 to 352 clients, prompts of 1,000 to 8,000 and answers of 100 to 2,000 tokens:
# the start of a run (N p / 2 on average) over four requests per client.
_NVIDIA_PER_CLIENT = 4


def _silicon_workload(row: Mapping[str, str], isl: int, osl: int) -> Workload:
    """InferenceX's runs are dated, NVIDIA's are not."""
    if row.get("measured"):
        return inferencex_workload(isl, osl)
    return Workload(isl, osl, name="row", requests_per_client=_NVIDIA_PER_CLIENT)

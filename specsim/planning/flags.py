"""What to type: the command line that starts a deployment as it was predicted.

`ready_flags` writes `vllm serve ...` or `python -m sglang.launch_server ...` for a `System`, with
every limit that the prediction rests on written out, so that an engine's own default (256 running
requests on a small GPU, 48 in SGLang as soon as it speculates) cannot change it in silence. What
the engine's version would refuse is refused here, with the rule and the way out; what it would do
without telling is a warning.

Rules read from the sources of vLLM 0.25.1 and 0.33.0 (config/speculative.py, config/scheduler.py,
config/compilation.py) and SGLang 0.5.23 (server_args.py), both Apache-2.0.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.model.counts import ffn_branches
from specsim.model.spec import MoE
from specsim.planning.versions import gone, version_key

BatchTable = Sequence[tuple[int, int, int]]
TABLE_FIELD = "num_speculative_tokens_per_batch_size"
DYNAMIC_SINCE = (0, 25)  # oldest vLLM whose source was read for the table by batch size
SLOTS_SINCE = (0, 33)  # from here on drafts no longer take a share of the token budget for good
TIGHT = 0.75  # share of the token budget below which a warning is due
_VLLM_METHODS = {
    "mtp": "mtp", "draft-model": "draft_model", "eagle": "eagle", "eagle3": "eagle3",
    "medusa": "medusa", "ngram": "ngram", "suffix": "suffix", "dflash": "dflash",
    "dspark": "dspark",
}
_SGLANG_ALGORITHMS = {
    "mtp": "NEXTN", "draft-model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3",
    "ngram": "NGRAM", "dflash": "DFLASH", "dspark": "DSPARK",
}
# What each engine calls a cache dtype; '' needs no flag, others it does not have.
_CACHES = {
    "vllm": {"bf16": "", "fp8": "fp8"},
    "sglang": {"bf16": "", "fp8": "fp8_e4m3", "fp4": "fp4_e2m1"},
}
_SGLANG_ADAPTS = ("eagle", "eagle3")  # of which the tiers by batch size can be switched on


@dataclass(frozen=True)
class Flags:
    """A command line and what to know about it. args: the whole command, word by word.

    speculative_config: vLLM's JSON as an object, None without speculation and for SGLang."""

    engine: str
    version: str
    args: list[str]
    warnings: tuple[str, ...] = ()
    speculative_config: Mapping[str, Any] | None = field(default=None)

    @property
    def command(self) -> str:
        """The command line, quoted for a POSIX shell."""
        return shlex.join(self.args)

    def to_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "version": self.version,
            "command": self.command,
            "args": list(self.args),
            "speculative_config": dict(self.speculative_config)
            if self.speculative_config is not None
            else None,
            "warnings": list(self.warnings),
        }


def ready_flags(
    system: System,
    *,
    table: BatchTable = (),
    model: str | None = None,
    draft: str | None = None,
    version: str | None = None,
    max_model_len: int = 0,
    prefix_caching: bool = True,
) -> Flags:
    """The command that starts `system`.

    table: draft length by batch size, ((first batch, last batch, k), ...), vLLM only.
    model, draft: the names or folders to serve (default: the catalogue's names). version: the
    engine's version (default: that of its profile). max_model_len: longest request, 0: the
    model's. UsageError where the engine's version would
    refuse the combination, where the method needs a drafter that nobody has published, and for
    engines whose command line is not known here.
    """
    _check_drafter(system, draft)
    checked = _check_table(system, table)
    name = system.engine.name
    asked = version or system.engine.version
    warnings: list[str] = []
    words = _model_words(system, model, warnings)
    write = {"vllm": _vllm, "sglang": _sglang}.get(name)
    if write is not None:
        return write(
            system, checked, words, draft, asked, warnings,
            _rest(system, max_model_len, prefix_caching),
        )
    raise UsageError(
        f"no command line is written for the engine {name}; use --engine vllm or sglang"
    )


def graphed_requests(system: System) -> int:
    """Largest decode batch that replays a CUDA graph: 512 // (1 + k) on Hopper under vLLM."""
    limit = system.engine.graph_limit(system.profile.arch)
    each = system.setup.verify_tokens if system.engine.graph_unit == "tokens" else 1
    return max(0, limit // each)


# --- rules that every engine shares -------------------------------------------------------------


def _check_drafter(system: System, draft: str | None) -> None:
    setup, engine = system.setup, system.engine
    if not system.speculative:
        return
    if setup.method == "early-exit" or (engine.methods and setup.method not in engine.methods):
        raise UsageError(
            f"{engine.name} {engine.version} has no method {setup.method!r}; it has "
            f"{', '.join(m for m in engine.methods if m not in ('none', 'early-exit'))}"
        )
    drafter = setup.drafter
    if setup.method == "mtp" and system.spec.mtp is None and drafter is None:
        raise UsageError(
            f"{system.spec.name} ships no MTP head; use another --method (draft-model, ngram) or "
            "a checkpoint that has one"
        )
    if drafter is not None and drafter.source == "assumed" and draft is None:
        raise UsageError(
            f"no {setup.method} head of {system.spec.name} is in the catalogue: its shape was "
            "assumed, so there is nothing to load; train one and name it with --draft"
        )


def _check_table(system: System, table: BatchTable) -> list[list[int]]:
    """The rows as vLLM wants them: from batch 1, rising, each k from 0 to the setup's k."""
    if not table:
        return []
    if not system.speculative:
        raise UsageError("a table by batch size needs a speculative method; name one or leave it")
    rows: list[list[int]] = []
    for first, last, k in table:
        start = rows[-1][1] + 1 if rows else 1
        if first != start or last < first:
            raise UsageError(
                f"{TABLE_FIELD} has the range [{first}, {last}]; ranges must follow each other "
                f"from 1, so this one starts at {start}"
            )
        if not 0 <= k <= system.setup.k:
            raise UsageError(
                f"{TABLE_FIELD} has k {k} from batch {first}, but the drafter runs at most "
                f"{system.setup.k}; vLLM would cut it: raise --k or lower it"
            )
        rows.append([first, last, k])
    return rows


def _model_words(system: System, model: str | None, warnings: list[str]) -> tuple[str, str]:
    """(what to serve, the format to convert to while loading or '')."""
    spec = system.spec
    name = model or spec.name
    if model is None and "/" not in name:
        warnings.append(f"{name} is the catalogue's name: put the repository or folder you serve")
    by_rule = any("by the usual rules" in note for note in spec.notes)
    if not by_rule or spec.weights == "bf16":
        return name, ""
    if spec.weights == "fp8":
        return name, "fp8"  # both engines convert 16-bit weights to FP8 while they load
    warnings.append(
        f"priced in {spec.weights}, of which the catalogue knows no checkpoint: serve one of yours"
    )
    return name, ""


def _rest(system: System, max_model_len: int, prefix_caching: bool) -> list[str]:
    """Flags that differ in name alone: cache dtype, longest request, prefix cache."""
    name = system.engine.name
    known = _CACHES[name]
    if system.kv_dtype not in known:
        raise UsageError(
            f"{name} has no KV cache of {system.kv_dtype}; use --kv {' or '.join(known)}"
        )
    cache = known[system.kv_dtype]
    args = ["--kv-cache-dtype", cache] if cache else []
    if max_model_len:
        flag = "--max-model-len" if name == "vllm" else "--context-length"
        args += [flag, str(max_model_len)]
    if not prefix_caching:
        args.append("--no-enable-prefix-caching" if name == "vllm" else "--disable-radix-cache")
    return args


def _warn_of_graphs(system: System, seqs: int, warnings: list[str]) -> None:
    covered = graphed_requests(system)
    if seqs <= covered:
        return
    if system.engine.graph_unit == "tokens":
        limit = system.engine.graph_limit(system.profile.arch)
        rule = f"graphs end at {limit} tokens, {limit} // {system.setup.verify_tokens}"
    else:
        rule = "graphs are captured up to that batch"
    warnings.append(
        f"above {covered} running requests decode steps leave the CUDA graphs ({rule}), but up to "
        f"{seqs} may run"
    )


# --- vLLM ---------------------------------------------------------------------------------------


def _vllm(
    system: System,
    table: list[list[int]],
    words: tuple[str, str],
    draft: str | None,
    version: str,
    warnings: list[str],
    rest: list[str],
) -> Flags:
    name, convert = words
    par, groups = system.parallel, system.parallel.attention_dp
    tokens = system.batched_tokens
    seqs = _seats(system, version, tokens, warnings)
    if tokens < seqs:
        raise UsageError(
            f"max_num_batched_tokens is {tokens}, below max_num_seqs {seqs}, which vLLM refuses; "
            "raise the first or lower the second"
        )
    args = ["vllm", "serve", name]
    if convert:
        args += ["--quantization", convert]
    if par.tp > 1:
        args += ["--tensor-parallel-size", str(par.tp)]
    if groups > 1:
        args += ["--data-parallel-size", str(groups)]
    if par.ep > 1:
        args += ["--enable-expert-parallel"]
        if par.ep != par.gpus:
            warnings.append(
                f"vLLM spreads experts over all {par.gpus} GPUs, but ep {par.ep} was predicted"
            )
    args += [*rest, "--max-num-seqs", str(seqs), "--max-num-batched-tokens", str(tokens)]
    if system.gpu_memory_utilization:
        args += ["--gpu-memory-utilization", f"{system.gpu_memory_utilization:g}"]
    config = None
    if system.speculative:
        config = _vllm_config(system, table, draft, version, warnings)
        args += ["--speculative-config", json.dumps(config)]
    _warn_of_graphs(system, seqs, warnings)
    return Flags("vllm", version, args, tuple(warnings), config)


def _vllm_config(
    system: System,
    table: list[list[int]],
    draft: str | None,
    version: str,
    warnings: list[str],
) -> dict[str, Any]:
    setup, drafter, key = system.setup, system.setup.drafter, version_key(version)
    missing = gone(system.engine.name, version, setup.method)
    if missing:
        raise UsageError(f"{missing}; use eagle3 or an older version")
    if setup.tree_topk > 1:
        raise UsageError(
            f"vLLM drafts chains, but the tree top-k is {setup.tree_topk}; leave out --tree or "
            "use --engine sglang"
        )
    if table and key < DYNAMIC_SINCE:
        raise UsageError(
            f"{TABLE_FIELD} is not in vLLM {version} (0.25.1 has it); use one draft length or a "
            "newer version"
        )
    n_predict = drafter.n_predict if drafter is not None and setup.method == "mtp" else 1
    if n_predict > 1 and setup.k > n_predict and setup.k % n_predict:
        raise UsageError(
            f"k is {setup.k}, but vLLM wants a multiple of the {n_predict} MTP layers of "
            f"{system.spec.name}; use {setup.k // n_predict * n_predict}"
        )
    assistant = drafter is not None and drafter.kind == "gemma-assistant"
    # vLLM runs Gemma's assistants under the name of MTP heads, from a checkpoint of their own.
    config: dict[str, Any] = {"method": "mtp" if assistant else _VLLM_METHODS[setup.method]}
    if drafter is not None and (setup.method != "mtp" or drafter is not system.spec.mtp):
        config["model"] = draft or drafter.name
        if draft is None and "/" not in drafter.name:
            warnings.append(f"{drafter.name} is the catalogue's name: put the drafter you load")
    config["num_speculative_tokens"] = setup.k
    if setup.draft_tp and setup.draft_tp != system.parallel.tp:
        config["draft_tensor_parallel_size"] = setup.draft_tp
    if setup.parallel_drafting:
        config["parallel_drafting"] = True
    if table:
        config[TABLE_FIELD] = table
        warnings.append(
            "the table counts requests whose prompts are still running too, and k = 0 still runs "
            "the drafter once a step to keep its cache"
        )
        if key < SLOTS_SINCE and setup.method != "dspark" and _older_runner(system):
            warnings.append(
                f"vLLM {version} runs such models on its older runner, where a table switches to "
                "piecewise CUDA graphs; what that costs is not priced"
            )
    elif setup.method in ("ngram", "suffix"):
        warnings.append(f"vLLM schedules {setup.method} step by step (no asynchronous scheduling)")
    if n_predict == 1 and setup.method == "mtp" and setup.k > 1 and not assistant:
        warnings.append("one MTP layer drafts every position; vLLM warns of it at start-up")
    return config


def _older_runner(system: System) -> bool:
    """vLLM 0.25.1 keeps models with recurrent state and most mixtures on its first runner."""
    mixture = any(
        isinstance(part, MoE) for group in system.spec.layers for part in ffn_branches(group.ffn)
    )
    return mixture or system.memory.state_bytes_per_seq > 0


def _slots(system: System, version: str) -> int:
    """Rows that vLLM before 0.33 sets aside in every step for each of max_num_seqs sequences."""
    setup = system.setup
    if not system.speculative or version_key(version) >= SLOTS_SINCE:
        return 0
    slots = 1 if setup.method == "draft-model" else 0
    if setup.parallel_drafting or setup.method in ("dflash", "dspark"):
        slots += setup.k - 1
    return slots


def _seats(system: System, version: str, tokens: int, warnings: list[str]) -> int:
    """max_num_seqs per attention group; where nobody asked for one and vLLM's default would take
    the token budget away (`_slots`), the largest that leaves most of it."""
    seqs = -(-system.seqs_limit // system.parallel.attention_dp)
    slots = _slots(system, version)
    left, method = tokens - slots * seqs, system.setup.method
    if left >= TIGHT * tokens:
        return seqs
    why = f"vLLM {version} sets aside {slots} x max_num_seqs tokens of every step for {method}"
    roomy = int((1 - TIGHT) * tokens) // slots
    if not system.max_num_seqs and roomy >= 1:
        warnings.append(f"{why}: {roomy} sequences leave {tokens - slots * roomy} of {tokens}")
        return roomy
    if left < 1:
        raise UsageError(
            f"{why}, which leaves none of {tokens} with {seqs} sequences; lower --max-num-seqs or "
            f"raise --max-num-batched-tokens above {slots * seqs}"
        )
    warnings.append(f"{why}: {left} of {tokens} are left; a lower --max-num-seqs frees them")
    return seqs


# --- SGLang -------------------------------------------------------------------------------------


def _sglang(
    system: System,
    table: list[list[int]],
    words: tuple[str, str],
    draft: str | None,
    version: str,
    warnings: list[str],
    rest: list[str],
) -> Flags:
    name, convert = words
    par, setup, drafter = system.parallel, system.setup, system.setup.drafter
    args = ["python", "-m", "sglang.launch_server", "--model-path", name]
    if convert:
        args += ["--quantization", convert]
    if par.gpus > 1:
        args += ["--tp-size", str(par.gpus)]
    if par.attention_dp > 1:
        args += ["--dp-size", str(par.attention_dp), "--enable-dp-attention"]
    if par.ep > 1:
        args += ["--ep-size", str(par.ep)]
    args += [*rest, "--max-running-requests", str(system.seqs_limit)]
    args += ["--chunked-prefill-size", str(system.batched_tokens)]
    if system.gpu_memory_utilization:
        args += ["--mem-fraction-static", f"{system.gpu_memory_utilization:g}"]
    if system.speculative:
        if table:
            raise UsageError(
                f"SGLang takes no table by batch size ({TABLE_FIELD} is vLLM's); use one draft "
                "length, or its own tiers with --speculative-adaptive"
            )
        assistant = drafter is not None and drafter.kind == "gemma-assistant"
        algorithm = "FROZEN_KV_MTP" if assistant else _SGLANG_ALGORITHMS[setup.method]
        args += ["--speculative-algorithm", algorithm]
        if drafter is not None and (setup.method != "mtp" or drafter is not system.spec.mtp):
            args += ["--speculative-draft-model-path", draft or drafter.name]
            if draft is None and "/" not in drafter.name:
                warnings.append(f"{drafter.name} is the catalogue's name: put the drafter you load")
        if setup.method not in ("ngram", "dflash", "dspark"):
            args += ["--speculative-num-steps", str(setup.k)]
            args += ["--speculative-eagle-topk", str(setup.tree_topk)]
        args += ["--speculative-num-draft-tokens", str(setup.verify_tokens)]
        if not system.max_num_seqs and system.engine.spec_max_num_seqs:
            warnings.append(
                f"SGLang runs {system.engine.spec_max_num_seqs} requests at a time once it "
                "speculates; raise --max-running-requests if the cache holds more"
            )
        if setup.method in _SGLANG_ADAPTS and setup.tree_topk == 1:
            warnings.append(
                "--speculative-adaptive would shorten the drafts by batch size and acceptance; "
                "`specsim simulate --adaptive` shows it"
            )
    _warn_of_graphs(system, system.seqs_limit, warnings)
    return Flags("sglang", version, args, tuple(warnings))

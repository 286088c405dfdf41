"""Flags of `vllm serve` (0.25.1 and 0.33.0) and `python -m sglang.launch_server` (0.5.23), by what
they mean for a prediction.

max_num_seqs counts per data-parallel rank in vLLM and per deployment here, so it is multiplied.
SGLang counts tp over all GPUs, of which dp attention groups are a part; here tp is the split of
one group. A speculative algorithm without any number takes SGLang's own choice: 5 steps of a tree
of 8 tokens with 4 branches for Llama and Grok, else a chain of 3.
"""

from collections.abc import Mapping

from specsim.errors import FormatError, UsageError
from specsim.formats.launch_flags import launch_values
from specsim.formats.server_flags import (
    CommandValues,
    ParsedFlags,
    ServerCommand,
    ServerWords,
    check_speculation_known,
    json_or_text,
    longest,
    numeric_formats,
    share,
    sort_flags,
    those_set,
    whole,
)
from specsim.jsonable import json_text
from specsim.methods.base import find_method
from specsim.methods.mtp import MtpMethod
from specsim.methods.registry import method_of_checkpoint, server_method, server_methods

_TREE_FAMILIES = ("llama", "grok")


def read_sglang(server: ServerWords) -> ServerCommand:
    """The words behind `sglang.launch_server`."""
    flags = sort_flags(server)
    read = flags.read
    ignored, not_modelled = flags.ignored, flags.not_modelled
    notes: list[str] = []
    model = read.get("model") or (flags.positional[0] if flags.positional else "")
    chunked = read.get("tokens") != "-1"
    if not chunked:
        not_modelled.append("--chunked-prefill-size -1")
    values: CommandValues = {"engine": server.engine_asked, **_parallel(read, notes)}
    values |= those_set(
        max_num_seqs=whole(read, "seqs", "--max-running-requests"),
        max_num_batched_tokens=whole(read, "tokens", "--chunked-prefill-size") if chunked else None,
        gpu_memory_utilization=share(read, "memory", "--mem-fraction-static"),
        routing="eplb" if "eplb" in read else None,
    )
    values |= numeric_formats(read, not_modelled) | launch_values(flags)
    if read.get("algorithm", "").upper() not in ("", "NONE"):
        values |= _speculation(read, model)
        if "adaptive" in read:
            not_modelled.append("--speculative-adaptive (`specsim simulate --adaptive` models it)")
    elif "algorithm" not in read:
        check_speculation_known(flags)
    return ServerCommand(
        "sglang", model, values, tuple(ignored), tuple(not_modelled), tuple(flags.unknown),
        tuple(notes), longest(read, "--context-length"),
    )


def _parallel(read: Mapping[str, str], notes: list[str]) -> CommandValues:
    gpus = whole(read, "tp", "--tp-size") or 1
    groups = whole(read, "dp", "--dp-size") or 1
    experts = whole(read, "ep", "--ep-size") or 1
    if groups > 1 and "dp-attention" not in read:
        notes.append(f"--dp-size {groups} starts {groups} replicas; one of them is predicted")
        groups = 1
    if gpus % groups:
        raise UsageError(
            f"--command has --tp-size {gpus} and --dp-size {groups}; with --enable-dp-attention "
            "the second must divide the first"
        )
    stages = whole(read, "pp", "--pp-size") or 1
    parts = {"tp": gpus // groups, "attention_dp": groups, "pp": stages, "ep": experts}
    return those_set(**{name: count if count > 1 else None for name, count in parts.items()})


def _speculation(read: Mapping[str, str], model: str) -> CommandValues:
    name = read["algorithm"].upper()
    draft = read.get("draft")
    if draft and method_of_checkpoint(draft) == MtpMethod.name and name in ("EAGLE", "NEXTN"):
        draft = None  # the target's own head, exported to a folder of its own
    # The worker of EAGLE runs a shipped MTP head when no draft model is named.
    method = server_method("sglang", "NEXTN" if name == "EAGLE" and not draft else name)
    if method is None:
        known = ", ".join(server_methods("sglang"))
        raise UsageError(
            f"--command has --speculative-algorithm {name[:40]!r}, which is not modelled; "
            f"known: {known}"
        )
    out: CommandValues = {"method": method}
    if draft:
        out["draft"] = draft
    steps = whole(read, "steps", "--speculative-num-steps")
    topk = whole(read, "topk", "--speculative-eagle-topk")
    width = whole(read, "width", "--speculative-num-draft-tokens")
    if find_method(method).one_number:
        if width is not None:
            out["k"] = max(1, width - 1)
        return out
    if steps is None and topk is None and width is None:
        tree = any(part in model.lower() for part in _TREE_FAMILIES)
        steps, topk, width = (5, 4, 8) if tree else (3, 1, 4)
    if steps is None:
        raise UsageError(
            "--command has numbers of a speculative tree without --speculative-num-steps; SGLang "
            "wants all three or none"
        )
    out["k"] = steps
    if topk is not None and topk > 1:
        out["tree"] = f"{topk},{width if width is not None else steps + 1}"
    return out


# Fields of the speculative JSON that have a flag of their own and hold a whole number.
_NUMBERS = {
    "num_speculative_tokens": "--num-speculative-tokens",
    "draft_tensor_parallel_size": "--speculative-draft-tensor-parallel-size",
    "prompt_lookup_max": "--ngram-prompt-lookup-max",
    "prompt_lookup_min": "--ngram-prompt-lookup-min",
}


def read_vllm(server: ServerWords) -> ServerCommand:
    """The words behind `vllm serve`."""
    flags = sort_flags(server)
    read = flags.read
    ignored, not_modelled = flags.ignored, flags.not_modelled
    model = flags.positional[0] if flags.positional else read.get("model", "")
    tp = whole(read, "tp", "--tensor-parallel-size")
    groups = whole(read, "dp", "--data-parallel-size") or 1
    stages = whole(read, "pp", "--pipeline-parallel-size") or 1
    seqs = whole(read, "seqs", "--max-num-seqs")
    budget = whole(read, "tokens", "--max-num-batched-tokens")
    if seqs is not None and budget is not None and budget < seqs:
        raise UsageError(
            f"--command has --max-num-batched-tokens {budget} below --max-num-seqs {seqs}, which "
            "vLLM refuses; raise the first or lower the second"
        )
    values = those_set(
        engine=server.engine_asked, tp=tp, pp=stages if stages > 1 else None,
        attention_dp=groups if groups > 1 else None,
        ep=(tp or 1) * groups if "ep" in read else None,
        max_num_seqs=seqs * groups if seqs is not None else None, max_num_batched_tokens=budget,
        gpu_memory_utilization=share(read, "memory", "--gpu-memory-utilization"),
        routing="eplb" if "eplb" in read else None,
    )
    values |= numeric_formats(read, not_modelled) | launch_values(flags)
    config = _config(flags)
    if config is not None:
        values["speculative_config"] = config
    else:
        check_speculation_known(flags)
    return ServerCommand(
        "vllm", model, values, tuple(ignored), tuple(not_modelled), tuple(flags.unknown),
        max_model_len=longest(read, "--max-model-len"),
    )


def _config(flags: ParsedFlags) -> str | None:
    """The speculative JSON: given whole, field by field (--speculative-config.method mtp), or in
    flags of their own (--speculative-model)."""
    fields = _flags_of_their_own(flags.read)
    if fields and (flags.dotted or "config" in flags.read):
        raise UsageError(
            "--command has --speculative-config and the older --speculative-model or "
            "--num-speculative-tokens; keep the first"
        )
    if fields:
        return json_text(fields)
    if not flags.dotted:
        return flags.read.get("config")
    if "config" in flags.read:
        raise UsageError(
            "--command has --speculative-config whole and by field; keep one of the two"
        )
    for name, text in flags.dotted.items():
        field = name.split(".", 1)[1].replace("-", "_")
        if "." in field:
            raise FormatError(f"--command has --{name}; the fields of this JSON have no parts")
        fields[field] = json_or_text(text)
    return json_text(fields)


def _flags_of_their_own(read: Mapping[str, str]) -> dict[str, object]:
    """The fields that flags other than --speculative-config set, {} where they ask for no
    speculation. Draft tokens without a model are the target's own MTP head (vLLM up to 0.8)."""
    found = {name[5:]: value for name, value in read.items() if name.startswith("spec.")}
    if not found.keys() & {"method", "model", "num_speculative_tokens"}:
        return {}
    fields: dict[str, object] = {}
    for name, text in found.items():
        if name in _NUMBERS:
            fields[name] = whole(found, name, _NUMBERS[name])
        else:
            fields[name] = text if name in ("method", "model") else json_or_text(text or "true")
    if not found.keys() & {"method", "model"}:
        fields["method"] = MtpMethod.name
    return fields

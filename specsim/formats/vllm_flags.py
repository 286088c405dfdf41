"""Flags of `vllm serve`, by what they mean for a prediction (vLLM 0.25.1 and 0.33.0).

max_num_seqs counts per data-parallel rank in vLLM and per deployment here, so it is multiplied.
"""

import json
from collections.abc import Mapping

from specsim.errors import FormatError, UsageError
from specsim.formats.server_flags import (
    CommandValues,
    ParsedFlags,
    ServerCommand,
    ServerWords,
    check_speculation_known,
    longest,
    numeric_formats,
    share,
    sort_flags,
    whole,
)
from specsim.jsonable import json_text
from specsim.methods.mtp import MtpMethod

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
    values: CommandValues = {"engine": server.engine_asked}
    tp = whole(read, "tp", "--tensor-parallel-size")
    groups = whole(read, "dp", "--data-parallel-size") or 1
    if tp is not None:
        values["tp"] = tp
    stages = whole(read, "pp", "--pipeline-parallel-size")
    if stages is not None and stages > 1:
        values["pp"] = stages
    if groups > 1:
        values["attention_dp"] = groups
    if "ep" in read:
        values["ep"] = (tp or 1) * groups
    seqs = whole(read, "seqs", "--max-num-seqs")
    if seqs is not None:
        values["max_num_seqs"] = seqs * groups
    budget = whole(read, "tokens", "--max-num-batched-tokens")
    if budget is not None:
        values["max_num_batched_tokens"] = budget
    if seqs is not None and budget is not None and budget < seqs:
        raise UsageError(
            f"--command has --max-num-batched-tokens {budget} below --max-num-seqs {seqs}, which "
            "vLLM refuses; raise the first or lower the second"
        )
    memory = share(read, "memory", "--gpu-memory-utilization")
    if memory is not None:
        values["gpu_memory_utilization"] = memory
    values |= numeric_formats(read, not_modelled)
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
        fields[field] = _json_or_text(text)
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
            fields[name] = text if name in ("method", "model") else _json_or_text(text or "true")
    if not found.keys() & {"method", "model"}:
        fields["method"] = MtpMethod.name
    return fields


def _json_or_text(text: str) -> object:
    """A word that is no JSON stands for itself, as in vLLM."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

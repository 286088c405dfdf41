"""Flags of `vllm serve`, by what they mean for a prediction (vLLM 0.25.1 and 0.33.0).

max_num_seqs counts per data-parallel rank in vLLM and per deployment here, so it is multiplied.
"""

import json

from specsim.errors import FormatError, UsageError
from specsim.formats.server_flags import (
    CommandValues,
    ParsedFlags,
    ServerCommand,
    flag_table,
    longest,
    numeric_formats,
    share,
    sort_flags,
    whole,
)


def read_vllm(words: list[str], engine: str) -> ServerCommand:
    """The words behind `vllm serve`."""
    flags = sort_flags(words, flag_table("vllm"))
    read = flags.read
    ignored, not_modelled = flags.ignored, flags.not_modelled
    model = flags.positional[0] if flags.positional else read.get("model", "")
    values: CommandValues = {"engine": engine}
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
    k = whole(read, "k", "--num-speculative-tokens")
    if k is not None:
        values["k"] = k
    if seqs is not None and budget is not None and budget < seqs:
        raise UsageError(
            f"--command has --max-num-batched-tokens {budget} below --max-num-seqs {seqs}, which "
            "vLLM refuses; raise the first or lower the second"
        )
    memory = share(read, "memory", "--gpu-memory-utilization")
    if memory is not None:
        values["gpu_memory_utilization"] = memory
    values |= numeric_formats(read, not_modelled)
    if "draft" in read:
        values["draft"] = read["draft"]
    config = _config(flags)
    if config is not None:
        if "draft" in values or "k" in values:
            raise UsageError(
                "--command has --speculative-config and the older --speculative-model or "
                "--num-speculative-tokens; keep the first"
            )
        values["speculative_config"] = config
    return ServerCommand(
        "vllm", model, values, tuple(ignored), tuple(not_modelled), tuple(flags.unknown),
        max_model_len=longest(read, "--max-model-len"),
    )


def _config(flags: ParsedFlags) -> str | None:
    """The speculative JSON: given whole, or field by field (--speculative-config.method mtp)."""
    if not flags.dotted:
        return flags.read.get("config")
    if "config" in flags.read:
        raise UsageError(
            "--command has --speculative-config whole and by field; keep one of the two"
        )
    fields: dict[str, object] = {}
    for name, text in flags.dotted.items():
        field = name.split(".", 1)[1].replace("-", "_")
        if "." in field:
            raise FormatError(f"--command has --{name}; the fields of this JSON have no parts")
        try:
            fields[field] = json.loads(text)
        except (ValueError, RecursionError):
            fields[field] = text  # a word that is no JSON stands for itself, as in vLLM
    return json.dumps(fields)

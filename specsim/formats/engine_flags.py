"""Flags of `python -m sglang.launch_server`, by what they mean for a prediction (SGLang 0.5.23).

SGLang counts tp over all GPUs, of which dp attention groups are a part; here tp is the split of
one group. A speculative algorithm without any number takes SGLang's own choice: 5 steps of a tree
of 8 tokens with 4 branches for Llama and Grok, else a chain of 3.
"""

from collections.abc import Mapping

from specsim.errors import UsageError
from specsim.formats.server_flags import (
    CommandValues,
    ServerCommand,
    ServerWords,
    check_speculation_known,
    longest,
    numeric_formats,
    share,
    sort_flags,
    whole,
)
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
    values: CommandValues = {"engine": server.engine_asked}
    _parallel(read, values, notes)
    seqs = whole(read, "seqs", "--max-running-requests")
    if seqs is not None:
        values["max_num_seqs"] = seqs
    if read.get("tokens") == "-1":
        not_modelled.append("--chunked-prefill-size -1")
    else:
        tokens = whole(read, "tokens", "--chunked-prefill-size")
        if tokens is not None:
            values["max_num_batched_tokens"] = tokens
    memory = share(read, "memory", "--mem-fraction-static")
    if memory is not None:
        values["gpu_memory_utilization"] = memory
    values |= numeric_formats(read, not_modelled)
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


def _parallel(read: Mapping[str, str], values: CommandValues, notes: list[str]) -> None:
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
    if gpus // groups > 1:
        values["tp"] = gpus // groups
    if groups > 1:
        values["attention_dp"] = groups
    stages = whole(read, "pp", "--pp-size") or 1
    if stages > 1:
        values["pp"] = stages
    if experts > 1:
        values["ep"] = experts


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

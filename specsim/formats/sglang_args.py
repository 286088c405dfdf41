"""Flags of `python -m sglang.launch_server`, by what they mean for a prediction (SGLang 0.5.23).

SGLang counts tp over all GPUs, of which dp attention groups are a part; here tp is the split of
one group. A speculative algorithm without any number takes SGLang's own choice: 5 steps of a tree
of 8 tokens with 4 branches for Llama and Grok, else a chain of 3.
"""

from collections.abc import Mapping
from typing import Any

from specsim.errors import UsageError
from specsim.formats.server_command import (
    FlagTable,
    ServerCommand,
    longest,
    numeric_formats,
    share,
    sort_flags,
    whole,
)
from specsim.methods.base import find_method
from specsim.methods.registry import server_method, server_methods

_READ = {
    "model-path": "model", "model": "model", "tp-size": "tp", "tp": "tp",
    "tensor-parallel-size": "tp", "dp-size": "dp", "dp": "dp", "data-parallel-size": "dp",
    "enable-dp-attention": "dp-attention", "ep-size": "ep", "ep": "ep",
    "expert-parallel-size": "ep", "quantization": "quantization", "kv-cache-dtype": "kv",
    "dtype": "dtype", "max-running-requests": "seqs", "chunked-prefill-size": "tokens",
    "mem-fraction-static": "memory", "speculative-algorithm": "algorithm",
    "speculative-algo": "algorithm", "speculative-num-steps": "steps",
    "speculative-eagle-topk": "topk", "speculative-num-draft-tokens": "width",
    "speculative-draft-model-path": "draft", "speculative-draft-model": "draft",
    "speculative-adaptive": "adaptive", "context-length": "longest",
}
_SWITCHES = frozenset({
    "enable-dp-attention", "trust-remote-code", "disable-radix-cache", "disable-cuda-graph",
    "disable-overlap-schedule", "enable-metrics", "enable-mixed-chunk", "enable-torch-compile",
    "skip-tokenizer-init", "skip-server-warmup", "log-requests", "show-time-cost",
    "enable-cache-report", "enable-two-batch-overlap", "enable-deepep-moe", "enable-lora",
    "speculative-adaptive", "speculative-use-rejection-sampling", "enable-flashinfer-mla",
    "speculative-use-block-verification", "enable-hierarchical-cache", "enable-eplb",
    "disable-chunked-prefix-cache", "enable-multimodal", "enable-linear-replayssm-spec",
    "disable-custom-all-reduce", "enable-ep-moe",
})
_IGNORED = frozenset({
    "host", "port", "served-model-name", "api-key", "tokenizer-path", "tokenizer-mode",
    "trust-remote-code", "random-seed", "download-dir", "load-format", "revision",
    "chat-template", "tool-call-parser", "reasoning-parser", "enable-metrics", "log-level",
    "log-level-http", "log-requests", "log-requests-level", "show-time-cost",
    "skip-server-warmup", "enable-cache-report", "watchdog-timeout", "dist-init-addr", "nnodes",
    "node-rank", "base-gpu-id", "sampling-defaults", "decode-log-interval", "file-storage-path",
    "completion-template", "model-loader-extra-config", "enable-multimodal", "nccl-port",
    "disable-radix-cache", "speculative-accept-threshold-single",
    "speculative-accept-threshold-acc", "speculative-draft-model-revision",
    "speculative-use-rejection-sampling", "stream-output", "weight-version",
    "constrained-json-whitespace-pattern", "grammar-backend",
})
_NOT_MODELLED = frozenset({
    "pp-size", "pipeline-parallel-size", "disable-cuda-graph", "cuda-graph-max-bs",
    "cuda-graph-bs", "disable-overlap-schedule", "enable-mixed-chunk", "enable-torch-compile",
    "attention-backend", "decode-attention-backend", "prefill-attention-backend",
    "speculative-attention-mode", "speculative-token-map", "speculative-draft-window-size",
    "speculative-use-block-verification", "speculative-adaptive-config", "moe-a2a-backend",
    "moe-runner-backend", "enable-deepep-moe", "enable-ep-moe", "deepep-mode",
    "enable-two-batch-overlap", "schedule-policy", "schedule-conservativeness",
    "max-prefill-tokens", "max-total-tokens", "page-size", "disaggregation-mode",
    "disaggregation-transfer-backend", "cpu-offload-gb", "enable-lora", "lora-paths",
    "enable-hierarchical-cache", "enable-eplb", "stream-interval", "num-continuous-decode-steps",
    "enable-linear-replayssm-spec", "disable-chunked-prefix-cache", "disable-custom-all-reduce",
    "enable-flashinfer-mla", "speculative-draft-model-quantization", "moe-dense-tp-size",
    "json-model-override-args", "config", "mamba-ssm-dtype", "max-mamba-cache-size",
})
TABLE = FlagTable(_READ, _SWITCHES, _IGNORED, _NOT_MODELLED)
_SAME = {"--pp-size 1", "--page-size 1", "--schedule-policy fcfs", "--stream-interval 1"}
_TREE_FAMILIES = ("llama", "grok")


def read_sglang(words: list[str], engine: str) -> ServerCommand:
    """The words behind `sglang.launch_server`."""
    flags = sort_flags(words, TABLE)
    read = flags.read
    not_modelled = [text for text in flags.not_modelled if text not in _SAME]
    ignored = [*flags.ignored, *(text for text in flags.not_modelled if text in _SAME)]
    notes: list[str] = []
    model = read.get("model") or (flags.positional[0] if flags.positional else "")
    values: dict[str, Any] = {"engine": engine}
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
    return ServerCommand(
        "sglang", model, values, tuple(ignored), tuple(not_modelled), tuple(flags.unknown),
        tuple(notes), longest(read, "--context-length"),
    )


def _parallel(read: Mapping[str, str], values: dict[str, Any], notes: list[str]) -> None:
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
    if experts > 1:
        values["ep"] = experts


def _speculation(read: Mapping[str, str], model: str) -> dict[str, Any]:
    name = read["algorithm"].upper()
    draft = read.get("draft")
    # The worker of EAGLE runs a shipped MTP head when no draft model is named.
    method = server_method("sglang", "NEXTN" if name == "EAGLE" and not draft else name)
    if method is None:
        known = ", ".join(server_methods("sglang"))
        raise UsageError(
            f"--command has --speculative-algorithm {name[:40]!r}, which is not modelled; "
            f"known: {known}"
        )
    out: dict[str, Any] = {"method": method}
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

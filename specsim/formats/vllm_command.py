"""Flags of `vllm serve`, by what they mean for a prediction (vLLM 0.25.1 and 0.33.0).

max_num_seqs counts per data-parallel rank in vLLM and per deployment here, so it is multiplied.
"""

import json
from typing import Any

from specsim.errors import FormatError, UsageError
from specsim.formats.server_command import (
    FlagTable,
    ParsedFlags,
    ServerCommand,
    longest,
    numeric_formats,
    share,
    sort_flags,
    whole,
)

_READ = {
    "model": "model", "tensor-parallel-size": "tp", "tp": "tp", "data-parallel-size": "dp",
    "dp": "dp", "enable-expert-parallel": "ep", "ep": "ep", "quantization": "quantization",
    "q": "quantization", "kv-cache-dtype": "kv", "dtype": "dtype", "max-num-seqs": "seqs",
    "max-num-batched-tokens": "tokens", "gpu-memory-utilization": "memory",
    "speculative-config": "config", "sc": "config", "max-model-len": "longest",
    # before 0.9 speculation had flags of its own
    "speculative-model": "draft", "num-speculative-tokens": "k",
}
_SWITCHES = frozenset({
    "enable-expert-parallel", "ep", "enforce-eager", "trust-remote-code",
    "enable-prefix-caching", "no-enable-prefix-caching", "enable-chunked-prefill",
    "no-enable-chunked-prefill", "enable-auto-tool-choice", "disable-log-requests",
    "no-enable-log-requests", "enable-log-requests", "disable-log-stats", "async-scheduling",
    "no-async-scheduling", "enable-lora", "enable-dbo", "headless", "skip-tokenizer-init",
    "enable-server-load-tracking", "disable-custom-all-reduce", "disable-fastapi-docs",
    "disable-uvicorn-access-log", "enable-request-id-headers", "enable-prompt-tokens-details",
    "enable-force-include-usage", "return-tokens-as-token-ids", "enable-eplb",
    "language-model-only", "disable-frontend-multiprocessing", "enable-sleep-mode",
    "enable-reasoning", "scheduler-reserve-full-isl", "no-scheduler-reserve-full-isl",
    "disable-hybrid-kv-cache-manager",
})
_IGNORED = frozenset({
    "host", "port", "uds", "served-model-name", "api-key", "tokenizer", "tokenizer-mode",
    "trust-remote-code", "seed", "download-dir", "load-format", "revision", "code-revision",
    "tokenizer-revision", "hf-token", "hf-config-path", "config-format", "chat-template",
    "chat-template-content-format", "default-chat-template-kwargs", "tool-call-parser",
    "tool-parser-plugin", "enable-auto-tool-choice", "reasoning-parser", "reasoning-config",
    "enable-reasoning", "disable-log-requests", "enable-log-requests", "no-enable-log-requests",
    "disable-log-stats", "uvicorn-log-level", "disable-uvicorn-access-log", "root-path",
    "allowed-origins", "allowed-methods", "allowed-headers", "middleware", "ssl-keyfile",
    "ssl-certfile", "generation-config", "override-generation-config",
    "max-logprobs", "logprobs-mode", "max-log-len", "limit-mm-per-prompt", "mm-processor-kwargs",
    "distributed-executor-backend", "enable-server-load-tracking", "disable-fastapi-docs",
    "disable-frontend-multiprocessing", "api-server-count", "enable-request-id-headers",
    "enable-prompt-tokens-details", "enable-force-include-usage", "return-tokens-as-token-ids",
    "otlp-traces-endpoint", "collect-detailed-traces", "show-hidden-metrics-for-version",
    "kv-cache-metrics", "enable-prefix-caching", "no-enable-prefix-caching",
    "prefix-caching-hash-algo", "enable-chunked-prefill", "async-scheduling", "task", "runner",
    "model-impl", "headless", "response-role", "per-request-spec-decode-metrics",
    "scheduler-reserve-full-isl", "no-scheduler-reserve-full-isl", "allowed-local-media-path",
    "data-parallel-address", "data-parallel-rpc-port", "data-parallel-backend",
    "data-parallel-size-local", "data-parallel-start-rank", "nnodes", "node-rank", "master-addr",
    "master-port", "enable-sleep-mode", "structured-outputs-config", "guided-decoding-backend",
    "language-model-only", "mamba-cache-mode",
})
_NOT_MODELLED = frozenset({
    "pipeline-parallel-size", "pp", "enforce-eager", "no-enable-chunked-prefill",
    "no-async-scheduling", "compilation-config", "cc", "O", "optimization-level",
    "cuda-graph-sizes", "cudagraph-capture-sizes", "max-cudagraph-capture-size", "block-size",
    "cpu-offload-gb", "kv-offloading-size", "kv-transfer-config", "ec-transfer-config",
    "enable-lora", "max-loras", "lora-modules", "enable-dbo", "ubatch-size",
    "attention-backend", "attention-config", "moe-backend", "all2all-backend",
    "decode-context-parallel-size", "dcp", "prefill-context-parallel-size", "scheduling-policy",
    "long-prefill-token-threshold", "max-num-partial-prefills", "performance-mode", "enable-eplb",
    "eplb-config", "num-gpu-blocks-override", "kv-cache-memory-bytes", "hf-overrides", "config",
    "disable-custom-all-reduce", "disable-hybrid-kv-cache-manager", "stream-interval",
    "device", "swap-space", "max-seq-len-to-capture", "mamba-ssm-cache-dtype",
    "additional-config", "disable-sliding-window", "calculate-kv-scales",
})
TABLE = FlagTable(_READ, _SWITCHES, _IGNORED, _NOT_MODELLED)
_SAME = {"--pipeline-parallel-size 1", "--pp 1", "--performance-mode balanced", "--block-size 16",
         "--scheduling-policy fcfs", "--device cuda", "--decode-context-parallel-size 1",
         "--stream-interval 1", "--cpu-offload-gb 0"}


def read_vllm(words: list[str], engine: str) -> ServerCommand:
    """The words behind `vllm serve`."""
    flags = sort_flags(words, TABLE)
    read = flags.read
    not_modelled = [text for text in flags.not_modelled if text not in _SAME]
    ignored = [*flags.ignored, *(text for text in flags.not_modelled if text in _SAME)]
    model = flags.positional[0] if flags.positional else read.get("model", "")
    values: dict[str, Any] = {"engine": engine}
    tp = whole(read, "tp", "--tensor-parallel-size")
    groups = whole(read, "dp", "--data-parallel-size") or 1
    if tp is not None:
        values["tp"] = tp
    if groups > 1:
        values["attention_dp"] = groups
    if "ep" in read:
        values["ep"] = (tp or 1) * groups
    seqs = whole(read, "seqs", "--max-num-seqs")
    if seqs is not None:
        values["max_num_seqs"] = seqs * groups
    for name, key, flag in (
        ("tokens", "max_num_batched_tokens", "--max-num-batched-tokens"),
        ("k", "k", "--num-speculative-tokens"),
    ):
        number = whole(read, name, flag)
        if number is not None:
            values[key] = number
    budget = values.get("max_num_batched_tokens")
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
    fields: dict[str, Any] = {}
    for name, text in flags.dotted.items():
        field = name.split(".", 1)[1].replace("-", "_")
        if "." in field:
            raise FormatError(f"--command has --{name}; the fields of this JSON have no parts")
        try:
            fields[field] = json.loads(text)
        except (ValueError, RecursionError):
            fields[field] = text  # a word that is no JSON stands for itself, as in vLLM
    return json.dumps(fields)

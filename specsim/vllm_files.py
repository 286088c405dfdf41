"""What vLLM writes, for all who write the same: the buckets of its /metrics (0.32, Apache-2.0), and
parts of a result of `vllm bench serve --save-result` (0.33)."""

from collections.abc import Sequence

PERCENTILES = (50, 90, 95, 99)  # of a benchmark's latencies

_PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
                10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
              120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
BUCKETS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
    ),
    "inter_token_latency_seconds": _PER_TOKEN_S,
    "request_time_per_output_token_seconds": _PER_TOKEN_S,
    "e2e_request_latency_seconds": _REQUEST_S,
    "request_queue_time_seconds": _REQUEST_S,
    "request_inference_time_seconds": _REQUEST_S,
    "request_prefill_time_seconds": _REQUEST_S,
    "request_decode_time_seconds": _REQUEST_S,
    "iteration_tokens_total": (
        1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
    ),
}
"""Upper limits of the histograms by name, without `vllm:`; lengths have `length_buckets`."""


def length_buckets(limit: float) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... tokens, up to the context length."""
    steps = [float(m * 10**e) for e in range(10) for m in (1, 2, 5)]
    return tuple(step for step in steps if step <= limit) or (1.0,)


def latency_fields(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """mean, median, std and percentiles of a latency in ms; zeros where there is nothing."""
    import numpy as np

    ms = np.asarray(seconds, dtype=np.float64) * 1e3 if len(seconds) else np.zeros(1)
    return {
        f"mean_{name}_ms": float(ms.mean()),
        f"median_{name}_ms": float(np.median(ms)),
        f"std_{name}_ms": float(ms.std()),
        **{f"p{percent}_{name}_ms": float(np.percentile(ms, percent)) for percent in PERCENTILES},
    }


def acceptance_fields(
    drafts: int, drafted: int, accepted: int, rates: Sequence[float]
) -> dict[str, object]:
    """How drafts fared; nothing without any. Rate in percent, length with the bonus token; rates:
    share of the verify steps that accepted up to a position, () where it is not known."""
    if not drafts:
        return {}
    return {
        "spec_decode_acceptance_rate": 100.0 * accepted / drafted if drafted else 0.0,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        **({"spec_decode_per_position_acceptance_rates": list(rates)} if rates else {}),
    }

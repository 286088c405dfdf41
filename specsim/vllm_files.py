"""What vLLM writes, for all who write the same: the buckets of its /metrics (0.32, Apache-2.0), and
parts of a result of `vllm bench serve --save-result` (0.33)."""

from collections.abc import Sequence

from specsim.data import data_table

PERCENTILES = (50, 90, 95, 99)  # of a benchmark's latencies

BUCKETS = {
    name: tuple[float, ...](limits)
    for name, limits in data_table("catalog", "vllm_buckets.toml").items()
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

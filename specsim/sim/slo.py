"""Service level objectives: gates on percentiles of a run, and requests that meet them all.

A gate is METRIC_STATISTIC=LIMIT, for example ttft_p95=2, stream_tok_s_p10=15, e2el_p95=139,
tpot_mean=0.05, itl_p99=0.2, error_rate=0.01, stall_rate=0.02. Times are seconds. Rates of tokens
must be at least the limit, everything else at most.
"""

import math
from collections.abc import Mapping
from difflib import get_close_matches

from specsim.errors import UsageError
from specsim.sim.figures import LATENCY_STATISTICS, STREAM_STATISTICS, value_at

METRICS = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "itl": "itl_s",
    "e2el": "e2el_s",
    "queue": "queue_s",
    "stream_tok_s": "stream_tok_s",
}
COMPUTED = dict.fromkeys(METRICS, LATENCY_STATISTICS) | {"stream_tok_s": STREAM_STATISTICS}
ALIASES = {"e2e": "e2el", "latency": "e2el", "tok_s": "stream_tok_s"}
STATISTICS = sorted({*LATENCY_STATISTICS, *STREAM_STATISTICS})
PER_TOKEN = ("tpot", "itl", "stream_tok_s")  # what an answer of one token does not have
RATES = ("error_rate", "stall_rate")
AT_LEAST = ("stream_tok_s", "output_tok_s", "request_rate")
TOTALS = ("output_tok_s", "request_rate")


def parse_slo(text: str) -> dict[str, float]:
    """'ttft_p95=2,stream_tok_s_p10=15' as {gate: limit}; UsageError with near matches."""
    gates: dict[str, float] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, sign, limit = part.partition("=")
        if not sign:
            raise UsageError(f"SLO {part.strip()!r} has no limit; write it like ttft_p95=2")
        try:
            value = float(limit)
        except ValueError:
            raise UsageError(f"limit {limit!r} of SLO {name!r} is not a number") from None
        gate = canonical(name.strip())
        if gate in gates:
            raise UsageError(f"SLO {gate!r} is given twice; give each one limit")
        gates[gate] = value
    check_slo(gates)
    return gates


def canonical(name: str) -> str:
    """The gate's one spelling: '_s' in front of the statistic is optional."""
    if name in RATES or name in TOTALS:
        return name
    metric, _, statistic = name.rpartition("_")
    metric = ALIASES.get(metric, metric)
    for known in METRICS:
        if metric == f"{known}_s" and known not in AT_LEAST:
            metric = known
    metric = ALIASES.get(metric, metric)
    if metric not in METRICS or statistic not in STATISTICS:
        names = [f"{m}_{s}" for m in METRICS for s in COMPUTED[m]] + [*RATES, *TOTALS]
        bare = name if name in METRICS else name.removesuffix("_s")
        if bare in METRICS:  # of most requests, which is what an objective is about
            near = [f"{bare}_{'p10' if bare in AT_LEAST else 'p95'}"]
        else:
            near = get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UsageError(
            f"SLO {name!r} is not known{hint} SLOs are METRIC_STATISTIC of "
            f"{', '.join(METRICS)} and {', '.join(STATISTICS)}, or {', '.join(RATES + TOTALS)}"
        )
    if statistic not in COMPUTED[metric]:
        raise UsageError(f"SLO {name!r} is not known: {metric} has {', '.join(COMPUTED[metric])}")
    return f"{metric}_{statistic}"


def check_slo(gates: Mapping[str, float]) -> None:
    for name, limit in gates.items():
        canonical(name)
        if isinstance(limit, bool) or not math.isfinite(limit) or limit < 0:
            raise UsageError(f"limit {limit!r} of SLO {name!r} must be a number, 0 or more")


def judge(gates: Mapping[str, float], figures: Mapping[str, object]) -> dict[str, object]:
    """{'pass': bool, gate: {'value', 'limit', 'pass'}}. A value that the run could not reach
    (every request still waits) fails; that of a gate on the pace of tokens passes where requests
    finished and none had a second token."""
    paceless = bool(value_at(figures, "requests.finished"))
    out: dict[str, object] = {}
    passed = True
    for given, limit in gates.items():
        name = canonical(given)
        metric = name if name in RATES + TOTALS else name.rpartition("_")[0]
        path = name if metric == name else f"{METRICS[metric]}.{name.rpartition('_')[2]}"
        value = value_at(figures, path)
        if value is None:
            good = metric in PER_TOKEN and paceless
        else:
            good = value >= limit if metric in AT_LEAST else value <= limit
        out[name] = {"value": value, "limit": limit, "pass": good}
        passed = passed and good
    return {"pass": passed, **out}


def request_limits(gates: Mapping[str, float]) -> dict[str, float]:
    """Limits that a single request can meet or miss, by metric: the tightest of each."""
    limits: dict[str, float] = {}
    for given, limit in gates.items():
        metric = canonical(given).rpartition("_")[0]
        if metric in ("ttft", "tpot", "e2el", "queue"):
            limits[metric] = min(limit, limits.get(metric, math.inf))
        elif metric == "stream_tok_s":
            limits[metric] = max(limit, limits.get(metric, 0.0))
    return limits

"""Records of `specsim measure` against a profile: every point predicted, one comparison.

Kernel points, prompts and steps are priced by the latency model; serving runs (part H) simulated
with their own arrivals and lengths and the acceptance measured in them. Points that the profile was
fitted on are rows of the split 'fitted' (known by the run's id in the source lines of its kernel
tables) and judge nothing. Metrics: gemm_s, attention_s, sample_s, moe_s, launch_s, stream_s,
prefill_s, step_s, and of serving those of `run_serving.JUDGED`.
"""

from collections.abc import Sequence
from dataclasses import replace

from specsim.accuracy.compare import AccuracyReport, Row
from specsim.accuracy.run_serving import (
    JUDGED,
    ServingLoad,
    measured_figures,
    predict_serving,
    seeds_for,
    serving_system,
)
from specsim.calibrate.price import Models, RecordPricer
from specsim.calibrate.records import Measurement
from specsim.calibrate.samples import FitSample, faults, runs_seen, samples, split_of
from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import EngineProfile
from specsim.search import rising_root
from specsim.units import counted


def compare_records(
    records: Sequence[Measurement], profile: HardwareProfile, engine: EngineProfile, *,
    statistic: str = "median", keys_fitted: Sequence[str] = (), title: str = "",
    provenance: dict[str, object] | None = None,
) -> AccuracyReport:
    """Every record that can be predicted beside its prediction.

    keys_fitted: keys of further points that a fit used (steps that gave the engine's host time).
    UsageError when none can be predicted.
    """
    seen, also = runs_seen(profile), frozenset(keys_fitted)
    pricer = RecordPricer(profile, engine, Models())
    rows: list[Row] = []
    warnings = []
    unpriced: dict[str, int] = {}
    kept = samples((r for r in records if r.kind != "serving"), statistic)
    for reason, count in faults(kept).items():
        warnings.append(f"{counted(count, 'point')} left out: {reason}")
    for sample in kept:
        if sample.fault:
            continue
        predicted = pricer.seconds(sample.record)
        if predicted is None:
            unpriced[sample.record.kind] = unpriced.get(sample.record.kind, 0) + 1
            continue
        rows.append(_row(sample, predicted, seen, also))
    for record in records:
        if record.kind == "serving":
            rows += _serving_rows(record, profile, engine, pricer)
    for kind, count in unpriced.items():
        warnings.append(f"{counted(count, f'{kind} point')} not priced by the model")
    if not rows:
        raise UsageError(
            "no record can be predicted; the files hold none, or only of kinds the model does not "
            "price (a CPU's ceilings, sampling at a temperature)"
        )
    return AccuracyReport("records", title or f"records against {profile.name}", tuple(rows),
                      provenance or {}, (), tuple(warnings))


def _row(sample: FitSample, predicted: float, seen: set[str], also: frozenset[str]) -> Row:
    record = sample.record
    split = "fitted" if record.key in also else split_of(record, seen)
    return Row(name_of(record), f"{record.kind}_s", sample.seconds, predicted, split,
               spread=record.timing.spread / 2.563)


_NAMES = {
    "gemm": "{model} {matrix} m={m}", "attention": "{model} attention B={seqs} q={q_len} ctx={ctx}",
    "step": "{model} {method} B={seqs} k={k} ctx={ctx}",
    "prefill": "{model} prompt {new} after {cached}", "moe": "{model} experts, {tokens} tokens",
    "sample": "sample {mode} rows={rows} k={k}",
}


def name_of(record: Measurement) -> str:
    """A point in a few words."""
    if record.kind in _NAMES:
        return _NAMES[record.kind].format_map(record.shape)
    return " ".join(f"{key}={value}" for key, value in record.shape.items())


def load_of(record: Measurement) -> ServingLoad:
    """The load of a serving record."""
    s = record.shape
    arrivals = sorted(record.series["arrival_s"])
    first = arrivals[0]
    return ServingLoad(
        str(s["method"]), int(s["k"]), float(s["acceptance"]), int(s["max_num_seqs"]),
        int(s["prompt_len"]), int(s["output_len"]), tuple(at - first for at in arrivals),
    )


def _serving_rows(
    record: Measurement, profile: HardwareProfile, engine: EngineProfile, pricer: RecordPricer
) -> list[Row]:
    needed = {"arrival_s", "ttft_s", "tpot_s", "e2el_s"}
    if not needed <= set(record.series) or "tokens_per_step" not in record.values:
        return []
    s, run = record.shape, record.run
    assert run is not None
    dtype = str(s.get("dtype", "bf16"))
    spec = pricer.models.spec(run, str(s["model"]), dtype)
    load = load_of(record)
    if load.k:  # an n-gram lookup finds no draft in some steps: what was accepted is measured
        load = replace(load, alpha=rate_of(record.values["tokens_per_step"], load.k))
    system = serving_system(spec, profile, engine, load, dtype)
    predicted = predict_serving(system, load, seeds_for(load))
    measured = measured_figures(record.series, load.output_len, record.values["tokens_per_step"])
    share = float(s["load"])
    how = f"Poisson at {share:.0%} of capacity" if share else "all at once"
    name = f"{s['model']} serving {s['method']} k={s['k']}, {how}"
    return [Row(name, metric, measured[metric], predicted[metric], note="measured acceptance")
            for metric in JUDGED if metric != "tokens_per_step"]


def rate_of(tokens_per_step: float, k: int) -> float:
    """The i.i.d. acceptance rate under which k drafts give so many tokens per step on average:
    1 + a + ... + a^k."""
    return rising_root(lambda a: sum(a**i for i in range(k + 1)), tokens_per_step, 1.0)

"""Calibrates on the CPU records in `validation/measured/cpu` and judges the fit on whole steps.

Each run of `specsim measure` in the folder is fitted alone (kernel points and prompts) and judged
on its own whole steps and on those of the other runs: another time on the same machine, whose speed
drifts. The profile that is kept is fitted on the quietest run, the one with the smallest share of
samples left out by rule. Writes profile, engine, report with the ledger, comparison and README of
the folder. Two minutes:

    python validation/scripts/calibrate_cpu.py
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import MEASURED, read_json, table, write_json, write_text

from specsim.accuracy.compare import AccuracyReport
from specsim.accuracy.records import compare_records
from specsim.calibrate.price import Models, RecordPricer
from specsim.calibrate.records_fit import Outcome, calibrate, read_all
from specsim.calibrate.samples import FIT_PARTS, samples
from specsim.calibrate.write import report, write_outcome
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.summary import error_summary

FOLDER = MEASURED / "cpu"
RUNS = {
    "small-grid.jsonl": "`specsim measure --grid small` on an otherwise idle machine",
    "validate-run-records.jsonl": "the records of `specsim validate run --budget 20m`, full grid, "
    "two models, with other work at low priority beside it",
    "records.jsonl": "`specsim measure --grid full --budget 420s`; for minutes at a time both "
    "threads sat on one core (cpu/wall 1.0), which the rule for contended samples sees",
}
PROFILE = FOLDER / "calibrated.toml"
SERVED = FOLDER / "validate-run.json"  # of `specsim validate run`, where it was made
BARS = (0.08, 0.20)  # median and 90th percentile of whole steps that were not fitted


def fit(paths: Sequence[Path], leave_out: bool) -> Outcome:
    return calibrate(read_all(paths), load_profile("cpu-generic"), find_engine("specsim"),
                     PROFILE.stem, leave_out=leave_out)


def kept_share(path: Path) -> float:
    """Share of a run's kernel points and prompts that no rule leaves out."""
    found = samples(r for r in read_all([path]).records if r.part in FIT_PARTS)
    return sum(not sample.fault for sample in found) / len(found)


def cross_errors(outcome: Outcome, other: Path) -> list[float]:
    """Errors on the whole steps of another run, none of which the fit has seen."""
    assert outcome.engine is not None
    pricer = RecordPricer(outcome.profile, outcome.engine, Models())
    steps = samples(r for r in read_all([other]).records if r.kind == "step")
    return [pricer.step(s.record) / s.seconds - 1 for s in steps if not s.fault]


def row(name: str, errors: Sequence[float]) -> list[str]:
    found = error_summary(errors)
    assert found is not None
    return [
        name, str(found["count"]), percent(found["median_abs_error"]),
        percent(found["p90_abs_error"]), percent(found["bias"], "+"), percent(found["worst"], "+"),
    ]


def percent(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}%"


HEAD = ("", "points", "median", "p90", "bias", "worst")


def readme(outcome: Outcome, name: str, lines: list[list[str]], compared: AccuracyReport) -> str:
    run = outcome.data.headers[-1]
    made = report(outcome, points=False)
    out = [
        "# A two-core CPU, measured", "",
        f"{run.device.get('name')}, {run.device.get('cores')} cores, {run.threads} threads, torch "
        f"{run.software.get('torch')}. Written by `python validation/scripts/calibrate_cpu.py`.",
        "",
        *(f"- `{file}`: {what}." for file, what in RUNS.items() if (FOLDER / file).exists()), "",
        "`calibrated.toml` and `calibrated-engine.toml` are the fitted profile (kernel points and "
        f"prompts of the quietest run, `{name}`) and the decoder's own time per step; "
        "`calibration.json` says which points were fitted and which judge; `comparison.json` has "
        "every point of that run.", "",
        f"## Whole steps, not fitted (bars: median {BARS[0]:.0%}, 90th percentile {BARS[1]:.0%})",
        "", *table(HEAD, lines, left=True), "",
        "Plain, n-gram, head and draft-model steps, k 0 to 7, 1 to 32 sequences. A few steps of "
        "the smallest model gave the host's time and judge nothing.", "",
        "## Fitted points, and the same when their shape is left out", "",
        *table(HEAD, [
            *(row(f"fitted: {kind}", errors) for kind, errors in outcome.by_kind.items()),
            row("left-out shapes", [e for errors in outcome.groups.values() for e in errors]),
        ], left=True), "",
        f"Not seen by the data, kept from the prior: {', '.join(made['not_seen']) or 'nothing'}.",
    ]
    served = {k: v for k, v in compared.summary().items() if k not in ("step_s",)}
    if served:
        out += ["", "## Serving of `specsim measure` (part H), simulated with its own arrivals", ""]
        out += table(("", "runs", "median", "worst"), [
            [name, str(item["count"]), percent(item["median_abs_error"]),
             percent(item["worst"], "+")]
            for name, item in served.items()
        ], left=True)
    return "\n".join([*out, *run_lines(), *left_out_lines(made)]) + "\n"


def run_lines() -> list[str]:
    """What `specsim validate run` found, predicted before it was served."""
    if not SERVED.exists():
        return []
    found = read_json(SERVED)
    plan = found["provenance"]["plan"]
    out = ["", "## `specsim validate run`: predicted first, then measured", "",
           f"{', '.join(plan['models'])}; {plan['repeats']} repeats of each load.", ""]
    out += table(("situation", "figure", "measured", "predicted", "error", "spread"), [
        [item["name"], item["metric"], f"{item['measured']:.4g}", f"{item['predicted']:.4g}",
         percent(item["error"], "+"), "-" if item["spread"] is None else percent(item["spread"])]
        for item in found["rows"]
        if item["metric"] in ("output_tok_s", "tpot_s_p50", "ttft_s_p95", "tokens_per_step")
    ], left=True)
    return [*out, "", *table(("metric", "rows", "median", "p90", "bias"), [
        [name, str(item["count"]), percent(item["median_abs_error"]),
         percent(item["p90_abs_error"]), percent(item["bias"], "+")]
        for name, item in found["summary"].items()
    ], left=True)]


def left_out_lines(made: dict[str, Any]) -> list[str]:
    return ["", "## Left out, by rule", "",
            *(f"- {count}: {reason}" for reason, count in made["excluded"].items())]


def main() -> None:
    paths = [FOLDER / name for name in RUNS if (FOLDER / name).exists()]
    quietest = max(paths, key=kept_share)
    outcome = fit([quietest], leave_out=True)
    write_outcome(outcome, PROFILE)
    made = report(outcome)
    write_json(FOLDER / "calibration.json", made)
    lines = []
    for path in paths:
        alone = outcome if path == quietest else fit([path], leave_out=False)
        lines.append(row(f"fitted on `{path.name}`, its own steps", alone.step_errors))
        for other in paths:
            if other != path:
                name = f"fitted on `{path.name}`, steps of `{other.name}`"
                lines.append(row(name, cross_errors(alone, other)))
    assert outcome.engine is not None
    compared = compare_records(
        outcome.data.records, outcome.profile, outcome.engine,
        keys_fitted=made["ledger"]["fitted_host_time"], title="CPU records",
        provenance={"command": "python validation/scripts/calibrate_cpu.py",
                    "files": [quietest.name], "device": made["device"],
                    "software": made["software"], "dates": made["dates"],
                    "git_shas": made["git_shas"]},
    )
    compared.write(FOLDER / "comparison.json")
    write_text(FOLDER / "README.md", readme(outcome, quietest.name, lines, compared))


if __name__ == "__main__":
    main()

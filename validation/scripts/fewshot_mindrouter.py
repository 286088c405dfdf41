"""MindRouter: vLLM's overheads for gemma-4-31b from the idle server and one saturated stage.

    python validation/scripts/fewshot_mindrouter.py [--replications 4] [--dry]

Fitted, and fixed before any fit was made: the idle server's time per token (150 tok/s) and time to
first token (0.1 s), and of the stage of 48 streams its throughput and the median rate of a stream.
Predicted by simulation with the fitted engine: the stages of 144, 180 and 216 people and of 64
streams of validation/data/mindrouter_chat_capacity.json, and what the fit did not use of its own
two stages (tails, cadence, queue).

The simulation is the judge, so it is also what is fitted: the slopes of the fit are those of the
analytic model, its level is the simulation's (measured values are multiplied by analytic /
simulated at the start, and once more at the result of a first fit).
"""

import argparse
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common import REPORTS, read_json, table, write_json
from serving_report import number, signed
from simulate_mindrouter import DATA, FIGURES, figures, run, system_of

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.calibrate.fewshot import FewShotFit, FewShotPoint, fit, predict_point
from specsim.calibrate.fewshot_priors import PRIORS, Priors
from specsim.latency.engine_profile import EngineProfile
from specsim.sim.scenario import find_scenario

SATURATED = "saturation 48"
FITTED = {"idle": ("tok_s_p50", "ttft_p50_s"), SATURATED: ("agg_tok_s", "tok_s_p50")}
ROUNDS = 2
IDLE_REPLICATIONS = 48  # a stage of one user has five turns: many are needed for a median
OUT = REPORTS / "fewshot_mindrouter.json"  # fewshot.py makes the text from it


def stages() -> dict[str, tuple[int, bool, dict[str, float]]]:
    """Name -> (users or streams, whether they pause, measured figures)."""
    report = read_json(DATA)
    idle = report["idle"]
    out = {"idle": (1, True, {
        "tok_s_p50": float(idle["stream_tok_s"]), "ttft_p50_s": idle["ttft_p50_s"],
        "chunk_cadence_ms": float(idle["chunk_cadence_ms"]),
    })}
    for row in report["measured"]:
        chat = row["mode"] == "chat"
        users = row["users"] if chat else row["streams"]
        found = {key: float(row[key]) for key in FIGURES if key in row}
        out[f"{row['mode']} {users}"] = (users, chat, found)
    return out


def simulated(system: System, name: str, replications: int) -> dict[str, float]:
    """Median over replications of a stage's figures, with its mean lengths."""
    users, pause, _ = stages()[name]
    scenario = find_scenario("mindrouter-chat")
    runs = []
    for seed in range(max(replications, IDLE_REPLICATIONS) if name == "idle" else replications):
        result = run(scenario, system, users, pause, seed)
        found = figures(result)
        records = result.records
        prompt = records.ints("prompt_tokens")
        found["prompt"] = float(prompt.mean())
        found["cached"] = float(records.ints("cached_tokens").sum() / prompt.sum())
        tokens = records.ints("output_tokens")
        found["output"] = float(tokens[tokens > 1].mean())
        runs.append(found)
    return {key: statistics.median(one[key] for one in runs) for key in runs[0]}


def level(
    system: System, name: str, found: Mapping[str, float]
) -> tuple[FewShotPoint, dict[str, float]]:
    """(the stage as an analytic point without measurements, simulated values of its metrics)."""
    users, _, _ = stages()[name]
    load = Workload(round(found["prompt"]), round(found["output"]), min(0.95, found["cached"]))
    sim = {"tpot_s": 1 / found["tok_s_p50"]}
    if name == "idle":
        sim["ttft_s"] = found["ttft_p50_s"]
    else:
        sim["output_tok_s"] = found["agg_tok_s"]
    return FewShotPoint(name, system, load, float(users), {}), sim


def measured_of(name: str) -> dict[str, float]:
    found = stages()[name][2]
    if name == "idle":
        return {"tpot_s": 1 / found["tok_s_p50"], "ttft_s": found["ttft_p50_s"]}
    return {"tpot_s": 1 / found["tok_s_p50"], "output_tok_s": found["agg_tok_s"]}


def calibrate(
    start: System, at: System, levels: Mapping[str, Mapping[str, float]], priors: Priors
) -> FewShotFit:
    """Fit of the two stages from `start`, with the simulation's level as found for `at`."""
    points = []
    for name in FITTED:
        point, sim = level(start, name, levels[name])
        analytic = predict_point(point, at)
        # A throughput of streams that never pause and their rates tell the same seconds.
        measured = {
            metric: value * analytic[metric] / sim[metric]
            for metric, value in measured_of(name).items()
        }
        points.append(replace(point, measured=measured))
    return fit(points, start.engine, priors)


def on(system: System, engine: EngineProfile) -> System:
    return replace(system, engine=engine)


def run_all(replications: int, priors: Priors = PRIORS) -> dict[str, Any]:
    start = system_of(find_scenario("mindrouter-chat"))
    system, result = start, None
    before = {name: simulated(start, name, replications) for name in stages()}
    levels = {name: before[name] for name in FITTED}
    for turn in range(ROUNDS):
        result = calibrate(start, system, levels, priors)
        system = on(start, result.engine)
        if turn + 1 < ROUNDS:
            levels = {name: simulated(system, name, replications) for name in FITTED}
    assert result is not None
    after = {name: simulated(system, name, replications) for name in stages()}
    return {
        "replications": replications,
        "parameters": {e.name: {"before": e.before, "value": e.value, "sd": e.sd,
                                "moved": e.moved} for e in result.estimates},
        "stages": {
            name: {"measured": measured, "before": before[name], "after": after[name],
                   "fitted": list(FITTED.get(name, ()))}
            for name, (_, _, measured) in stages().items()
        },
    }


def lines(data: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, stage in data["stages"].items():
        for figure, value in stage["measured"].items():
            if not value or figure not in stage["after"]:
                continue
            before, after = stage["before"][figure], stage["after"][figure]
            rows.append([
                name, figure, "fitted" if figure in stage["fitted"] else "predicted",
                number(value), number(before), number(after), signed(before / value - 1),
                signed(after / value - 1),
            ])
    moved = [
        f"{name} {item['before']:.3g} -> {item['value']:.3g}"
        for name, item in data["parameters"].items() if item["moved"]
    ]
    judged = {
        when: statistics.median(
            abs(stage[when][figure] / value - 1)
            for stage in data["stages"].values()
            for figure, value in stage["measured"].items()
            if value and figure in stage[when] and figure not in stage["fitted"]
        )
        for when in ("before", "after")
    }
    return [
        "## MindRouter, gemma-4-31b on one H200",
        "",
        "Fitted on the idle server (time per token, time to first token) and the stage of 48 "
        "streams (throughput, median rate of a stream); everything else predicted by simulation, "
        f"median of {data['replications']} replications ({IDLE_REPLICATIONS} of the idle server). "
        "Before: the engine profile as it ships.",
        "",
        *table(("stage", "figure", "", "measured", "before", "after", "error before",
                "error after"), rows),
        "",
        f"Median error of the predicted figures: {judged['before']:.1%} before, "
        f"{judged['after']:.1%} after. Moved: {'; '.join(moved) or 'nothing'}.",
        "",
        "The stage of 48 streams states its throughput and the rate of a stream, which do not "
        "agree exactly, so that a fit gives in to both. TTFT of 180 people, at the edge of "
        "capacity, is the one figure far off, before and after: it differs severalfold between "
        "replications (validation/reports/serving.md), and a percent of throughput decides on "
        "which side of the edge a run stays.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    data = run_all(options.replications)
    sys.stdout.write("\n".join(lines(data)) + "\n")
    if not options.dry:
        write_json(OUT, data)


if __name__ == "__main__":
    main()

"""Regenerates every accuracy figure that the repository shows.

Run from the checkout: `python validation/scripts/make_report.py` (about a minute). Writes
    validation/reports/report.md   errors per set, bars, MindRouter, mixed steps, skipped rows
    catalog/residuals.json         the residuals behind every 90 % interval
    README.md                      the table between the accuracy markers
from the public measurements under `validation/`, the kernel fit report and the ledger. Rows of
the groups that the ledger lists as fitted are kept out of the residuals and of the judged errors.
"""

import math
import sys
from collections import Counter, defaultdict
from typing import Any

from common import (
    CATALOG,
    DATA,
    LEDGER,
    PUBLISHED,
    REPORTS,
    ROOT,
    SILICON,
    read_csv,
    read_json,
    replace_between,
    write_json,
    write_text,
)
from common import table as table_lines
from fit_engines import group_of

from specsim.accuracy.score import read_rows, score_rows
from specsim.accuracy.scored import Scored, ScoreReport
from specsim.analytic.closed import closed_loop
from specsim.analytic.intervals import MIN_RESIDUALS, coarser
from specsim.analytic.mindrouter import predict_table
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.model.catalogue import find_model
from specsim.report.doc import Doc
from specsim.report.mindrouter import mindrouter_blocks
from specsim.report.scores import NAMES, error_cell
from specsim.report.text import section_text

MIXED = DATA / "aic_issue1150_h200_mixstep.csv"
MIN_SETS = 2
# Median TPOT error of aiconfigurator 0.12.0 on the same H200 collection, as published by its own
# corpus evaluation: the bar of each set that it names.
PEER = {
    "Llama-3.1-70B|vllm": 0.05,
    "Llama-3.1-8B-Instruct|sglang": 0.16,
    "DeepSeek-R1|sglang": 0.64,
    "Qwen3-235B-A22B-FP8|vllm": 0.99,
}


def judged_part(report: ScoreReport, fitted: set[str]) -> tuple[ScoreReport, ScoreReport]:
    """(rows that no fit has seen, rows of fitted groups)."""
    side = {c.row_id: group_of(c) in fitted for c in report.cases}
    parts = []
    for wanted in (False, True):
        part = ScoreReport(rows=report.rows, skipped=report.skipped)
        part.cases = [c for c in report.cases if side[c.row_id] is wanted]
        part.scores = [s for s in report.scores if side[s.row_id] is wanted]
        part.predicted = len(part.cases)
        parts.append(part)
    return parts[0], parts[1]


def residual_table(scores: list[Scored], widen: dict[str, float]) -> dict[str, Any]:
    """quantity -> class -> {n, sets, q05, q95} of ln(measured / predicted).

    Every set weighs the same: rows of one set share its peculiarities. q05 and q95 are the 5 % and
    95 % quantiles, their distance from the median stretched by widen[quantity] (see
    `calibrated_widening`). A class needs MIN_RESIDUALS values from at least MIN_SETS sets.
    """
    pools: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for s in scores:
        for klass in coarser(s.klass):
            pools[s.quantity, klass].append((math.log(s.measured / s.predicted), s.set_id))
    out: dict[str, Any] = {}
    for (quantity, klass), values in sorted(pools.items()):
        sizes = Counter(name for _, name in values)
        if len(values) < MIN_RESIDUALS or len(sizes) < MIN_SETS:
            continue
        weighted = sorted((value, 1 / sizes[name]) for value, name in values)
        middle = quantile(weighted, 0.5)
        stretch = widen.get(quantity, 1.0)
        out.setdefault(quantity, {})[klass] = {
            "n": len(values),
            "sets": len(sizes),
            "q05": round(middle + stretch * (quantile(weighted, 0.05) - middle), 5),
            "q95": round(middle + stretch * (quantile(weighted, 0.95) - middle), 5),
        }
    return out


def quantile(weighted: list[tuple[float, float]], share: float) -> float:
    """Weighted quantile of sorted (value, weight) pairs: the value at which `share` is reached."""
    total = sum(weight for _, weight in weighted)
    reached = 0.0
    for value, weight in weighted:
        reached += weight
        if reached >= share * total:
            return value
    return weighted[-1][0]


def calibrated_widening(scores: list[Scored]) -> dict[str, float]:
    """Per quantity the least stretch at which intervals made without a set's own residuals hold
    90 % of what that set measured, over all sets: a new set has peculiarities that the others do
    not show, and without this the intervals would promise more than they keep."""
    out: dict[str, float] = {}
    for quantity in sorted({s.quantity for s in scores}):
        mine = [s for s in scores if s.quantity == quantity]
        for tenths in range(10, 41):
            out[quantity] = tenths / 10
            if coverage_without_own_set(mine, out)[0] >= 0.9:
                break
    return out


def coverage_without_own_set(scores: list[Scored], widen: dict[str, float]) -> tuple[float, int]:
    """Share of measurements inside the interval made from the OTHER sets' residuals alone."""
    hits = total = 0
    for name in sorted({s.set_id for s in scores}):
        table = residual_table([s for s in scores if s.set_id != name], widen)
        for s in (s for s in scores if s.set_id == name):
            for klass in coarser(s.klass):
                entry = table.get(s.quantity, {}).get(klass)
                if entry:
                    total += 1
                    hits += entry["q05"] <= math.log(s.measured / s.predicted) <= entry["q95"]
                    break
    return (hits / total if total else float("nan")), total


def mixed_steps() -> list[list[str]]:
    """The mixed prefill and decode steps of aiconfigurator issue 1150 (H200, vLLM 0.18, Qwen3-8B
    as its fix names): `batch - 1` sequences decode while one prompt of `isl` tokens is computed."""
    rows = []
    latency = System(
        find_model("qwen3-8b"), load_profile("h200"), find_engine("vllm", "0.18")
    ).latency
    for row in read_csv(MIXED):
        isl, batch = int(row["isl"]), int(row["batch"])
        shape = StepShape(batch - 1, 1, (batch - 1) * float(isl), (PrefillChunk(isl),))
        found, measured = latency.seconds(shape) * 1e3, float(row["mix_step_measured_ms"])
        peer = float(row["mix_step_aic_predicted_ms"])
        rows.append(
            [str(isl), str(batch), f"{measured:.2f}", f"{found:.2f}",
             f"{found / measured - 1:+.0%}", f"{peer / measured - 1:+.0%}"]
        )
    return rows


def endpoint_rows() -> list[list[str]]:
    """The six MindRouter endpoints, predicted beside reported."""
    rows = []
    for r in predict_table():
        setup = r.prediction.system.setup
        assumed = " (assumed)" if r.acceptance_assumed else ""
        rows.append(
            [r.name, r.weights, f"{setup.method} k={setup.k}",
             f"{r.prediction.acceptance_length:.2f}{assumed}", f"{r.speedup:.2f}x",
             f"{r.reported_speedup:.1f}x", f"{r.error:+.0%}"]
        )
    return rows


def k_sweep() -> list[list[str]]:
    """MR27: step = acceptance length / tokens per second of one stream, per draft length."""
    measured = {1: 1.93 / 131, 2: 2.68 / 179, 3: 3.18 / 211}
    first = predict_table()[0].prediction
    plain = closed_loop(first.system.plain(), Workload(650, 256), 1).step_s
    rows = [["plain", f"{1e3 / 87:.1f}", f"{plain * 1e3:.1f}", f"{plain * 87 - 1:+.0%}"]]
    for k, seconds in measured.items():
        step = closed_loop(first.system.with_(k=k), Workload(650, 256), 1).step_s
        rows.append([f"k = {k}", f"{seconds * 1e3:.1f}", f"{step * 1e3:.1f}",
                     f"{step / seconds - 1:+.0%}"])
    return rows


def md_table(headers: list[str], rows: list[list[str]]) -> str:
    return "\n".join(table_lines(headers, rows, left=True))


def set_rows(result: dict[str, Any]) -> list[list[str]]:
    out = []
    for name, scores in [("**all**", result["overall"]), *result["sets"].items()]:
        sign = scores["sign_right"]
        out.append(
            [name.replace("|", " / "), *(error_cell(Doc(scores[q])) for q in NAMES),
             "-" if sign is None else f"{sign:.0%} of {scores['sign_n']}"]
        )
    return out


def bar_rows(published: dict[str, Any], silicon: dict[str, Any]) -> list[list[str]]:
    """Each bar, its value over all rows, met or missed."""
    overall, sil = published["overall"], silicon["overall"]
    endpoints = predict_table()
    worst = max(abs(row.error) for row in endpoints)
    sweep = max(abs(float(row[3].rstrip("%"))) / 100 for row in k_sweep())
    mixed = max(abs(float(row[4].rstrip("%"))) / 100 for row in mixed_steps())
    bars = [
        ("step-cost ratio r, median, rows with acceptance given",
         overall["step_cost_ratio"]["median_abs_error"], 0.15, False),
        ("speedup, median, rows with acceptance given",
         overall["speedup"]["median_abs_error"], 0.12, False),
        ("sign of the gain right", overall["sign_right"], 0.93, True),
        ("plain TPOT on the H200 end-to-end points, median",
         sil["tpot"]["median_abs_error"], 0.15, False),
        ("MindRouter, worst of six speedups", worst, 0.12, False),
        ("MindRouter qwen3.6-27b, worst step of the k sweep", sweep, 0.10, False),
        ("mixed prefill and decode steps, worst", mixed, 0.15, False),
    ]
    for name, peer in PEER.items():
        if name in silicon["sets"]:
            value = silicon["sets"][name]["tpot"]["median_abs_error"]
            bars.append((f"TPOT on {name.replace('|', ' / ')}, peer's median", value, peer, False))
    rows = []
    for text, value, bar, higher in bars:
        met = value >= bar if higher else value <= bar
        rows.append([text, f"{value:.1%}", f"{bar:.0%}", "met" if met else "**missed**"])
    return rows


def main() -> None:
    ledger = read_json(LEDGER)
    fitted = set(ledger["fitted"])
    published = score_rows(read_rows(PUBLISHED))
    silicon = score_rows(read_rows(SILICON))
    everything = ScoreReport(rows=published.rows + silicon.rows)
    everything.scores = published.scores + silicon.scores
    judged_p, fitted_p = judged_part(published, fitted)
    judged_s, fitted_s = judged_part(silicon, fitted)
    judged_scores = judged_p.scores + judged_s.scores
    widen = calibrated_widening(judged_scores)
    residuals = {
        "source": "validation/scripts/make_report.py: ln(measured / predicted) over public rows "
        "that no fit has seen, every set weighing the same",
        "stretched_by": widen,
        "quantities": residual_table(judged_scores, widen),
    }
    write_json(CATALOG / "residuals.json", residuals)
    coverage, covered = coverage_without_own_set(judged_scores, widen)
    everything_p, everything_s = published.to_dict(), silicon.to_dict()
    bars = bar_rows(everything_p, everything_s)
    headers = ["set", *NAMES.values(), "sign right"]
    text = f"""# Accuracy of the predictions

Written by `python validation/scripts/make_report.py`; do not edit. Every cell is
median / 90th percentile of the relative error (bias, number of values), predicted over measured.
Sets are the `set_id` column of `data/published/published_measurements.csv`, whose rows name their
sources (SPECB: SpecBundle on H200s, VLLMK: a k sweep of vLLM, CKBK: SGLang's cookbook, ...).

## Bars

{md_table(["bar", "value", "limit", ""], bars)}

The values above are over all rows that can be predicted, whether a group served to fit engine
overheads or not; the two tables below keep them apart. 90 % intervals made from the residuals of
the other sets alone hold {coverage:.0%} of {covered} measurements; they are stretched for that, by
{", ".join(f"{v:g} for {k}" for k, v in widen.items())} (`calibrated_widening`).

## Rows no fit has seen

{md_table(headers, set_rows(judged_p.to_dict()))}

H200 end-to-end points, plain serving:

{md_table(headers, set_rows(judged_s.to_dict()))}

## Rows of the groups that engine overheads were fitted on

{md_table(headers, set_rows(fitted_p.to_dict()))}

{md_table(headers, set_rows(fitted_s.to_dict()))}

## MindRouter cluster (never fitted)

{md_table(["model", "weights", "method", "acceptance length", "predicted", "reported", "error"],
          endpoint_rows())}

Assumptions are in `catalog/mindrouter.toml`. Steps of qwen3.6-27b by draft length, one stream, ms:

{md_table(["", "measured", "predicted", "error"], k_sweep())}

## Mixed prefill and decode steps (H200, vLLM 0.18, Qwen3-8B)

{md_table(["prompt", "batch", "measured ms", "predicted ms", "error", "aiconfigurator"],
          mixed_steps())}

The measured column cannot be one step that computes the whole prompt: 4096 prompt tokens of an 8B
model are 62 TFLOP, 62 ms at the peak of an H200 in bf16, and 31 ms were measured. What the steps of
that source held is not known; both predictions price the whole prompt.

## Kernels

How the kernel tables were fitted and how far they are off: [kernel_fit.md](kernel_fit.md); how far
they carry over to other devices: [transfer.md](transfer.md).

## Rows that are not predicted

{md_table(["reason", "rows"], [[k, str(v)] for k, v in published.skipped.most_common()])}
"""
    write_text(REPORTS / "report.md", text)
    write_readme(bars, coverage, covered)
    sys.stdout.write(md_table(["bar", "value", "limit", ""], bars) + "\n")


def write_readme(bars: list[list[str]], coverage: float, covered: int) -> None:
    """Puts the bars, and the output of `specsim predict`, between the README's markers."""
    path = ROOT / "README.md"
    body = md_table(["predicted against measured", "error", "aim", ""], bars)
    body += (
        f"\n\n90 % intervals made from the other sets' residuals hold {coverage:.0%} of {covered} "
        "public measurements."
    )
    shown = "```\n" + section_text(mindrouter_blocks(predict_table())) + "\n```"
    for name, block in (("accuracy", body), ("output", shown)):
        replace_between(path, f"<!-- {name}:begin -->\n", f"{block}\n", f"<!-- {name}:end -->")


if __name__ == "__main__":
    main()

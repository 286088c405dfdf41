"""Regenerates every accuracy figure that the repository shows.

Run from the checkout: `python validation/scripts/make_report.py` (about two minutes). Writes
    validation/reports/report.md   errors per source and set, coverage, further checks, skipped rows
    catalog/residuals.json         every 90% interval, by quantity and class
    README.md                      the table between the accuracy markers, outputs of `predict`
from the public measurements under `validation/`, and from what fits without each source predict of
it (`reports/loso.json`, by fit_engines.py).
"""

import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

from common import (
    CATALOG,
    DATA,
    LOSO,
    PUBLISHED,
    PUBLISHED_2,
    REPORTS,
    ROOT,
    SILICON,
    read_csv,
    read_json,
    replace_between,
    write_lines_json,
    write_text,
)
from common import table as table_lines
from fit_engines import scored
from missed_bars import HEADERS, miss_rows
from residual_intervals import intervals

from specsim.accuracy.score import read_rows, score_rows
from specsim.accuracy.scored import KINDS, Scored, by_source, errors_of, kind_of, signs
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.mindrouter import table as mindrouter_table
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.model.catalogue import find_model
from specsim.report.doc import Doc
from specsim.report.scores import KIND_NAMES, NAMES, error_cell

MIXED = DATA / "aic_issue1150_h200_mixstep.csv"
# Aims: median of source medians / worst source of five values or more.
AIMS = {"step_cost_ratio": "8% / 18%", "speedup": "8% / 20%", "ttft": "25%"}
HEADLINE = ["predicted against measured", "source left out: median of source medians; worst",
            "sources", "aim", "in sample"]
H200_SETS = (
    "DeepSeek-R1|sglang", "Llama-3.1-70B|vllm", "Llama-3.1-8B-Instruct|sglang",
    "Qwen3-235B-A22B-FP8|vllm", "gpt-oss-120b|trtllm",
)
# Median TPOT error of aiconfigurator 0.12.0 on the same H200 collection, as published by its own
# corpus evaluation: the bar of each set that it names.
PEER = {
    "Llama-3.1-70B|vllm": 0.05,
    "Llama-3.1-8B-Instruct|sglang": 0.16,
    "DeepSeek-R1|sglang": 0.64,
    "Qwen3-235B-A22B-FP8|vllm": 0.99,
}


def kept_scores() -> list[Scored]:
    """Every judged value, predicted by the fit that has not seen its source."""
    kept = read_json(LOSO)
    return scored(kept["values"], "predicted")


def source_cell(found: dict[str, Any]) -> str:
    """Median of source medians, with the worst source."""
    if found["median_of_medians"] is None:
        return "-"
    worst = found["worst_source"]
    shown = f"; {worst} {found['worst_median']:.1%}" if worst else ""
    return f"{found['median_of_medians']:.1%}{shown}"


def headline(left_out: list[Scored], shipped: list[Scored]) -> list[list[str]]:
    """What holds for the next source, then the same in sample."""
    unseen, seen = by_source(left_out), by_source(shipped)
    rows = [
        [KIND_NAMES[kind], source_cell(unseen[kind]), str(unseen[kind]["sources"]),
         AIMS.get(kind, ""), source_cell(seen[kind])]
        for kind in KINDS
    ]
    points = [median_of_sets(some) for some in (left_out, shipped)]
    rows.append(["plain TPOT of the H200 points, median of its sets", f"{points[0]:.1%}",
                 str(len(H200_SETS)), "9%", f"{points[1]:.1%}"])
    unseen_signs, seen_signs = signs(left_out), signs(shipped)
    for name, aim in (("gains", "97%"), ("losses", "80%")):
        rows.append([f"{name} beyond 5% predicted as such", sign_cell(unseen_signs[name]), "", aim,
                     sign_cell(seen_signs[name])])
    return rows


def sign_cell(found: Any) -> str:
    return f"{found['right']:.0%} of {found['n']}" if found["n"] else "-"


def median_of_sets(scores: list[Scored]) -> float:
    parts = defaultdict(list)
    for s in scores:
        if s.set_id in H200_SETS and s.quantity == "tpot":
            parts[s.set_id].append(abs(s.error))
    return statistics.median(statistics.median(part) for part in parts.values())


def source_rows(scores: list[Scored]) -> list[list[str]]:
    """Per source and kind: median error (bias, values)."""
    parts: dict[str, list[Scored]] = defaultdict(list)
    for s in scores:
        parts[s.source].append(s)
    rows = []
    for name in sorted(parts):
        cells = []
        for kind in KINDS:
            errors = errors_of([s.error for s in kind_of(parts[name], kind)])
            cells.append(error_cell(Doc(dict(errors))))
        rows.append([name.replace("|", " / "), *cells])
    return rows


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
    for r in mindrouter_table().endpoints:
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
    first = mindrouter_table().endpoints[0].prediction
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


def bar_rows(silicon: dict[str, Any]) -> list[list[str]]:
    """What is checked with the shipped constants alone, met or missed."""
    endpoints = mindrouter_table().endpoints
    worst = max(abs(row.error) for row in endpoints)
    sweep = max(abs(float(row[3].rstrip("%"))) / 100 for row in k_sweep())
    mixed = max(abs(float(row[4].rstrip("%"))) / 100 for row in mixed_steps())
    bars = [
        ("MindRouter (never fitted), worst of six speedups", worst, 0.12),
        ("MindRouter qwen3.6-27b, worst step of the k sweep", sweep, 0.10),
        ("mixed prefill and decode steps, worst", mixed, 0.15),
        *((f"TPOT on {name.replace('|', ' / ')}, in sample; peer's median",
           silicon["sets"][name]["tpot"]["median_abs_error"], peer)
          for name, peer in PEER.items() if name in silicon["sets"]),
    ]
    return [
        [text, f"{value:.1%}", f"{bar:.0%}", "met" if value <= bar else "**missed**"]
        for text, value, bar in bars
    ]


def main() -> None:
    published = score_rows(read_rows(PUBLISHED) + read_rows(PUBLISHED_2), keep_cases=False)
    silicon = score_rows(read_rows(SILICON), keep_cases=False)
    left_out = kept_scores()
    document, coverage = intervals()
    write_lines_json(CATALOG / "residuals.json", document, 3)
    bars = bar_rows(silicon.to_dict())
    head = headline(left_out, published.scores + silicon.scores)
    headers = ["set", *NAMES.values(), "sign right"]
    used = ", ".join(
        f"{name} {found['plain']:g} plain and {found['speculative']:g} speculative"
        if name in ("tpot", "ttft") else f"{name} {found['speculative']:g}"
        for name, found in document["scales_to_an_end"].items()
    )
    text = f"""# Accuracy of the predictions

Written by `python validation/scripts/make_report.py`; do not edit. A source is who measured
(`catalog/sources.toml`); figures lead with what holds for the next one: every source is predicted
by a fit of the engines' overheads that has not seen it (`fit_engines.py`, kept in `loso.json`), and
the figure is the median over the sources' median errors, whatever their number of rows.

## The next source

{md_table(HEADLINE, head)}

Further checks, with the shipped constants:

{md_table(["", "error", "aim", ""], bars)}

## Where bars are missed

What the residuals show, how much of the median it is, and which measurement would settle it
(`missed_bars.py`).

{md_table(HEADERS, miss_rows(left_out))}

On the cluster, qwen3.5-122b is reported at 2.0x with 2.43 tokens per step: a verify step of 1.21
plain ones. Two passes of its MTP layer and 2.3 times the experts of a plain step come to 1.5 here;
its step times at k = 0, 1, 2 with one client, from the server's log, would say which of them holds.

## Sources, each predicted without itself

Every cell is median / 90th percentile of the relative error (bias, number of values), predicted
over measured.

{md_table(["source", *(KIND_NAMES[kind] for kind in KINDS)], source_rows(left_out))}

## 90% intervals

A mixed model of the residuals above (`residual_model.py`) gives the interval of a further source by
class. Checked by leaving each source out of that model as well: the share of its values inside,
every value and every source weighing alike. The intervals end so many scales from their middle:
{used}.

{md_table(["quantity", "class", "of values", "values", "of sources", "sources"], coverage)}

## In sample: the shipped constants

Sets are the `set_id` column of `data/published/`, whose rows name their sources.

{md_table(headers, set_rows(published.to_dict()))}

H200 end-to-end points, plain serving:

{md_table(headers, set_rows(silicon.to_dict()))}

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
    write_readme(head, bars, coverage)
    sys.stdout.write(md_table(HEADLINE, head) + "\n\n" + md_table(
        ["", "error", "aim", ""], bars) + "\n")


def write_readme(
    head: list[list[str]], bars: list[list[str]], coverage: list[list[str]]
) -> None:
    """Puts the figures, and the outputs of `specsim predict`, between the README's markers."""
    path = ROOT / "README.md"
    body = f"{md_table(HEADLINE, head)}\n\n{md_table(['further checks', 'error', 'aim', ''], bars)}"
    inside = ", ".join(
        f"{KIND_NAMES[row[0]]} {row[2]} ({row[4]})" for row in coverage if row[1] == "all"
    )
    body += (
        "\n\n90% intervals made without the source that they are held against hold, of values (of "
        f"sources): {inside}."
    )
    replace_between(path, "<!-- accuracy:begin -->\n", f"{body}\n", "<!-- accuracy:end -->")
    write_text(path, OUTPUT.sub(
        lambda match: match[0].removesuffix(match["old"]) + printed(match["command"]),
        path.read_text(encoding="utf-8")))


# A command alone or last in its block, and what the README shows of its output.
OUTPUT = re.compile(r"^(?P<command>specsim predict[^\n]*)\n```\n[^`]*<!-- output:begin -->\n```\n"
                    r"(?P<old>[^`]*)", re.MULTILINE)


def printed(command: str) -> str:
    """The verdict and the first table of a prediction; all of any other output."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, check=True, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1"},
    )
    verdict, *parts = done.stdout.rstrip("\n").split("\n\n")
    table = next((part for part in parts if part.startswith("clients")), None)
    return f"{done.stdout.rstrip()}\n" if table is None else f"{verdict}\n...\n{table}\n...\n"


if __name__ == "__main__":
    main()

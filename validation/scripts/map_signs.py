"""Is the sign of the map right: does speculation pay at that batch and context?

    python validation/scripts/map_signs.py [--write]

Fixed before looking:
1. A cell is a public row with a measured gain (stated, else of times per token, else of rates), at
   one draft length, batch and length of prompt. It is predicted as `tune --by batch,context`
   predicts a cell, with the overheads of a fit that has not seen its source (loso.json); a burst
   that overflows the cache is simulated, as in `validate published`.
2. Right is a prediction on the measured side of 1. Cells within 2% of 1 are counted apart.
3. Headline: the median over the sources of the share that is right; beside it every cell alike.
   Cells with several clients are shown alone, since one client gains nearly always.
4. Acceptance: of the row; else of a row of the same source, target and drafter; else of the
   catalogue, where `tune` would take it. The catalogue may hold rows of the same source: acceptance
   is an input, and who gives it is told.
5. A miss is put down to the first of these that holds: queueing (memory holds fewer than there are
   clients), acceptance (not of the row, and the right side lies within its 90% interval), else
   step cost.
Rows of a table by batch are simulated with it, where it is stated. Rows that stay on at k = 0 can
only be slower in this model, so their cost is compared and no sign counted.
--write puts the figures into validation/reports/map_signs.md and map_signs.json.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from common import (
    LOSO,
    PUBLISHED,
    PUBLISHED_2,
    REPORTS,
    read_csv,
    read_json,
    report_written,
    table,
    write_lines_json,
)
from map_tables import CAPPED, rest_cells, table_cells, unseen, verify_cells

from specsim.accuracy.lookups import SkipRow, number, source_of
from specsim.accuracy.row_load import acceptance_length
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.accuracy.score import overflows, score_case
from specsim.analytic.closed import closed_loop
from specsim.api.acceptance import catalogued, fitted_to, usable
from specsim.errors import SpecSimError
from specsim.options.groups import DeploymentOptions
from specsim.speculation.acceptance import Acceptance

OUT = REPORTS / "map_signs"
NEAR = 0.02
Row = Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One judged row. given: who gave the acceptance; shipped: predicted by the constants that are
    shipped; miss: why it is wrong, '' where right."""

    row: str
    source: str
    clients: int
    context: int
    method: str
    k: int
    given: str
    measured: float
    predicted: float
    shipped: float
    miss: str

    @property
    def near(self) -> bool:
        return abs(self.measured - 1) <= NEAR

    @property
    def right(self) -> bool:
        return (self.predicted > 1) == (self.measured > 1)


def sisters(rows: Iterable[Row]) -> dict[tuple[str, ...], list[tuple[int, Acceptance]]]:
    """Acceptance by source, target, method and drafter, each with its k."""
    found: dict[tuple[str, ...], list[tuple[int, Acceptance]]] = defaultdict(list)
    for row in rows:
        k = int(row["k"]) if row["k"].isdigit() else 0
        length = acceptance_length(row, k, chain=not row["tree_topk"]) if k else None
        if length is None or not 1 < length <= k + 1 or "dynamic" in row["notes"]:
            continue
        rates = [float(r) for r in re.findall(r"\d*\.?\d+", row["per_pos_acceptance"])]
        if len(rates) == k and rates == sorted(rates, reverse=True) and rates[0] > 0:
            scale = 100 if rates[0] > 1 else 1
            accepted = Acceptance.from_unconditional([r / scale for r in rates])
        else:
            accepted = Acceptance.from_mean_length(length, k)
        found[key_of(row)].append((k, accepted))
    return found


def key_of(row: Row) -> tuple[str, ...]:
    return source_of(row["set_id"]), row["target_model"], row["method"], row["draft_model"]


def accepted_of(
    row: Row, case: PublishedCase, known: Mapping[tuple[str, ...], list[tuple[int, Acceptance]]]
) -> tuple[Acceptance, str] | None:
    """(acceptance at the row's k, who gave it); None where nobody did."""
    system = case.system
    setup = system.setup
    if case.acceptance_length is not None and system.acceptance is not None:
        return system.acceptance, "row"
    for k, found in known.get(key_of(row), ()) if setup.tree_topk == 1 else ():
        if k >= setup.k:
            return found.at(setup.k), "sister"
    options = DeploymentOptions(model=system.spec.name)
    for work in (row["dataset"].split(" ")[0] or None, None):
        try:
            estimate = catalogued(options, system.spec, setup, None, work)
        except SpecSimError:
            continue  # no data set of the catalogue
        if usable(setup, estimate.level):
            return fitted_to(setup, estimate.acceptance), "catalogue"
    return None


def gain_of(row: Row) -> float | None:
    """Measured gain of a row: stated, of times per token, of rates."""
    stated = number(row["speedup"])
    if stated:
        return stated
    for slow, fast in ((row["baseline_tpot_ms"], row["spec_tpot_ms"]),
                       (row["spec_tok_s"], row["baseline_tok_s"])):
        a, b = number(slow), number(fast)
        if a and b:
            return a / b
    return None


def predicted(case: PublishedCase, accepted: Acceptance) -> float | None:
    """The gain as the row measured it, at this acceptance."""
    k = case.system.setup.k
    given = replace(
        case, system=case.system.with_(acceptance=accepted),
        acceptance_length=accepted.expected_tokens(k),
    )
    return next((s.predicted for s in score_case(given) if s.quantity == "speedup"), None)


def why(case: PublishedCase, accepted: Acceptance, given: str, gains: bool) -> str:
    """What a miss is put down to (see the module). gains: whether it was measured to pay."""
    system = case.system.with_(acceptance=accepted)
    state = closed_loop(system, case.workload, case.concurrency)
    if overflows(system, case) or state.running < case.concurrency - 0.5:
        return "queueing"
    k, length = system.setup.k, accepted.expected_tokens(system.setup.k)
    fewer, more = accepted.log_error_90
    edge = length * math.exp(more if gains else -fewer)
    edge = min(k + 1.0, max(1.0, edge))
    found = predicted(case, Acceptance.from_mean_length(edge, k))
    if given != "row" and found is not None and (found > 1) == gains:
        return "acceptance"
    return "step cost"


def cells_of(rows: list[dict[str, str]]) -> tuple[list[Cell], Counter[str]]:
    """Every row that can be judged, and why others cannot."""
    known, without = sisters(rows), read_json(LOSO)["without"]
    cells, skipped = [], Counter[str]()
    for row in rows:
        gain = gain_of(row)
        if gain is None:
            continue
        try:
            case = published_case(row)
        except (SkipRow, SpecSimError) as reason:
            skipped[str(reason).split(":")[0].split(";")[0]] += 1
            continue
        source = source_of(row["set_id"])
        found = accepted_of(row, case, known) if case.system.speculative else None
        if found is None:
            skipped["no drafts" if not case.system.speculative else "acceptance not known"] += 1
            continue
        measured = {**case.measured, "speedup": gain}
        seen = replace(case, measured=measured)
        case = replace(seen, system=unseen(case.system, source, without))
        value, shipped = predicted(case, found[0]), predicted(seen, found[0])
        if value is None or shipped is None:
            skipped["no gain is predicted"] += 1
            continue
        setup, right = case.system.setup, (value > 1) == (gain > 1)
        cells.append(Cell(
            row["id"], source, case.concurrency, case.workload.input_len, setup.method, setup.k,
            found[1], gain, value, shipped, "" if right else why(case, *found, gain > 1),
        ))
    return cells, skipped


# --- report -------------------------------------------------------------------------------------


def shares(cells: Iterable[Cell]) -> dict[str, Any]:
    """How often the sign is right: median over sources, every cell alike, gains, losses."""
    judged = [c for c in cells if not c.near]
    parts: dict[str, list[bool]] = defaultdict(list)
    for c in judged:
        parts[c.source].append(c.right)
    by_source = {name: statistics.fmean(hits) for name, hits in sorted(parts.items())}
    gains, losses = ([c.right for c in judged if (c.measured > 1) == up] for up in (True, False))
    return {
        "median_of_sources": statistics.median(by_source.values()) if by_source else None,
        "mean_of_sources": statistics.fmean(by_source.values()) if by_source else None,
        "sources": len(by_source), "right": sum(c.right for c in judged), "cells": len(judged),
        "gains_right": sum(gains), "gains": len(gains),
        "losses_right": sum(losses), "losses": len(losses), "by_source": by_source,
        "shipped_right": sum((c.shipped > 1) == (c.measured > 1) for c in judged),
        "near": sum(c.near for c in cells),
        "misses": dict(Counter(c.miss for c in judged if not c.right).most_common()),
    }


PARTS = {
    "all cells": lambda c: True,
    "one client": lambda c: c.clients == 1,
    "2 to 32 clients": lambda c: 2 <= c.clients <= 32,
    "more than 32 clients": lambda c: c.clients > 32,
    "prompts below 1k": lambda c: c.context < 1024,
    "1k to 4k": lambda c: 1024 <= c.context < 4096,
    "4k and more": lambda c: c.context >= 4096,
    "several clients": lambda c: c.clients > 1,
    "acceptance of the row": lambda c: c.given == "row",
    "of a sister row": lambda c: c.given == "sister",
    "of the catalogue": lambda c: c.given == "catalogue",
    "depthchart alone": lambda c: c.source == "depthchart",
}


def run() -> dict[str, Any]:
    """Everything, as one JSON-ready object."""
    rows = [row for file in (PUBLISHED, PUBLISHED_2) for row in read_csv(file)]
    cells, skipped = cells_of(rows)
    return {
        "parts": {name: shares([c for c in cells if of(c)]) for name, of in PARTS.items()},
        "tables": table_cells(rows), "verify": verify_cells(rows), "rest": rest_cells(rows),
        "skipped": dict(skipped.most_common()), "cells": [asdict(c) for c in cells],
    }


# What the misses look like: which cells, and a reading of them (no measurement).
READINGS: tuple[tuple[Callable[[Cell], bool], str], ...] = (
    (lambda c: c.source == "SPECB",
     "SPECB, SGLang's EAGLE-3 on H200, measured to pay: without it in the fit the two sources "
     "below set what drafts cost there, and want more. Its chains of Llama-3.1-8B leave 0.4 ms a "
     "step for the host (1.6 fitted), its trees 0.9 ms more: as if chains ran on the second "
     "worker, which hides it and takes no trees. Its GPUs are inferred: Ling-flash is met at half "
     "its plain time per token, and one H200 needs 6.0 ms a step for the experts of Qwen3-30B "
     "alone, of 5.4 measured"),
    (lambda c: c.source in ("SFORGE", "ASLIM"),
     "SFORGE and ASLIM, SGLang's EAGLE-3 on H100 with experts of 768, measured to lose: verify "
     "steps take a sixth to a half more than predicted; the opposite of SPECB on the same models"),
    (lambda c: c.method in ("ngram", "suffix"),
     "lookups at 64 and 128 clients: in how many steps a draft is found, which the source does not "
     "state and the first position tells"),
    (lambda c: c.source == "performance-or-illusion" and c.method not in ("ngram", "suffix"),
     "performance-or-illusion, 64 and 128 clients, measured to pay: acceptance of the catalogue, "
     "whose 90% interval holds what would put them right"),
    (lambda c: c.source in ("gpustack", "DSGB300"),
     "DeepSeek with MTP at 64 to 500 clients and random prompts: acceptance is not stated, and "
     "may be chance; queues of 500 prompts at once"),
)


def share(part: int, of: int) -> str:
    return f"{part} of {of} ({part / of:.0%})" if of else "-"


def pair(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.0f}" for value in values)


def text_of(found: Mapping[str, Any]) -> str:
    parts, whole = found["parts"], found["parts"]["all cells"]
    cells = [Cell(**c) for c in found["cells"]]
    lines = [
        "# Sign of the map: does it pay at that batch and context?",
        "",
        "Written by `python validation/scripts/map_signs.py --write`; its first lines say what is",
        "judged and the rules, which were fixed before looking. Every source is predicted without",
        "itself. Aim: 90%.",
        "",
        f"Right in the median source: {whole['median_of_sources']:.0%}"
        f" ({whole['sources']} sources; their mean: {whole['mean_of_sources']:.0%}).",
        f"Of all cells alike: {share(whole['right'], whole['cells'])}; with the constants that are "
        f"shipped {share(whole['shipped_right'], whole['cells'])}.",
        f"Within {NEAR:.0%} of 1, and not judged: {whole['near']}.",
        "\"Always pays\" would be right in "
        f"{share(whole['gains'], whole['cells'])}, so losses stand apart.",
        "",
    ]
    rows = []
    for name, p in parts.items():
        if p["cells"]:
            rows.append([
                name, f"{p['median_of_sources']:.0%} of {p['sources']}",
                share(p["right"], p["cells"]), share(p["gains_right"], p["gains"]),
                share(p["losses_right"], p["losses"]), str(p["near"]),
            ])
    lines += table(("cells", "median source", "right", "gains right", "losses right", "near 1"),
                   rows, left=True)
    misses = whole["misses"]
    total = sum(misses.values())
    wrong = [c for c in cells if not c.near and not c.right]
    lines += ["", "Misses put down to: " + ", ".join(
        f"{name} {share(count, total)}" for name, count in misses.items()) + ".", "",
        *table(("of the misses", "what they look like"), [
            [share(sum(map(of, wrong)), total), text] for of, text in READINGS
        ], left=True), ""]
    by_source: dict[str, list[Cell]] = defaultdict(list)
    for c in cells:
        by_source[c.source].append(c)
    rows = []
    for name, some in sorted(by_source.items()):
        p = shares(some)
        causes = ", ".join(f"{cause} {count}" for cause, count in p["misses"].items())
        rows.append([name.replace("|", " / "), share(p["right"], p["cells"]),
                     share(p["losses_right"], p["losses"]), str(p["near"]), causes or "-"])
    lines += table(("source", "right", "losses right", "near 1", "misses"), rows, left=True)
    lines += [
        "",
        "## A table by batch alone, where the batch is the cache's limit",
        "",
        "DEPTHB sends 256 prompts at once at a cache of 58,000 tokens. Computed whole, its prompts",
        "would come to more FLOP per second than the GPU's peak, so all but 96 tokens of each are",
        "taken to be in the cache, as the same source's other grid states.",
        "",
        "Pairs are plain and with drafts; times per token are met better than the rates, which",
        "hold the wait for first tokens.",
        "",
        *table(("row", "prompt", "drafts", "gain", "simulated", "tok/s", "simulated", "TPOT, ms",
                "simulated"), [
            [t["row"], str(t["context"]), t["table"], f"{t['measured']:.2f}",
             f"{t['predicted']:.2f}", *(pair(t[key]) for key in (
                 "measured_tok_s", "tok_s", "measured_tpot_ms", "tpot_ms"))]
            for t in found["tables"]
        ], left=True),
        "",
        "## Verify steps of that source",
        "",
        "Predicted over measured. The more requests, the more of a verify step is compute-bound,",
        "and the cheaper it comes out. The card is held to 400 W, the H200 of the measured kernels",
        f"to 700: the last column has its FP8 peak at {CAPPED}, an experiment, not the product.",
        "",
        *table(("row", "clients", "prompt", "k", "plain TPOT", "ITL", f"ITL at {CAPPED} of peak"),
               [[t["row"], str(t["clients"]), str(t["context"]), str(t["k"]), f"{t['plain']:+.0%}",
                 f"{t['itl']:+.0%}", f"{t['itl_capped']:+.0%}"] for t in found["verify"]],
               left=True),
        "",
        "## Staying on at k = 0",
        "",
        *table(("row", "clients", "prompt", "TPOT over plain, measured", "predicted step"), [
            [t["row"], str(t["clients"]), str(t["context"]), f"{t['measured']:+.1%}",
             f"{t['predicted']:+.1%}"] for t in found["rest"]
        ], left=True),
        "",
    ]
    wrong = [c for c in wrong if c.source != "SPECB"]
    lines += ["## Cells that are wrong", "", "Of SPECB, `map_signs.json` has them.", "",
              *table(("row", "clients", "prompt", "k", "measured", "predicted", "acceptance",
                      "put down to"), [
                  [c.row, str(c.clients), str(c.context), str(c.k), f"{c.measured:.2f}",
                   f"{c.predicted:.2f}", c.given, c.miss] for c in wrong
              ], left=True)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    report_written(__doc__, OUT, run, text_of, partial(write_lines_json, depth=2))

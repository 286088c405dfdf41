"""Does the predicted best draft length hold up against measured sweeps?

    python validation/scripts/best_k.py [--write]

1. Sweeps over k at fixed load (VLLMK, MR27, MR122, DSPARK, SPECB, AUTOSPEC): the k predicted best
   is looked up in the measurements: right, or its measured speed within 3% of the measured best.
2. Trends over load: best k of DSPARK falls, the gain of HY3 (mixture) rises with concurrency, the
   gain of the 8B models of SDB1 (dense) falls.
3. Rows measured slower with speculation than without: predicted slower?

What acceptance is given, and never the row's own measured speed:
  row      the acceptance length measured at that very k, on the row
  sister   the acceptance length of the same model, drafter and data set at that k on another row
  client   S x predicted r of the same sweep's row with one client, used at its other loads
  catalog  the catalogue's acceptance of this model and method
  loads    what the least loads of the same sweep say, used at its other loads (AUTOSPEC, whose
           acceptance and device nobody states: see `k_sweeps`)
  all accepted  the best case, where nothing is known: judged only if predicted slower even so
--write puts the figures into validation/reports/best_k.md and best_k.json.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from common import PUBLISHED, PUBLISHED_2, REPORTS, read_csv, report_written, table
from k_sweeps import CLOSE, MIN_POINTS, Sweep, autospec_sweeps

from specsim.accuracy.lookups import SkipRow
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.errors import SpecSimError
from specsim.ops.work import UNIFORM
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.resolve import AcceptanceQuery, resolve

OUT = REPORTS / "best_k"
MARGIN = 0.03  # measured gains this near 1 are no loss


def number(text: str) -> float | None:
    try:
        return float(text.split(maxsplit=1)[0].strip("~<>"))
    except (ValueError, IndexError):
        return None


def speed_of(row: Mapping[str, str]) -> float | None:
    """Measured speed of a row: over plain where it says so, tokens per second, 1 / TPOT."""
    for name in ("spec_tok_s", "speedup"):
        value = number(row[name])
        if value:
            return value
    tpot = number(row["spec_tpot_ms"])
    return 1e3 / tpot if tpot else None


def predict_speed(case: PublishedCase, system: System) -> float:
    """Predicted speed as the row measured it: of a stream, or of the whole batch."""
    state = closed_loop(system, case.workload, case.concurrency)
    per_stream = "spec_tpot_s" in case.measured or (
        case.concurrency == 1 and "spec_output_tok_s" not in case.measured
    )
    return 1 / state.tpot_s if per_stream else state.output_tok_s


def case_of(row: Mapping[str, str]) -> PublishedCase | None:
    try:
        return published_case(row)
    except (SkipRow, SpecSimError):
        return None


def shape_of(row: Mapping[str, str], case: PublishedCase) -> str:
    """'3' for a chain, '5x3/6' for a tree of 5 steps, top-k 3, 6 tokens."""
    setup = case.system.setup
    if setup.tree_topk > 1:
        return f"{setup.k}x{setup.tree_topk}/{setup.tree_tokens}"
    return str(setup.k)


def csv_sweeps(rows: list[dict[str, str]], *, trees: bool) -> list[Sweep]:
    """VLLMK, MR27 and SPECB: rows alike in all but k (with trees: and the tree)."""
    sisters: dict[tuple[str, ...], float] = {}
    for row in rows:
        al = number(row["mean_accepted_length"])
        if row["set_id"] == "VLLMK" and al:
            sisters[(row["target_model"], row["method"], row["k"], row["dataset"])] = al
    found: dict[tuple[str, ...], Sweep] = {}
    for row in rows:
        if row["set_id"] not in ("VLLMK", "MR27", "SPECB"):
            continue
        case, speed = case_of(row), speed_of(row)
        if case is None or not case.system.speculative or speed is None:
            continue
        if case.system.setup.tree_topk > 1 and not trees:
            continue
        system, given = case.system, "row"
        if case.acceptance_length is None:
            key = (row["target_model"], row["method"], row["k"], row["dataset"])
            if key not in sisters:
                continue
            given = "sister"
            system = system.with_(
                acceptance=Acceptance.from_mean_length(sisters[key], system.setup.k)
            )
        # MindRouter measured the same sweep in three ways (streams, aggregate, 16 clients).
        way = row["id"].split("-")[1].lstrip("0123456789") if row["set_id"] == "MR27" else ""
        same = (
            row["set_id"], row["target_model"], row["gpu"], row["engine_version"], row["method"],
            row["draft_model"], row["dataset"], row["batch_or_concurrency"], way, given,
        )
        sweep = found.setdefault(
            same,
            Sweep(
                row["set_id"],
                " ".join(x for x in (row["target_model"], row["method"], row["draft_model"],
                                     row["dataset"], f"batch {row['batch_or_concurrency']}",
                                     way) if x),
                given, load=case.concurrency,
            ),
        )
        shape = shape_of(row, case)
        sweep.measured[shape] = speed
        sweep.predicted[shape] = predict_speed(case, system)
    return [s for s in found.values() if len(s.measured) >= MIN_POINTS]


def mr122_sweep(rows: list[dict[str, str]]) -> dict[str, Any]:
    """k = 2 is what the cluster runs: 1.83 and 2.43 tokens per step at k = 1 and 2, and depth 3
    collapses. How far it collapsed is not published, so it is given as none accepted there, and
    the most that may be accepted at depth 3 with k = 2 still best is reported."""
    row = next(r for r in rows if r["set_id"] == "MR122")
    case = case_of(row)
    if case is None:
        return {}
    known = (0.83, 0.60)  # AL 1.83 at k = 1, 2.43 at k = 2

    def best(third: float) -> int:
        accepted = Acceptance.from_unconditional([*known, third])
        system = case.system.with_(acceptance=accepted)
        speeds = {k: predict_speed(case, system.with_(k=k)) for k in (1, 2, 3)}
        return max(speeds, key=lambda k: speeds[k])

    low, high = 0.0, known[1]
    if best(low) == 2:
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (middle, high) if best(middle) == 2 else (low, middle)
    return {
        "set": "MR122", "name": f"{row['target_model']} mtp batch 8", "measured_best": "2",
        "predicted_best": str(best(0.0)), "good": best(0.0) == 2, "loss": 0.0,
        "acceptance": "row at k = 1 and 2, none at depth 3", "third_at_most": low,
    }


def dspark_sweeps(rows: list[dict[str, str]]) -> list[Sweep]:
    """Best k by concurrency. Acceptance: the catalogue's of that checkpoint on SPEED-Bench at
    temperature 1, as the rows were measured; known is its curve on the coding part alone."""
    found: dict[int, Sweep] = {}
    for row in rows:
        case = case_of(row) if row["set_id"] == "DSPARK" and row["k"].isdigit() else None
        speed = number(row["spec_tok_s"])
        if case is None or speed is None:
            continue
        query = AcceptanceQuery(
            row["target_model"], "dspark", work=row["dataset"].split()[0], temperature=1.0
        )
        clients, k = case.concurrency, case.system.setup.k
        sweep = found.setdefault(clients, Sweep(
            "DSPARK", f"{row['target_model']} dspark {clients} clients", "catalog", load=clients,
        ))
        system = case.system.with_(acceptance=resolve(query, k).acceptance)
        sweep.measured[row["k"]] = speed
        sweep.predicted[row["k"]] = closed_loop(system, case.workload, clients).output_tok_s
    return [found[clients] for clients in sorted(found)]


# --- trends and losses --------------------------------------------------------------------------


def gain_of(case: PublishedCase, system: System) -> float:
    base = closed_loop(system.plain(), case.workload, case.concurrency)
    state = closed_loop(system, case.workload, case.concurrency)
    if {"baseline_tpot_s", "spec_tpot_s"} <= set(case.measured):
        return base.tpot_s / state.tpot_s
    return state.output_tok_s / base.output_tok_s


def load_curves(rows: Iterable[dict[str, str]]) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Rows alike in all but the load: key -> [(clients, measured gain, case, row), ...]."""
    out: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        case, gain = case_of(row), number(row["speedup"])
        if case is None or not case.system.speculative or gain is None:
            continue
        key = (row["set_id"], row["target_model"], row["gpu"], row["engine"], row["method"],
               row["draft_model"], row["k"], row["tree_topk"], row["dataset"])
        out[key].append((case.concurrency, gain, case, row))
    return {key: sorted(items, key=lambda i: i[0]) for key, items in out.items()}


def with_given(items: list[tuple[Any, ...]]) -> list[tuple[int, float, float, str, str]]:
    """[(clients, measured gain, predicted gain, given, row id), ...] of one load curve."""
    first = items[0]
    out = []
    for clients, gain, case, row in items:
        system, given = case.system, "row"
        if case.acceptance_length is None:
            accepted = None
            if first[0] == 1 and clients != 1:
                one = first[2]
                step = closed_loop(one.system, one.workload, 1).step_s
                plain = closed_loop(one.system.plain(), one.workload, 1).step_s
                k = system.setup.k
                length = min(k + 1.0, max(1.0, first[1] * step / plain))
                accepted, given = Acceptance.from_mean_length(length, k), "client"
            else:
                query = AcceptanceQuery(system.spec.name, system.setup.method)
                match = resolve(query, system.setup.k)
                known = match.level not in ("kind of drafter", "unknown")
                if known and system.setup.tree_topk == 1:
                    accepted, given = match.acceptance, "catalog"
            if accepted is None:
                k = system.setup.k
                accepted, given = Acceptance.from_mean_length(k + 1.0, k), "all accepted"
                if "saturated" in row["batch_or_concurrency"]:
                    # Nobody set a limit there, so the engine's own under speculation holds.
                    system = replace(system, max_num_seqs=0)
            system = system.with_(acceptance=accepted)
        out.append((clients, gain, gain_of(case, system), given, row["id"]))
    return out


def evenly(
    curves: Mapping[tuple[str, ...], list[tuple[Any, ...]]]
) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """HY3 with experts chosen evenly and independently: what its measured trend tells apart."""
    out = {}
    for key, items in curves.items():
        if key[0] == "HY3":
            out[key] = [
                (clients, gain, replace(case, system=replace(case.system, routing=UNIFORM)), row)
                for clients, gain, case, row in items
            ]
    return out


def trend(values: list[float]) -> str:
    return "rises" if values[-1] > values[0] else "falls"


def trends(curves: Mapping[tuple[str, ...], list[tuple[Any, ...]]]) -> list[dict[str, Any]]:
    """First against last load, of the curves that the set is known for."""
    out = []
    for key, items in curves.items():
        small = key[0] == "SDB1" and "8B" in key[1]
        if len(items) < MIN_POINTS or not (key[0] == "HY3" or small):
            continue
        found = with_given(items)
        measured, predicted = trend([x[1] for x in found]), trend([x[2] for x in found])
        out.append(
            {
                "set": key[0], "name": f"{key[1]} {key[4]} k={key[6]} {key[8]}",
                "acceptance": found[-1][3], "loads": [x[0] for x in found],
                "measured": [x[1] for x in found], "predicted": [x[2] for x in found],
                "measured_trend": measured, "predicted_trend": predicted,
                "right": measured == predicted,
            }
        )
    return out


def losses(curves: Mapping[tuple[str, ...], list[tuple[Any, ...]]]) -> list[dict[str, Any]]:
    """Rows that speculation made slower by more than MARGIN."""
    out = []
    for key, items in curves.items():
        if not any(gain < 1 - MARGIN for _, gain, _, _ in items):
            continue
        for clients, gain, predicted, given, row_id in with_given(items):
            if gain < 1 - MARGIN:
                # With every draft accepted only "slower all the same" says something.
                unknown = given == "all accepted" and predicted >= 1
                out.append(
                    {
                        "row": row_id, "name": f"{key[1]} {key[4]} k={key[6]} {key[8]}",
                        "clients": clients, "measured": gain, "predicted": predicted,
                        "acceptance": given,
                        "right": None if unknown else predicted < 1,
                    }
                )
    return out


# --- report -------------------------------------------------------------------------------------


def share(hits: list[bool]) -> str:
    return f"{sum(hits)} of {len(hits)} ({sum(hits) / len(hits):.0%})" if hits else "none"


def cells(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def run() -> dict[str, Any]:
    """Everything, as one JSON-ready object."""
    rows = read_csv(PUBLISHED)
    chains, shapes = csv_sweeps(rows, trees=False), csv_sweeps(rows, trees=True)
    dspark = dspark_sweeps(rows)
    more = read_csv(PUBLISHED_2)
    auto = autospec_sweeps(more, "loads")
    sweeps = [s.to_dict() for s in [*chains, *dspark, *auto]] + [mr122_sweep(rows)]
    curves = load_curves(r for r in rows if r["grade"] != "C")
    return {
        "sweeps": sweeps,
        "with_trees": [s.to_dict() for s in shapes if any("x" in k for k in s.measured)],
        "autospec_catalog": [s.to_dict() for s in autospec_sweeps(more, "catalog")],
        "trends": trends(curves),
        "hy3_even": trends(evenly(curves)),
        "losses": losses(curves),
        "dspark_best": {
            "clients": [s.load for s in dspark],
            "measured": [int(s.best) for s in dspark],
            "predicted": [int(s.chosen) for s in dspark],
        },
    }


def judged_row(name: str, some: list[dict[str, Any]], aim: str = "") -> list[str]:
    """How well the best draft length of these sweeps was predicted."""
    same = share([s["measured_best"] == s["predicted_best"] for s in some])
    worst = max((s["loss"] for s in some), default=0.0)
    return [name, share([s["good"] for s in some]) + aim, same, f"{worst:.1%}"]


def text_of(found: Mapping[str, Any]) -> str:
    sweeps, trees = found["sweeps"], found["with_trees"]
    lines = [
        "# Best draft length against measured sweeps",
        "",
        "Written by `python validation/scripts/best_k.py --write`; what acceptance is given is in",
        "that file's first lines, every sweep in `best_k.json`. Good: the k predicted best is the",
        f"measured best, or its measured speed is within {CLOSE:.0%} of it.",
        "",
    ]
    names = ("VLLMK", "MR27", "MR122", "DSPARK", "SPECB", "AUTOSPEC")
    rows = [judged_row(name, [s for s in sweeps if s["set"] == name]) for name in names]
    rows.append(judged_row("all", sweeps, " (aim 95%)"))
    if trees:
        rows.append(judged_row("SPECB with its trees as choices too", trees))
    rows.append(judged_row("AUTOSPEC, acceptance of the catalogue", found["autospec_catalog"]))
    lines += table(("sweeps", "good", "same k", "worst loss"), rows, left=True)
    best = found["dspark_best"]
    mr122 = next(s for s in sweeps if s["set"] == "MR122")
    lines += [
        "",
        *table(("DSPARK, clients", *map(str, best["clients"])), [
            ["best k measured", *map(str, best["measured"])],
            ["best k predicted", *map(str, best["predicted"])],
        ], left=True),
        "",
        "AUTOSPEC states no device, lengths or acceptance: it ranks draft lengths on eight H200",
        "(assumed), above two clients with the acceptance that the least loads tell (`k_sweeps`).",
        f"MR122: k = 2 stays best while at most {mr122['third_at_most']:.2f} of the steps accept "
        "three drafts (0.60 accept two).",
        "",
    ]
    rows = []
    for name, key in (("HY3", "trends"), ("HY3, experts evenly used", "hy3_even"),
                      ("SDB1", "trends")):
        some = [t for t in found[key] if name.startswith(t["set"])]
        ways = {t["measured_trend"] for t in some}
        right = share([t["right"] for t in some])
        rows.append([f"{name} (measured: {', '.join(sorted(ways))})", right])
    lines += table(("gain from the least to the largest load", "right direction"), rows, left=True)
    rows = []
    for key, what in (("trends", "predicted"), ("hy3_even", "predicted, experts evenly used")):
        for t in found[key]:
            if t["set"] != "HY3":
                continue
            if key == "trends":
                rows.append([f"{t['name']}: measured", *cells(t["measured"])])
            rows.append([f"{t['name']}: {what}", *cells(t["predicted"])])
    loads = map(str, found["hy3_even"][0]["loads"])
    lines += ["", *table(("HY3 gain at clients", *loads), rows, left=True)]
    judged = [x for x in found["losses"] if x["right"] is not None]
    lines += [
        "",
        f"Rows measured more than {MARGIN:.0%} slower with speculation, predicted slower: "
        f"{share([x['right'] for x in judged])}; "
        f"{len(found['losses']) - len(judged)} more would not be slower with every draft accepted,",
        "and what is accepted there is not known.",
        "",
        *table(("row", "clients", "measured", "predicted", "acceptance"), [
            [f"{x['row']} {x['name']}", str(x["clients"]), f"{x['measured']:.2f}",
             f"{x['predicted']:.2f}", x["acceptance"]]
            for x in judged
        ], left=True),
    ]
    bad = [s for s in [*sweeps, *found["autospec_catalog"]] if not s["good"]]
    if bad:
        head = ("sweeps missed", "acceptance", "measured best", "predicted", "loss")
        lines += ["", *table(head, [
            [f"{s['set']} {s['name']}", s["acceptance"], s["measured_best"], s["predicted_best"],
             f"{s['loss']:.1%}"]
            for s in bad
        ], left=True)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    report_written(__doc__, OUT, run, text_of)

"""A few-shot calibration as text: what moved, what did not, errors before and after."""

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.report.tables import seconds, table

_TIMES = ("tpot_s", "ttft_s")


def fewshot_text(document: Mapping[str, Any]) -> str:
    """The document of `specsim calibrate --from` for a terminal."""
    head = (
        f"{document['engine']} {document['engine_version']} serving {document['model']} on "
        f"{document['gpu']}" + (f", tp {document['tp']}" if document["tp"] > 1 else "")
    )
    blocks = [head, _parameters(document["parameters"])]
    still = [*document["not_moved"]]
    if still:
        blocks.append(f"these points say nothing about: {', '.join(still)} (left at their prior)")
    if document["unseen"]:
        blocks.append(f"no such point can show: {', '.join(document['unseen'])}")
    blocks.append(_points(document["points"]))
    for split in ("fitted", "held-out"):
        rows = [row for row in document["points"] if row["split"] == split]
        if rows:
            blocks.append(_median(split, rows))
    if document["acceptance_flags"]:
        blocks.append(f"acceptance of these runs: {document['acceptance_flags']}")
    if document["written"]:
        blocks.append(f"written: {document['written']}; use it:\n  {document['command']}")
    else:
        blocks.append("not written; -o my-engine.toml keeps it")
    blocks += [f"note: {text}" for text in document["warnings"]]
    return "\n\n".join(blocks)


def _parameters(rows: Sequence[Mapping[str, Any]]) -> str:
    out = []
    for row in rows:
        shown = _rate if row["name"].startswith("acceptance:") or row["name"].endswith(
            "_scale") else seconds
        out.append([
            row["name"].replace("acceptance:unknown", "accepted / drafted"), shown(row["before"]),
            shown(row["prior"]), shown(row["value"]), f"{row['sd_before']:.0%}", f"{row['sd']:.0%}",
            "yes" if row["moved"] else "no",
        ])
    return table(("parameter", "profile", "prior", "fitted", "prior sd", "sd", "moved"), out)


def _rate(value: float) -> str:
    return f"{value:.3g}"


def _points(rows: Sequence[Mapping[str, Any]]) -> str:
    out = []
    for row in rows:
        shown = seconds if row["metric"] in _TIMES else _rate
        out.append([
            row["point"], row["side"], row["metric"], row["split"], shown(row["measured"]),
            shown(row["before"]), shown(row["after"]), f"{row['error_before']:+.1%}",
            f"{row['error_after']:+.1%}",
        ])
    return table(
        ("point", "side", "metric", "", "measured", "before", "after", "error before",
         "error after"), out, left=4,
    )


def _median(split: str, rows: Sequence[Mapping[str, Any]]) -> str:
    def middle(key: str) -> float:
        sizes = sorted(abs(row[key]) for row in rows)
        half = len(sizes) // 2
        return float(sizes[half] if len(sizes) % 2 else (sizes[half - 1] + sizes[half]) / 2)

    return (
        f"median error of {len(rows)} {split} values: {middle('error_before'):.1%} before, "
        f"{middle('error_after'):.1%} after"
    )

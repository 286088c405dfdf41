"""The first tables of the accuracy page, made of the tables of validation/reports/report.md.

What holds for the next source stands alone and first: each source predicted by a fit that has not
seen it. What the shipped constants reach on the rows they were fitted on follows, under its name.
"""

from pathlib import Path

REPORT = Path(__file__).resolve().parents[2] / "validation" / "reports" / "report.md"
# Rows of the report's first table, and (quantity, class) of their 90% intervals in its third.
INTERVALS = {
    "step-cost ratio r": ("step_cost_ratio", "all"),
    "speedup": ("speedup", "all"),
    "plain TPOT": ("tpot", "plain"),
    "speculative TPOT": ("tpot", "speculative"),
    "TTFT": ("ttft", "all"),
}
Table = list[list[str]]


def read_table(heading: str) -> Table:
    """The first table below a heading of the report, without its own head."""
    text = REPORT.read_text(encoding="utf-8")
    lines = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def written(rows: Table) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def split(cell: str) -> list[str]:
    """'15.9%; depthchart 17.3%' as the median and the worst source."""
    median, _, worst = cell.partition("; ")
    return [median, worst or "-"]


def left_out() -> str:
    """Every source predicted without itself."""
    inside = {(row[0], row[1]): row for row in read_table("90% intervals")}
    rows = [["predicted against measured", "median of the sources' median errors", "worst source",
             "sources", "aim: median / worst", "inside the 90% interval: values; sources"]]
    for name, cell, sources, aim, _ in read_table("The next source"):
        covered = "-"
        if name in INTERVALS:
            _, _, values, count, of_sources, source_count = inside[INTERVALS[name]]
            covered = f"{values} of {count}; {of_sources} of {source_count}"
        rows.append([name, *split(cell), sources or "-", aim or "-", covered])
    return written(rows)


def in_sample() -> str:
    """The same by the shipped constants, which have seen these sources."""
    rows = [["predicted against measured", "median of the sources' median errors", "worst source"]]
    for name, *_, cell in read_table("The next source"):
        rows.append([name, *split(cell)])
    return written(rows)

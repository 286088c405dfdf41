"""The map of `tune --by`: draft lengths over batch and context, as a table and a picture."""

from collections.abc import Sequence

from specsim.report.blocks import Block, Charts, Lines
from specsim.report.crossover_rates import context_words
from specsim.report.doc import Doc
from specsim.report.plots import Heatmap
from specsim.report.tables import Table, percent, times

_MARKS = {"yes": "+", "no": "-", "unsure": "?"}
_REASONS = 3  # printed, of cells where nothing runs


def map_blocks(found: Doc, dynamic: Doc) -> list[Block | None]:
    """The cells, what tables gain, what an idle drafter costs, and the picture."""
    return [_table(found), Lines(_gains(found, dynamic)), Charts([_picture(found)])]


def _grid(found: Doc) -> list[list[Doc]]:
    """Cells by context."""
    rows: dict[float, list[Doc]] = {}
    for cell in found.items("cells"):
        rows.setdefault(cell.number("context"), []).append(cell)
    return list(rows.values())


def _waits(cell: Doc) -> bool:
    return cell.number("running") < cell.number("concurrency") - 0.5


def _cell(cell: Doc) -> str:
    if cell.text("reason", ""):
        return "full  "
    mark = _MARKS.get(cell.text("pays"), " ")
    return f"{cell.words('k')} {times(cell.maybe('speedup'))}{mark}{'*' if _waits(cell) else ' '}"


def _table(found: Doc) -> Table:
    grid = _grid(found)
    cells = found.items("cells")
    remarks = ["draft length, 0: off; speedup over off of the best length: + pays, - does not, "
               "? unsure (1 lies within its 90% interval)"]
    if any(_waits(cell) and not cell.text("reason", "") for cell in cells):
        remarks.append("* requests wait: with some draft length fewer run than there are clients")
    reasons = dict.fromkeys(cell.text("reason") for cell in cells if cell.text("reason", ""))
    remarks += [f"full: {reason}" for reason in list(reasons)[:_REASONS]]
    return Table(
        ["prompt", *(cell.words("concurrency") + "   " for cell in grid[0])],
        [[context_words(row[0]), *map(_cell, row)] for row in grid],
        title=f"{found.text('method')}: draft length by clients (columns) and prompt tokens, "
              f"{found.words('output_len')} tokens out",
        remarks=remarks,
    )


def _gains(found: Doc, dynamic: Doc) -> list[str]:
    """What tables gain over one length, and what staying on at k = 0 costs."""
    constant, cost = found.maybe("constant_k"), found.pair("off_cost")
    if constant is None or cost is None:
        return []
    against = f"k = {constant:.0f}" if constant else "speculation off"
    lines = [f"best single draft length where no request waits: {against}"]
    several = len(_grid(found)) > 1
    tables = [("by_batch_and_context", "by batch and context")] if several else []
    for key, name in (*tables, ("by_batch", "by batch")):
        if found.has(f"gains.{key}"):
            mean, most = (found.number(f"gains.{key}.{part}") for part in ("mean", "most"))
            lines.append(f"a table {name}: {mean:+.1%} over it on average, {most:+.1%} at most")
    rows = [row.numbers() for row in dynamic.items("num_speculative_tokens_per_batch_size")]
    if rows:
        lines.append(
            f"table by batch, made for {found.number('table_context'):,.0f} tokens in the cache: "
            + lengths_by_batch(rows))
        lost = [f"{percent(row.number('most'))} at {context_words(row)}"
                for row in found.items("given_away")]
        if several and lost:
            lines.append(f"  it gives away, at most, by prompt: {', '.join(lost)}")
    costs = " to ".join(dict.fromkeys(f"{share:.0%}" for share in cost))
    return [*lines, f"staying on at k = 0 costs {costs} over off (the drafter fills its cache, the "
                    "engine keeps its speculation state)"]


def _picture(found: Doc) -> Heatmap:
    grid = _grid(found)
    return Heatmap(
        f"Draft length and speedup, {found.text('method')}",
        "In each cell: draft length (0: off) and speedup of the best one. + pays, - does not, "
        "? unsure, * requests wait. Colours part at 1.",
        [cell.words("concurrency") for cell in grid[0]], [context_words(row[0]) for row in grid],
        [[cell.maybe("speedup") for cell in row] for row in grid],
        [[_cell(cell).strip() for cell in row] for row in grid],
        middle=1.0, x_label="clients", y_label="prompt tokens",
    )


def lengths_by_batch(rows: Sequence[Sequence[float | None]]) -> str:
    """'1: 4, 2-8: 3' of (first, last, draft length)."""
    return ", ".join(f"{first if first == last else f'{first}-{last}'}: {k}"
                     for first, last, k in rows)

"""Errors per metric of `specsim validate records` and `run`."""

from collections.abc import Mapping

from specsim.report.blocks import Group, Lines, Notes, Section
from specsim.report.columns import count, fixed, table_of, word
from specsim.report.doc import Doc
from specsim.report.tables import Table


def validated_blocks(found: Mapping[str, object], rows_out: bool = False) -> Section:
    """Errors per metric, held-out apart from fitted, the rows asked for, and the limits that a run
    must keep, if it has any."""
    doc = Doc(found)
    errors = [
        [f"{label}: {metric}", item.words("count"),
         *(_percent(item, key) for key in ("median_abs_error", "p90_abs_error")),
         *(_percent(item, key, "+") for key in ("bias", "worst"))]
        for label, side in (("held out", "summary"), ("fitted", "fitted_summary"))
        for metric, item in doc.members(side)
    ]
    tables = [Table(("", "points", "median", "p90", "bias", "worst"), errors)]
    if rows_out:
        tables.append(table_of(doc.items("rows"), [
            ("point", word("name")), ("metric", word("metric")),
            ("measured", fixed("measured", ".5g")), ("predicted", fixed("predicted", ".5g")),
            ("error", lambda row: _percent(row, "error", "+")), ("split", word("split")),
        ], left=2))
    last = Group([tables[-1], Notes(doc.texts("warnings"))])
    return Section("", "", [
        Lines([doc.text("title")]), *tables[:-1], last, _bars(doc) if doc.has("bars") else None,
    ])


def _bars(doc: Doc) -> Table:
    """Limits that the errors of a run must keep."""
    rows = [
        [metric, count("count")(item), _percent(item, "median_abs_error"),
         _percent(item, "bar_median", digits=0), _percent(item, "p90_abs_error"),
         _percent(item, "bar_p90", digits=0), "inside" if item.flag("inside") else "outside"]
        for metric, item in doc.members("bars")
    ]
    return Table(("bar", "rows", "median", "limit", "p90", "limit", ""), rows)


def _percent(item: Doc, key: str, sign: str = "", digits: int = 1) -> str:
    value = item.maybe(key)
    return "-" if value is None else f"{100 * value:{sign}.{digits}f} %"

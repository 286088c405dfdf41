"""What a measurement of another system says of the one that is asked about."""

from specsim.report.blocks import Block, Lines
from specsim.report.columns import Cell, Column, fixed, table_of
from specsim.report.deployment import engine_of, gpus_of
from specsim.report.doc import Doc
from specsim.report.tables import number, times
from specsim.units import seconds

NAMES = {"tpot_s": "TPOT", "ttft_s": "TTFT", "output_tok_s": "tok/s", "speedup": "speedup"}


def carried_blocks(doc: Doc) -> list[Block]:
    """Lines and the table; none where nothing was measured."""
    found = doc.at("from_measured")
    if not found.has("figures"):
        return []
    changes = ", ".join(f"{name} {value.words()}" for name, value in found.members("changes"))
    files = [name.replace("\\", "/").rpartition("/")[2] for name in found.texts("files")]
    rows = found.items("figures")
    several = len({(row.number("input_len"), row.number("output_len")) for row in rows}) > 1
    lengths: list[Column] = [
        ("tokens", lambda row: f"{row.words('input_len')}+{row.words('output_len')}")]
    return [
        Lines([
            f"From a measurement of {found.text('model')} on {gpus_of(found)} x "
            f"{found.text('gpu')}, {engine_of(found)} ({', '.join(files)}), with {changes}:",
        ]),
        table_of(rows, [
            ("clients", lambda row: f"{row.number('concurrency'):.3g}"), ("", _name),
            *(lengths if several else ()),
            ("measured", _by_metric("measured")), ("there", _by_metric("predicted_there")),
            ("here", _by_metric("predicted")), ("carried", _by_metric("value")),
            ("90%", _band), ("moved", fixed("moved", "+.0%")),
        ], left=2, remarks=[
            "there, here: predicted for what was measured, and for what is asked about",
            "carried: here, moved by what the prediction missed the measurement by, as far as",
            "  public pairs of measurements bear out; 90%: where nine of ten such values lie",
        ]),
        Lines(["The prediction alone:"]),
    ]


def _by_metric(key: str) -> Cell:
    return lambda row: _figure(row.text("metric"), row.number(key))


def _name(row: Doc) -> str:
    name = NAMES.get(row.text("metric"), row.text("metric"))
    return name if row.text("side") != "plain" else f"plain {name}"


def _band(row: Doc) -> str:
    """Both ends, in one unit where they have one."""
    low, high = (_figure(row.text("metric"), end).split() for end in row.pair("interval_90") or ())
    return f"{low[0] if low[1:] == high[1:] else ' '.join(low)}-{' '.join(high)}"


def _figure(metric: str, value: float) -> str:
    if metric.endswith("tok_s"):
        return number(value)
    return times(value) if metric == "speedup" else seconds(value)

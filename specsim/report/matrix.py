"""What `specsim matrix` says: models by GPUs at one operating point."""

from collections.abc import Sequence

from specsim.report.blocks import Charts, Group, Lines, Notes, Section
from specsim.report.columns import Column, InUnit, figure, fixed, table_of
from specsim.report.doc import Doc
from specsim.report.plots import Heatmap, Value
from specsim.report.tables import number, times
from specsim.units import TIME, counted, seconds


def matrix_section(doc: Doc) -> Section:
    """All blocks."""
    cells = doc.items("cells")
    marked = any(_assumed(cell) for cell in cells)
    return Section("Models by GPU", "Matrix", [
        Lines(_head(doc.at("operating_point"))),
        table_of(cells, _COLUMNS, left=2, detail=3),
        Lines([f"{c.text('model')} on {c.text('gpu')}: {c.text('reason', '')}"
               for c in cells if not c.flag("fits")]),
        Group([
            Lines(["* kernel efficiencies of this GPU are assumed, not measured on it"]
                  if marked else []),
            Notes(doc.texts("warnings")),
        ]),
        Charts([
            _map(cells, "Gain of speculation",
                 "Tokens per second per GPU with speculation over those without."),
            _map(cells, "Tokens per second per GPU",
                 "With or without speculation, whichever is more."),
        ]),
    ])


def _head(point: Doc) -> list[str]:
    head = (
        f"requests of {point.words('input_len')} + {point.words('output_len')} tokens, "
        f"{point.number('think_s'):g} s between an answer and the next message of a user"
    )
    if point.has("concurrency"):
        clients = counted(point.number("concurrency"), "client")
        return [head, f"operating point: {clients} per replica"]
    floor = point.maybe("stream_floor") or 0
    text = f"operating point: most requests with {floor:g} tok/s per stream"
    if point.has("ttft_limit_s"):
        text += f" and a mean TTFT of {seconds(point.maybe('ttft_limit_s'))}"
    return [head, text]


def _assumed(cell: Doc) -> bool:
    return cell.flag("fits") and cell.flag("efficiencies_assumed")


def _model(cell: Doc) -> str:
    return f"{cell.text('model')} ({cell.text('weights', '-')})"


def _remark(cell: Doc) -> str:
    if not cell.flag("fits"):
        return "does not fit"
    drafts = f"{cell.text('method')} k={cell.words('k')}"
    none = drafts if cell.has("speculative") else "no speculation known"
    return cell.text("reason", "") or none


_COLUMNS: Sequence[Column] = (
    ("model", lambda c: _model(c) if c.flag("fits") else c.text("model")),
    ("GPU", lambda c: c.text("gpu") + ("*" if _assumed(c) else "")),
    ("tp", lambda c: c.words("tp") if c.flag("fits") else "-"),
    ("speculation", _remark),
    ("gain", figure("gain", times)),
    ("tok/s/GPU", fixed("plain.tok_s_per_gpu", ".0f")),
    ("with", fixed("speculative.tok_s_per_gpu", ".0f")),
    ("users/GPU", fixed("plain.users_per_gpu", ".0f")),
    ("with", fixed("speculative.users_per_gpu", ".0f")),
    ("TTFT", InUnit(lambda c: (
        c.maybe("speculative.ttft_s" if c.has("speculative") else "plain.ttft_s"),), TIME)),
    ("at once", fixed("plain.concurrency", ".0f")),
    ("with", fixed("speculative.concurrency", ".0f")),
)


def _map(cells: Sequence[Doc], title: str, words: str) -> Heatmap | None:
    """Gain, or the better side's throughput, as colours."""
    gains = title.startswith("Gain")
    found: dict[tuple[str, str], Value] = {}
    for cell in cells:
        rates = [cell.maybe(f"{side}.tok_s_per_gpu") or 0.0 for side in ("plain", "speculative")]
        better = cell.maybe("gain") if gains else max(rates) or None
        found[_model(cell), cell.text("gpu")] = better
    models = list(dict.fromkeys(model for model, _ in found))
    gpus = list(dict.fromkeys(gpu for _, gpu in found))
    values = [[found.get((model, gpu)) for gpu in gpus] for model in models]
    shown = times if gains else number
    texts = [["does not fit" if v is None else shown(v) for v in row] for row in values]
    known = any(value is not None for row in values for value in row)
    middle = 1.0 if gains else None
    return Heatmap(title, words, gpus, models, values, texts, middle=middle) if known else None

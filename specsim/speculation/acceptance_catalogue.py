"""Measured acceptance by model, method, data set, temperature and draft length.

`catalog/acceptance.csv` holds published and own measurements; each line names the rows of
`validation/data/published/published_measurements.csv` it comes from (`catalog/ACCEPTANCE.md` says
what was carried over and what was not). Nothing is transferred from one model to another: a model
or method without a line has no acceptance here.

Which line answers when several do, in this order: the kind of data set (chat, then mixed, then
unstated single prompts, then one task such as code or maths; random prompts only on request,
because what a model writes after random tokens says nothing about its users; among chat sets real
traffic, MT-Bench, ShareGPT, Alpaca), grade A before B, k itself measured, a longer draft measured,
more points, more rows, lower temperature, then names in alphabetical order. The choice and the
spread over the other data sets are returned with the numbers.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specsim.data import data_root
from specsim.errors import FormatError
from specsim.methods.base import find_method
from specsim.methods.registry import known_method
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.checks import check_draft_length

# Kinds of data set, best first for a user who names none.
DATASET_KINDS = ("chat", "mixed", "unstated", "task", "random")
_CHAT_ORDER = ("chat-traffic", "mt-bench", "sharegpt", "alpaca")
COLUMNS = [
    *("model", "method", "draft", "dataset", "kind", "temperature"),
    *("k", "tree_topk", "num_draft_tokens", "acceptance_length", "per_position"),
    *("draft_probability", "grade", "set", "rows", "note"),
]

# Words of a checkpoint's name that leave the acceptance as it is: tuning for chat (every serving
# checkpoint has it) and number formats. "qat" is not among them: quantisation-aware training moves
# the model away from its drafter (measured: 0.64 against 0.92 at position 1).
_DROPPED = re.compile(
    r"^(instruct|it|chat|hf|gguf|fp8|bf16|fp16|int4|int8|fp4|nvfp4|mxfp4|awq\d?|gptq|w\d+a\d+"
    r"|[248]bit|q\d(_[0k01](_[sml])?)?|a\d+(\.\d+)?b|dynamic|quantized)$"
)
_SIZE = re.compile(r"-\d+(\.\d+)?[bt]$")


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One line of the catalogue: acceptance at one k (or tree shape)."""

    model: str
    method: str
    draft: str
    dataset: str
    kind: str
    temperature: float | None
    k: int
    tree_topk: int
    num_draft_tokens: int
    acceptance_length: float
    per_position: tuple[float, ...]
    draft_probability: float
    grade: str
    set_id: str
    rows: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class CatalogueMatch:
    """An acceptance found in the catalogue.

    points: every measurement of its curve, by draft length. spread is the least and greatest
    acceptance length at the same k over every measurement of the same model and method, whatever
    data set and draft (random prompts left out, as long as another kind was measured); datasets
    are the sets it covers.
    """

    acceptance: Acceptance
    points: tuple[MeasuredPoint, ...]
    spread: tuple[float, float]
    datasets: tuple[str, ...]

    @property
    def draft(self) -> str:
        return self.points[0].draft

    @property
    def dataset(self) -> str:
        return self.points[0].dataset

    def at(self, k: int) -> Acceptance:
        """Acceptance of the same measurement (model, draft, data set) at another draft length: the
        measured value where there is one. Use this to compare draft lengths."""
        acceptance, points = _evaluate(self.points, check_draft_length(k))
        text = _source(self.points[0], points)
        extension = acceptance.at(k).source.removeprefix(acceptance.source)
        return acceptance.at(k).with_source(text + extension, kind="catalogue")


def normalise_model(name: str) -> str:
    """A model's name without organisation, chat tuning, number format and active parameters.

    >>> normalise_model("Qwen/Qwen3.5-122B-A10B-FP8")
    'qwen3.5-122b'
    """
    text = name.strip().lower().rsplit("/", 1)[-1].replace("_", "-")
    words = [word for word in re.split(r"[\s\-]+", text) if word]
    if len(words) > 1 and words[0] in ("nvidia", "meta"):
        words = words[1:]
    return "-".join(word for word in words if not _DROPPED.match(word))


def normalise_method(name: str) -> str:
    """A method's name as the catalogue writes it: with underscores; unknown ones stay."""
    return (known_method(name) or name.strip().lower()).replace("-", "_")


def normalise_dataset(name: str) -> str:
    """A data set's name in lower case with dashes, the common spellings of one set united."""
    text = re.sub(r"[^a-z0-9.]+", "-", name.strip().lower()).strip("-")
    return {"mtbench": "mt-bench", "question-mt-bench": "mt-bench", "cnn-dm": "cnn-dailymail"}.get(
        text, text
    )


@cache
def measurements(path: Path | None = None) -> tuple[MeasuredPoint, ...]:
    """Every line of the catalogue."""
    path = data_root("catalog") / "acceptance.csv" if path is None else path
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("#")]
    except OSError as error:
        raise FormatError(f"the acceptance catalogue {path} cannot be read ({error})") from error
    reader = csv.DictReader(lines)
    if reader.fieldnames != COLUMNS:
        raise FormatError(
            f"{path} has the columns {reader.fieldnames}, but must have {','.join(COLUMNS)}"
        )
    found = []
    for number, row in enumerate(reader, start=1):
        try:
            found.append(_measurement(row))
        except (TypeError, ValueError) as error:
            raise FormatError(f"{path}, record {number}: {error}") from error
    return tuple(found)


def _measurement(row: dict[str, str]) -> MeasuredPoint:
    return MeasuredPoint(
        model=row["model"],
        method=row["method"],
        draft=row["draft"],
        dataset=row["dataset"],
        kind=row["kind"],
        temperature=float(row["temperature"]) if row["temperature"] else None,
        k=int(row["k"]),
        tree_topk=int(row["tree_topk"]),
        num_draft_tokens=int(row["num_draft_tokens"]),
        acceptance_length=float(row["acceptance_length"]),
        per_position=tuple(float(x) for x in row["per_position"].split("|") if x),
        draft_probability=float(row["draft_probability"]),
        grade=row["grade"],
        set_id=row["set"],
        rows=tuple(row["rows"].split()),
        note=row["note"],
    )


_Curve = tuple[MeasuredPoint, ...]


@cache
def _curves() -> dict[str, tuple[_Curve, ...]]:
    """Chain measurements by normalised model; a curve is one method, draft, data set, temperature
    and source at several k."""
    groups: dict[tuple[object, ...], list[MeasuredPoint]] = defaultdict(list)
    for m in measurements():
        if m.tree_topk == 1:
            key = (m.model, m.method, m.draft, m.dataset, m.temperature, m.set_id)
            groups[key].append(m)
    by_model: dict[str, list[_Curve]] = defaultdict(list)
    for group in groups.values():
        by_model[normalise_model(group[0].model)].append(tuple(sorted(group, key=lambda m: m.k)))
    return {model: tuple(curves) for model, curves in by_model.items()}


def _find_model(name: str) -> str | None:
    """The catalogue's model of that name. A name without a size ("nemotron-3-super") finds the one
    model that differs only in having one; if several do, none."""
    wanted = normalise_model(name)
    known = _curves()
    if wanted in known:
        return wanted
    sized = [model for model in known if _SIZE.sub("", model) == wanted]
    return sized[0] if len(sized) == 1 else None


@cache
def lookup(
    model: str,
    method: str,
    *,
    dataset: str | None = None,
    k: int | None = None,
    draft: str | None = None,
) -> CatalogueMatch | None:
    """Measured acceptance of a model with a method, at k drafts (default: the longest measured).

    None if the catalogue has none for exactly this model and method (and data set and draft, where
    given). If k was not measured it is read off the curve, or the curve is extended; see
    `Acceptance`.
    """
    if k is not None:
        check_draft_length(k)
    found = _find_model(model)
    if found is None:
        return None
    curves = [c for c in _curves()[found] if _offered(c[0], method)]
    if draft is not None:
        curves = [c for c in curves if normalise_model(c[0].draft) == normalise_model(draft)]
    everything = curves
    if dataset is not None:
        name = normalise_dataset(dataset)
        curves = [c for c in curves if name in (normalise_dataset(c[0].dataset), c[0].kind)]
    else:
        curves = [c for c in curves if c[0].kind != "random"]
    if not curves:
        return None
    chosen = min(curves, key=lambda curve: _preference(curve, k))
    length = chosen[-1].k if k is None else k
    acceptance, points = _evaluate(chosen, length)
    compared = [c for c in everything if c[0].kind != "random"] or everything
    lengths = [_evaluate(curve, length)[0].expected_tokens(length) for curve in compared]
    first = chosen[0]
    spread = (min(lengths), max(lengths))
    names = tuple(sorted({normalise_dataset(c[0].dataset) for c in compared}))
    remarks = ""
    if spread[1] - spread[0] >= 0.005:
        remarks += f"; all measured span {spread[0]:.2f} to {spread[1]:.2f} at k={length}"
        remarks += f" ({len(names)} data sets)" if len(names) > 1 else ""
    extension = acceptance.at(length).source.removeprefix(acceptance.source)
    text = _source(first, points) + extension + remarks
    return CatalogueMatch(
        acceptance.at(length).with_source(text, kind="catalogue"), chosen, spread, names
    )


def _offered(m: MeasuredPoint, method: str) -> bool:
    """Whether the measurement holds for the method."""
    asked, row = known_method(method), known_method(m.method) or m.method
    if asked is None:
        return m.method == normalise_method(method)
    return find_method(asked).measured_as(row, m.draft)


def _preference(curve: _Curve, k: int | None) -> tuple[object, ...]:
    first, longest = curve[0], curve[-1].k
    measured = k is not None and any(point.k == k for point in curve)
    name = normalise_dataset(first.dataset)
    return (
        DATASET_KINDS.index(first.kind),
        _CHAT_ORDER.index(name) if name in _CHAT_ORDER else len(_CHAT_ORDER),
        min(point.grade for point in curve),
        not measured,
        k is not None and longest < k,
        -len(curve),
        -sum(len(point.rows) for point in curve),
        99.0 if first.temperature is None else first.temperature,
        first.dataset,
        first.draft,
        first.set_id,
    )


def _evaluate(curve: _Curve, k: int) -> tuple[Acceptance, _Curve]:
    """Acceptance from the points up to k, or up to the next longer one if k is not measured, and
    the points used. AL at the largest of them is met exactly."""
    last = next((point.k for point in curve if point.k >= k), curve[-1].k)
    points = tuple(point for point in curve if point.k <= last)
    lengths: dict[int, float] = {}
    for point in points:
        total = 1.0
        for position, rate in enumerate(point.per_position, start=1):
            total += rate
            lengths.setdefault(position, total)
    # Printed lengths are rounded less than sums of printed rates, so they come last.
    lengths |= {point.k: point.acceptance_length for point in points}
    acceptance = Acceptance.from_curve(
        lengths, tolerance=float(last), draft_probability=points[-1].draft_probability
    )
    return acceptance, points


def _source(first: MeasuredPoint, points: _Curve) -> str:
    measured = ",".join(str(point.k) for point in points)
    rows = " ".join(dict.fromkeys(point.rows[0] for point in points))
    text = f"measured: {first.model} {first.method}"
    text += f" ({first.draft})" if first.draft else ""
    text += f" on {first.dataset} [{first.kind}], k={measured}, rows {rows}"
    for note in sorted({point.note for point in points if point.note}):
        text += f"; {note}"
    return text

"""Measured acceptance by model, method, data set, temperature and draft length.

`catalog/acceptance.csv` holds published and own measurements; each line names the rows of
`validation/data/published/` it comes from (`catalog/ACCEPTANCE.md` says what was carried over and
what was not). `resolve` answers questions from it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from specsim.data import data_rows
from specsim.methods.base import find_method
from specsim.methods.registry import known_method
from specsim.speculation.names import normalise_method, normalise_model

# Kinds of work, of which "random" (prompts of random tokens) and "repetitive" say nothing of users.
WORKS = (
    "chat", "mixed", "unstated", "code", "edit", "math", "stem", "reasoning", "humanities", "qa",
    "rag", "summarization", "writing", "roleplay", "translation", "multilingual", "tools",
    "extraction", "long context", "vision",
)

_SIZE = re.compile(r"-\d+(\.\d+)?[bt]$")
_MOST_NAMED = 6
_MOST_SETS = 2  # data sets of one entry


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One line of the catalogue: acceptance at one k (or tree shape). chain_length: where
    a drafter was measured in trees alone, the tokens per step that a chain as deep as the tree
    would yield (`trees`); else 0."""

    model: str
    method: str
    draft: str
    dataset: str
    work: str
    temperature: float | None
    thinking: bool | None
    language: str
    k: int
    tree_topk: int
    num_draft_tokens: int
    acceptance_length: float
    chain_length: float
    per_position: tuple[float, ...]
    draft_probability: float
    grade: str
    set_id: str
    rows: tuple[str, ...]
    note: str


@cache
def measurements() -> tuple[MeasuredPoint, ...]:
    """Every line of the catalogue."""
    return tuple(map(_measurement, data_rows("catalog", "acceptance.csv")))


@cache
def source_names() -> dict[str, str]:
    """Set -> how a sentence names its source (`catalog/acceptance_sources.csv`)."""
    return {row["set"]: row["source"] for row in data_rows("catalog", "acceptance_sources.csv")}


def _measurement(row: dict[str, str]) -> MeasuredPoint:
    return MeasuredPoint(
        model=row["model"],
        method=row["method"],
        draft=row["draft"],
        dataset=row["dataset"],
        work=row["work"],
        temperature=float(row["temperature"]) if row["temperature"] else None,
        thinking={"on": True, "off": False, "": None}[row["thinking"]],
        language=row["language"],
        k=int(row["k"]),
        tree_topk=int(row["tree_topk"]),
        num_draft_tokens=int(row["num_draft_tokens"]),
        acceptance_length=float(row["acceptance_length"]),
        chain_length=float(row["chain_length"] or 0.0),
        per_position=tuple(float(x) for x in row["per_position"].split("|") if x),
        draft_probability=float(row["draft_probability"]),
        grade=row["grade"],
        set_id=row["set"],
        rows=tuple(row["rows"].split()),
        note=row["note"],
    )


def _find_model(name: str) -> str | None:
    """The catalogue's model of that name. A name without a size ("nemotron-3-super") finds the one
    model that differs only in having one; if several do, none."""
    wanted = normalise_model(name)
    known = _by_model()
    if wanted in known:
        return wanted
    sized = [model for model in known if _SIZE.sub("", model) == wanted]
    return sized[0] if len(sized) == 1 else None


@cache
def _by_model() -> dict[str, tuple[MeasuredPoint, ...]]:
    groups: dict[str, list[MeasuredPoint]] = defaultdict(list)
    for point in measurements():
        groups[normalise_model(point.model)].append(point)
    return {name: tuple(points) for name, points in groups.items()}


def points_of(target: str) -> tuple[MeasuredPoint, ...]:
    """Every measurement of a model, chains and trees, whatever drafts; none for others."""
    found = _find_model(target)
    return _by_model()[found] if found is not None else ()


def telling(points: Iterable[MeasuredPoint]) -> list[MeasuredPoint]:
    """Those on real text, which say something of users: all chains, and the trees of drafters that
    were measured in trees alone."""
    return [p for p in points if (p.tree_topk == 1 or p.chain_length) and p.work in WORKS]


def offered_by(m: MeasuredPoint, method: str) -> bool:
    """Whether the measurement holds for the method."""
    asked, row = known_method(method), known_method(m.method) or m.method
    if asked is None:
        return m.method == normalise_method(method)
    return find_method(asked).measured_as(row, m.draft)


def in_few_words(points: Sequence[MeasuredPoint]) -> tuple[str, ...]:
    """Rows named: one entry per source and drafter, with its data sets and draft lengths."""
    names = source_names()
    found: dict[tuple[str, str], list[MeasuredPoint]] = defaultdict(list)
    for p in points:
        found[names.get(p.set_id, p.set_id), p.draft.rpartition("/")[2]].append(p)
    entries = []
    for (source, draft), rows in found.items():
        sets = list(dict.fromkeys(p.dataset for p in rows if p.dataset != "not stated"))
        told = ", ".join(sets[:_MOST_SETS])
        if len(sets) > _MOST_SETS:
            told += f" and {len(sets) - _MOST_SETS} more data sets"
        lengths = ",".join(map(str, sorted({p.k for p in rows})))
        entries.append(", ".join(filter(None, [source, told, draft, f"k={lengths}"])))
    named = entries[:_MOST_NAMED]
    more = len(entries) - len(named)
    return (*named, f"and {more} more") if more else (*named,)

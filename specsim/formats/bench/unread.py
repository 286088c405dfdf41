"""Figures of a foreign result that nothing reads: found by the shapes, named in a note.

What a shape takes stands in its fields. `by_name` of it matches keys that are read otherwise
(`mean_ttft_ms`), `passed_over` the tool's own keys that are left out, with the reason. Any other
key that holds a number is news: a newer version's, or a fork's.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import get_args, get_origin

from specsim.formats.bench.fields import Foreign, paths_of
from specsim.formats.bench.record import BenchRun

UNREAD = "figures that were not read: "
SHOWN = 12  # keys a note names
RECORDS = 200  # records of a file, and entries of a list, that are searched
_DEPTH = 5  # how far down an object of no shape is searched for a figure


@dataclass
class Taken:
    """What shapes take of an object: below `children`, all of it (`whole`), or by a pattern."""

    children: dict[str, "Taken"] = field(default_factory=dict)
    patterns: list[re.Pattern[str]] = field(default_factory=list)
    whole: bool = False


@cache
def taken_by(shape: type[Foreign]) -> Taken:
    found = Taken()
    _add(found, shape)
    return found


def _add(at: Taken, shape: type[Foreign]) -> None:
    if shape.model_config.get("extra") == "allow":  # a distribution: all its figures
        at.whole = True
        return
    at.patterns += [re.compile(text) for text in (*shape.by_name, *shape.passed_over)]
    for name, item in shape.model_fields.items():
        inner = _shape_in(item.annotation)
        for path in paths_of(name, item):
            place = at
            for step in path:
                place = place.children.setdefault(step, Taken())
            if inner is None:
                place.whole = True
            else:
                _add(place, inner)


def knows(shape: type[Foreign], name: str) -> bool:
    """Whether an object of this shape has the key, read or passed over."""
    taken = taken_by(shape)
    return name in taken.children or any(p.fullmatch(name) for p in taken.patterns)


def _shape_in(annotation: object) -> type[Foreign] | None:
    """The shape of a field that holds one, or a list of them; none where the keys are free."""
    if get_origin(annotation) is dict:
        return None
    if isinstance(annotation, type) and issubclass(annotation, Foreign):
        return annotation
    return next(filter(None, map(_shape_in, get_args(annotation))), None)


def unread(shape: type[Foreign], records: Sequence[object]) -> list[str]:
    """Dotted keys with a figure that `shape` does not take, in the order of the file."""
    found: dict[str, None] = {}
    for record in records[:RECORDS]:
        found.update(dict.fromkeys(_below(taken_by(shape), record, "", ())))
    return list(found)


def _below(
    taken: Taken, value: object, place: str, above: tuple[tuple[int, re.Pattern[str]], ...]
) -> Iterator[str]:
    if taken.whole:
        return
    if isinstance(value, list):
        for item in value[:RECORDS]:
            yield from _below(taken, item, place, above)
    if not isinstance(value, Mapping):
        return
    patterns = (*above, *((len(place), pattern) for pattern in taken.patterns))
    for name, inner in value.items():
        path = f"{place}{name}"  # YAML's keys may be numbers
        if name in taken.children:
            yield from _below(taken.children[name], inner, path + ".", patterns)
        elif _has_figure(inner, _DEPTH) and not any(
            pattern.fullmatch(path, start) for start, pattern in patterns
        ):
            yield path


def _has_figure(value: object, depth: int) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, int):
        return not isinstance(value, bool)
    inner = list(value.values()) if isinstance(value, Mapping) else value
    if depth == 0 or not isinstance(inner, list):
        return False
    return any(_has_figure(item, depth - 1) for item in inner[:RECORDS])


def with_note(run: BenchRun, names: Sequence[str]) -> BenchRun:
    """The run with a note that names the keys, where there are any."""
    if not names:
        return run
    shown = ", ".join(ascii(name)[1:-1][:80] for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return replace(run, warnings=(*run.warnings, f"{UNREAD}{shown}{more}"))


def unread_notes(run: BenchRun) -> list[str]:
    return [text for text in run.warnings if text.startswith(UNREAD)]

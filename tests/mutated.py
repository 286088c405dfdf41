"""Plain data with values, keys and shapes changed at random: what other people's files and servers
hold."""

import copy
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e-300, 1e308, float("inf"), float("nan"), 10**30, 10**400,
    "", " ", "x", "ü𝕏", "\u202e", "a" * 3000, "0", "1e400", "nan", "1,2", "\n", "\x00", [], [1],
    [[]], ["x"], {}, {"a": 1}, "h100-sxm", "ngram", "fp8", "/dev/zero", "{}", "'", 2**63, "null",
)


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all parts below a value."""
    parts = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    for key, inner in parts:
        yield (*at, key)
        yield from places(inner, (*at, key))


def mutated(value: Any, draw: random.Random) -> Any:
    """A copy with one to three parts replaced, left out, added, scaled or wrapped."""
    found = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 2, 3])):
        paths = list(places(found))
        if not paths:
            break
        *way, last = draw.choice(paths)
        owner = found
        for key in way:
            owner = owner[key]
        how, old = draw.random(), owner[last]
        if how < 0.1:
            del owner[last]
        elif how < 0.2 and isinstance(owner, dict):
            owner[draw.choice(["x", "", "ü", "k", "rate"])] = draw.choice(ODD)
        elif how < 0.35 and isinstance(old, int | float):
            owner[last] = old * draw.choice([-1, 0, 0.5, 1e9, 10**20])
        elif how < 0.45:
            owner[last] = [old]
        else:
            owner[last] = draw.choice(ODD)
    return found

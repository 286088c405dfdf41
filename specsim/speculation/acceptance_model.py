"""A hierarchical model of acceptance: what a verify step yields where nothing was measured.

Everything is said on one scale: the logit z of the flat conditional rate that gives the same mean
tokens per step at the same k (`flat_logit`). Conditional rates really change with depth,
logit c_i = a + s ln i, and to first order z = a + s h(k), h being the mean of ln i over the
positions that decide the mean (`depth_of`). A condition (target, drafter, data set, k ...) is
then a sum of normal effects, each the same for all conditions that share its key:

    z = sum_j weight_j * effect_j[key_j] + noise

`effects` names them: kind of drafter and its slope, kind of work, data set, temperature, thinking,
language, target size, size of a draft model, maker (known from every row: their means and standard
deviations stand in `catalog/acceptance_model.json`), then target, drafter, their data sets, slopes
and temperatures, source and run (only rows of the same target tell of these: `Posterior` conditions
on them when asked).
`validation/scripts/fit_acceptance.py` estimates all variances by marginal likelihood.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from specsim.data import data_table
from specsim.search import rising_root
from specsim.speculation.names import normalise_dataset, normalise_model

# Effects that every row tells of; the rest are told by rows of the same target.
SHARED = (
    "group", "kind", "slope_group", "slope_kind", "work", "work_group", "work_lookup",
    "slope_work", "dataset",
    "size", "draft_size", "maker", "temperature", "thinking", "language",
)
USUAL_TEMPERATURE = 0.5
_USUAL_RATE = 0.7
# A typical target: 30 billion parameters; one unit of the size effect is a factor of ten.
_TYPICAL_LOG_SIZE = math.log10(30e9)
# A typical draft model: one parameter for fifty of the target.
_TYPICAL_RATIO = math.log10(1 / 50)
_SIZE_IN_NAME = re.compile(r"(?:^|-)(\d+(?:\.\d+)?)([bmt])(?:-|$)")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}


def flat_logit(tokens: float, k: int) -> float:
    """Logit of the flat conditional rate that yields `tokens` per step (bonus counted) at k."""
    wanted = min(max(tokens - 1.0, 0.004), k * 0.996)
    rate = rising_root(lambda x: _chain(x, k), wanted, 1.0)
    rate = min(max(rate, 1e-6), 1.0 - 1e-6)
    return math.log(rate / (1.0 - rate))


def tokens_at(z: float, k: int) -> float:
    """Mean tokens per step at k drafts of a flat logit z."""
    return 1.0 + _chain(1.0 / (1.0 + math.exp(-z)), k)


def _chain(rate: float, k: int) -> float:
    return rate * (1.0 - rate**k) / (1.0 - rate) if rate < 1.0 else float(k)


def gain_at(z: float, k: int) -> float:
    """Tokens per step gained per logit at z."""
    return math.fsum(_weights(1.0 / (1.0 + math.exp(-z)), k))


@cache
def depth_of(k: int) -> float:
    """h(k): mean ln i of the positions that decide the mean of k drafts at the usual rate."""
    weights = _weights(_USUAL_RATE, k)
    return math.fsum(w * math.log(i) for i, w in enumerate(weights, 1)) / math.fsum(weights)


def _weights(rate: float, k: int) -> list[float]:
    """Change of the mean with the logit of each position's conditional rate, all being `rate`."""
    reached = [rate**i for i in range(1, k + 1)]
    found, left = [], math.fsum(reached)
    for value in reached:
        found.append((1.0 - rate) * left)
        left -= value
    return found


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A kind of drafter of `catalog/drafter_kinds.toml`, which says what the fields mean."""

    group: str
    per_target: bool = False
    sources: str = ""
    of: str = ""
    targets: tuple[str, ...] = ()
    unnamed: bool = False
    sized: bool = False


@cache
def drafter_kinds() -> dict[str, DrafterKind]:
    """All kinds by name."""
    kinds = data_table("catalog", "drafter_kinds.toml")["kinds"]
    return {
        name: DrafterKind(**(one | {"targets": tuple(one.get("targets", ()))}))
        for name, one in kinds.items()
    }


def kind_data(name: str) -> DrafterKind:
    """A kind by name; one that nobody listed is a head of its own."""
    return drafter_kinds().get(name) or DrafterKind("head")


def skips_steps(kind: str) -> bool:
    """Whether a kind of drafter proposes in some steps only."""
    return kind_data(kind).group == "lookup"


def drafter_kind(method: str, target: str, draft: str) -> str:
    """Kind of drafter of a catalogue method: heads of checkpoints are told apart by how they were
    trained, Gemma's assistants from free draft models."""
    if "assistant" in draft.lower():
        return "assistant"
    name, method = normalise_model(target), method.replace("-", "_")
    special = (kind for kind, one in drafter_kinds().items()
               if one.of == method and name.startswith(one.targets) and not (one.unnamed and draft))
    return next(special, method)


def size_of(target: str) -> float | None:
    """log10 of the parameters over 30 billion, from the target's name; None if it has no size."""
    found = _SIZE_IN_NAME.search(normalise_model(target))
    if found is None:
        return None
    return log_size(float(found[1]) * _UNITS[found[2]])


def log_size(parameters: float) -> float:
    """log10 of a model's parameters over 30 billion."""
    return math.log10(parameters) - _TYPICAL_LOG_SIZE


def draft_ratio(c: Condition) -> float | None:
    """log10 of a draft model's parameters over the target's, from `_TYPICAL_RATIO` on; None for
    other drafters and where a size is not known. A draft as large as the target is the most."""
    own = c.draft_size or size_of(c.draft)
    target = size_of(c.target)
    if not kind_data(c.kind).sized or own is None or target is None:
        return None
    return min(0.0, own - target) - _TYPICAL_RATIO


def maker_of(draft: str) -> str:
    """Who trained a drafter, by the first word of its name; '' where it does not tell."""
    words = re.split(r"[/\s]", draft.strip().lower())
    nobody = len(words) == 1 or words[0] in drafter_kinds() or words[0] in ("own", "official")
    return "" if nobody else words[0]


@dataclass(frozen=True, slots=True)
class Condition:
    """What tokens per step belong to. source: who measured (a set of rows); empty fields and None
    are not stated. method is the catalogue's; draft '' a built-in head or not stated; draft_size:
    `size_of` the drafter where its name does not tell."""

    target: str
    method: str
    draft: str
    dataset: str
    work: str
    k: int
    temperature: float | None = None
    thinking: bool | None = None
    language: str = ""
    source: str = ""
    draft_size: float | None = None

    @property
    def kind(self) -> str:
        return drafter_kind(self.method, self.target, self.draft)


Effect = tuple[str, str, float]


def base_effects(kind: str, work: str, depth: float) -> list[Effect]:
    """The effects that the kind of drafter and the kind of work alone decide."""
    group = kind_data(kind).group
    return [
        ("group", group, 1.0), ("kind", kind, 1.0),
        ("slope_group", group, depth), ("slope_kind", kind, depth),
        ("work", work, 1.0),
        # Copied drafts live on repetition: work moves them far more than it moves networks.
        ("work_lookup", work, 1.0) if group == "lookup" else
        ("work_group", f"{work}|{group}", 1.0),
        ("slope_work", f"{work}|{group}", depth),
    ]


@cache
def effects(c: Condition) -> tuple[Effect, ...]:
    """(name, key, weight) of every effect in a condition. Names in `SHARED` are told by all rows,
    the others by rows of the same target."""
    kind, depth = c.kind, depth_of(c.k)
    group = kind_data(kind).group
    target, draft = normalise_model(c.target), normalise_model(c.draft)
    if not draft and not kind_data(kind).per_target:
        draft = f"not stated by {c.source}"
    drafter = f"{target}|{kind}|{draft}"
    dataset = normalise_dataset(c.dataset)
    found: list[Effect] = [
        *base_effects(kind, c.work, depth),
        ("target", target, 1.0), ("drafter", drafter, 1.0), ("slope_drafter", drafter, depth),
        ("drafter_work", f"{drafter}|{c.work}", 1.0),
        (f"source_{kind_data(kind).sources or group}", f"{drafter}|{c.source}", 1.0),
        ("slope_curve", f"{drafter}|{dataset}|{c.temperature}|{c.thinking}|{c.source}", depth),
    ]
    if dataset:
        found += [
            ("dataset", f"{dataset}|{group}", 1.0), ("target_dataset", f"{target}|{dataset}", 1.0),
            ("drafter_dataset", f"{drafter}|{dataset}", 1.0),
        ]
    size = size_of(c.target)
    if size is not None:
        found.append(("size", group, size))
    ratio = draft_ratio(c)
    if ratio is not None:
        found.append(("draft_size", group, ratio))
    if maker_of(c.draft):
        found.append(("maker", f"{maker_of(c.draft)}|{group}", 1.0))
    if c.temperature is not None:
        hotter = c.temperature - USUAL_TEMPERATURE
        found += [("temperature", group, hotter),
                  ("temperature_target", f"{target}|{group}", hotter)]
    if c.thinking is not None:
        half = 0.5 if c.thinking else -0.5
        found += [("thinking", group, half), ("thinking_drafter", drafter, half),
                  ("slope_thinking", drafter, half * depth)]
    if c.language in ("zh", "multi"):
        found.append(("language", f"{c.language}|{group}", 1.0))
    return tuple(found)

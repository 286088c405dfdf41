"""`specsim.models`: the bundled models and drafters, or one model in full."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from specsim.api.acceptance import catalogued, rows_of, target_names
from specsim.api.results import Documented, Listing, flat
from specsim.errors import ModelConfigError, UsageError, require, shown
from specsim.formats.load_model import load_model
from specsim.jsonable import Key, picked
from specsim.latency.engine import find_engine
from specsim.methods.base import METHODS, DraftMethod
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import CatalogueEntry, key, list_drafters, list_models, served_name
from specsim.model.spec import ModelSpec
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.listing import ModelsOptions
from specsim.report.blocks import Section
from specsim.report.catalogue import model_dict, model_section, models_section
from specsim.speculation.names import normalise_model


@dataclass(frozen=True, repr=False)
class Model(Documented):
    """One model in full: parameters, bytes of weights, cache and state, what can draft for it."""

    command: str

    name = family = weights = kv_dtype = source = Key[str]()
    layers = hidden = vocab = parameters_text = parameters_total = Key[int]()
    active_parameters = Key[int]()
    weight_bytes = kv_bytes_per_token = state_bytes_per_sequence = Key[float]()
    kv_sliding = Key[list[dict[str, float]]]()
    max_position = Key[int | None]()
    notes = Key[list[str]]()
    mtp = Key[dict[str, Any] | None]()
    drafters = Key[list[dict[str, Any]]]()

    to_json = Documented.to_dict

    def to_rows(self) -> list[dict[str, object]]:
        """One row per drafter."""
        return [flat({"name": self.name, **line}) for line in self.drafters]

    def section(self) -> Section:
        return model_section(self.document)


class Models(Listing[CatalogueEntry]):
    """The bundled models, or drafters, in their order."""

    def to_json(self) -> list[object]:
        return [picked(entry, "name kind family parameters active_parameters weights has_mtp "
                              "drafters targets aliases") for entry in self.entries]

    def section(self) -> Section:
        return models_section(self.entries, "--drafters" in self.command.split())


def run(options: ModelsOptions) -> Model | Models:
    if options.name is not None:
        name = shown(options.name)
        require(
            (not options.search, f"{name} is one and --search is for the list; leave one out"),
            (not options.drafters, f"{name} is one and --drafters is for the list; leave one out"),
        )
        spec = load_model(options.name)
        return Model({**model_dict(spec), "drafters": drafters_of(spec)}, repeat(options))
    entries = list_drafters() if options.drafters else list_models()
    wanted = options.search.lower()
    return Models(tuple(
        entry for entry in entries
        if not wanted or any(wanted in text.lower() for text in (entry.name, *entry.aliases))
    ), repeat(options))


@overload
def models(name: None = None, *, drafters: bool = False, search: str = "") -> Models: ...
@overload
def models(name: str, *, drafters: Literal[False] = False, search: Literal[""] = "") -> Model: ...
def models(name: str | None = None, *, drafters: bool = False, search: str = "") -> Model | Models:
    """The bundled models (with `drafters` the drafters) whose names hold `search`; or, with a
    `name`, a config.json or its folder, one model in full.

    Raises `specsim.errors.SpecSimError` for whatever a caller can correct."""
    given = {"name": name, "drafters": drafters, "search": search}
    return run(ModelsOptions.of_values({key: value for key, value in given.items() if value}))


def drafters_of(spec: ModelSpec) -> list[dict[str, object]]:
    """One line per drafter: method, drafter, repository (None where no source states one), k
    (the natural draft length), tokens_per_step there with its 90 % interval and level, rows
    (measurements of the model with it)."""
    return [line for method in METHODS.values() if method.servable
            for line in _of_method(spec, method)]


def _of_method(spec: ModelSpec, method: DraftMethod) -> Iterator[dict[str, object]]:
    rows = rows_of(spec, method.name)
    if (shipped := method.shipped(spec)) is not None:
        yield _line(spec, method, shipped.name, None, len(rows))
        return
    names = {key(name) for name in target_names(spec)}
    listed = [e.name for e in list_drafters()
              if e.kind in method.drafter_kinds and names & set(map(key, e.targets))]
    for name in listed:
        yield _line(spec, method, name, name, len(rows))
    if method.lookup and rows:
        yield _line(spec, method, "text seen before", None, len(rows))
        return
    for name in dict.fromkeys(row.draft for row in rows if row.draft):
        known = {normalise_model(served_name(other)) for other in listed}
        if normalise_model(name) not in known:
            count = sum(row.draft == name for row in rows)
            yield _line(spec, method, name, name, count)


def _line(
    spec: ModelSpec, method: DraftMethod, name: str, draft: str | None, rows: int
) -> dict[str, object]:
    repository = served_name(name)
    line: dict[str, object] = {
        "method": method.name, "drafter": name,
        "repository": repository if "/" in repository else None, "rows": rows,
    }
    try:
        setup = resolve_setup(spec, replace(find_engine("vllm"), methods=()), method.name)
    except (UsageError, ModelConfigError):
        return {**line, "k": None, "tokens_per_step": None, "tokens_90": None,
                "level": "measured with a drafter of unknown shape"}
    found = catalogued(DeploymentOptions(), spec, setup, draft)
    return {**line, "k": setup.k, "tokens_per_step": found.tokens_per_step,
            "tokens_90": [found.low_90, found.high_90], "level": found.level}

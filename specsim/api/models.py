"""`specsim.models`: the bundled models and drafters, or one model in full."""

from dataclasses import dataclass
from typing import Any, Literal, overload

from specsim.api.drafters import drafters_of
from specsim.api.results import Documented, Listing, flat
from specsim.errors import require, shown
from specsim.formats.load_model import load_model
from specsim.jsonable import Key, picked
from specsim.model.catalogue import CatalogueEntry, list_drafters, list_models
from specsim.options.listing import ModelsOptions
from specsim.options.repeat import repeat
from specsim.report.blocks import Section
from specsim.report.models import model_dict, model_section, models_section


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
def models(
    name: None = None, *, drafters: bool = False, search: str = ""
) -> Models: ...
@overload
def models(name: str, *, drafters: Literal[False] = False, search: Literal[""] = "") -> Model: ...
def models(
    name: str | None = None, *, drafters: bool = False, search: str = ""
) -> Model | Models:
    """The bundled models (with `drafters` the drafters) whose names hold `search`; or, with a
    `name`, a config.json or its folder, one model in full.

    Raises `specsim.errors.SpecSimError` for whatever a caller can correct."""
    given = {"name": name, "drafters": drafters, "search": search}
    return run(ModelsOptions.of_values({key: value for key, value in given.items() if value}))

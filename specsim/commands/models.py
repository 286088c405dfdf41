"""`specsim models`: the bundled models and drafters, or one of them in full."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.commands.bind import command
from specsim.commands.output import text_of, write
from specsim.errors import require, shown
from specsim.jsonable import picked
from specsim.options.listing import ModelsCommand
from specsim.report.blocks import Lines, Section
from specsim.report.tables import Table

if TYPE_CHECKING:
    from specsim.model.catalogue import CatalogueEntry

LEGEND = (
    "size, active: 1e9 parameters, of all and of what a token passes through (without the input "
    "table); MTP: has such a head"
)


@command(
    ModelsCommand,
    "specsim models --search qwen3",
    "specsim models llama-3.1-8b",
)
def models(options: ModelsCommand) -> None:
    """List the models and drafters of the catalogue, or show one. Parameters, bytes, cache, state,
    drafters."""
    from specsim.model.catalogue import list_drafters, list_models
    from specsim.report.models import model_dict, model_section

    if options.name is not None:
        name = shown(options.name)
        require(
            (not options.search, f"{name} is one and --search is for the list; leave one out"),
            (not options.drafters, f"{name} is one and --drafters is for the list; leave one out"),
        )
        from specsim.api.drafters import drafters_of
        from specsim.formats.load_model import load_model

        spec = load_model(options.name)
        found = {**model_dict(spec), "drafters": drafters_of(spec)}
        write(options, lambda: found, lambda: text_of(model_section(found), options))
        return
    entries = list_drafters() if options.drafters else list_models()
    wanted = options.search.lower()
    chosen = [
        entry for entry in entries
        if not wanted or any(wanted in text.lower() for text in (entry.name, *entry.aliases))
    ]
    listed = _drafters if options.drafters else _models
    write(options, lambda: [_listed(entry) for entry in chosen],
          lambda: text_of(listed(chosen), options))


def _listed(entry: "CatalogueEntry") -> dict[str, object]:
    return picked(entry, "name kind family parameters active_parameters weights has_mtp drafters "
                         "targets aliases")


def _drafters(entries: "Sequence[CatalogueEntry]") -> Section:
    rows = [[entry.name, entry.kind, f"{entry.parameters / 1e9:.3g}",
             ", ".join(entry.targets) or "-"] for entry in entries]
    return Section("", "", [
        Table(["drafter", "kind", "size", "for"], rows, left=2, units=["", "", "B", ""])])


def _models(entries: "Sequence[CatalogueEntry]") -> Section:
    rows = [
        [
            entry.name,
            entry.family,
            entry.weights,
            f"{entry.parameters / 1e9:.4g}",
            f"{entry.active_parameters / 1e9:.3g}",
            "yes" if entry.has_mtp else "-",
            ", ".join(entry.drafters) or "-",
        ]
        for entry in entries
    ]
    headers = ["model", "family", "weights", "size", "active", "MTP", "drafters"]
    units = ["", "", "", "B", "B", "", ""]
    return Section("", "", [Table(headers, rows, units=units, detail=1), Lines([LEGEND])])

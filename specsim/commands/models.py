"""`specsim models`: the bundled models and drafters, or one of them in full."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o


def register(app: typer.Typer) -> None:
    app.command(name="models")(models)


def models(
    name: Annotated[
        str | None, typer.Argument(help="A model (name, config.json or folder) to show.")
    ] = None,
    drafters: Annotated[bool, typer.Option("--drafters", help="List drafters instead.")] = False,
    search: Annotated[str, typer.Option("--search", help="Only names with this text.")] = "",
    json_out: o.JsonOut = False,
) -> None:
    """List the bundled models, or show one: parameters, bytes, cache, state, drafters."""
    from specsim.model.catalogue import list_drafters, list_models
    from specsim.report.models import model_dict, model_text
    from specsim.report.tables import printable, table, to_json

    if name is not None:
        from specsim.formats.load_model import load_model

        spec = load_model(name)
        shown = model_dict(spec)
        sys.stdout.write((to_json(shown) if json_out else printable(model_text(shown))) + "\n")
        return
    entries = list_drafters() if drafters else list_models()
    wanted = search.lower()
    chosen = [
        e
        for e in entries
        if not wanted or any(wanted in text.lower() for text in (e.name, *e.aliases))
    ]
    if json_out:
        listing = [
            {
                "name": e.name,
                "kind": e.kind,
                "family": e.family,
                "parameters": e.parameters,
                "active_parameters": e.active_parameters,
                "weights": e.weights,
                "has_mtp": e.has_mtp,
                "drafters": list(e.drafters),
                "targets": list(e.targets),
                "aliases": list(e.aliases),
            }
            for e in chosen
        ]
        sys.stdout.write(to_json(listing) + "\n")
        return
    if drafters:
        rows = [[e.name, e.kind, f"{e.parameters / 1e9:.3g} B", ", ".join(e.targets) or "-"]
                for e in chosen]
        sys.stdout.write(table(["drafter", "kind", "parameters", "for"], rows, left=2) + "\n")
        return
    rows = [
        [
            e.name,
            e.family,
            e.weights,
            f"{e.parameters / 1e9:.4g} B",
            f"{e.active_parameters / 1e9:.3g} B",
            "yes" if e.has_mtp else "-",
            ", ".join(e.drafters) or "-",
        ]
        for e in chosen
    ]
    headers = ["model", "family", "weights", "parameters", "active", "MTP", "drafters"]
    legend = "active: what a token passes through, without the input table; MTP: has such a head"
    sys.stdout.write(f"{table(headers, rows, left=3)}\n\n{legend}\n")

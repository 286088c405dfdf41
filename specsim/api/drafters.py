"""What can draft for a model, and what is known of each: `specsim models NAME`."""

from collections.abc import Iterator
from dataclasses import replace

from specsim.api.acceptance import catalogued, rows_of, target_names
from specsim.errors import ModelConfigError, UsageError
from specsim.latency.engine import find_engine
from specsim.methods.base import METHODS, DraftMethod
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import key, list_drafters, served_name
from specsim.model.spec import ModelSpec
from specsim.options.groups import DeploymentOptions
from specsim.speculation.names import normalise_model


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
        yield _line(spec, method, name, None, len(rows))
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

"""One task of a sweep, as a worker runs it: the options of `simulate` or `predict` to figures.

A worker imports this module and gets plain values; what it gives back is JSON-ready. The figures
are those of `specsim simulate --json` and of a point of `specsim predict --json`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, TypeVar

from specsim.errors import SpecSimError, UsageError, one_line
from specsim.jsonable import picked
from specsim.options import groups
from specsim.options.declare import Declared, OptionSet, declared
from specsim.options.meaning import hint
from specsim.options.prediction import PredictCommand, PredictOptions
from specsim.options.serving import SimulateCommand, SimulateOptions
from specsim.options.tables import VALUE_WORDS, file_keys, from_value, real
from specsim.options.values import shown

MAX_WHOLE = 1 << 53  # nothing counts beyond it, and an error repeats the number
_COMMANDS: dict[str, type[OptionSet]] = {"simulate": SimulateCommand, "predict": PredictCommand}
_LOADS = {"concurrency": int, "rate": float}  # of predict, one per task
# With any of these the method of a prediction does not depend on its load.
_DECIDING = {"method", "draft", "speculative_config", *declared(groups.AcceptanceOptions)}
T = TypeVar("T")


def run_tasks(run: str, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """For each task {'result': figures}, or {'error': one line} where its options are refused.

    Predictions that differ in their concurrency alone are one prediction at several loads."""
    if run == "simulate":
        return [_told(_simulate, {**task["options"], "seed": task["seed"]}) for task in tasks]
    found: list[dict[str, object]] = []
    options = [task["options"] for task in tasks]
    for _, alike in groupby(options, lambda item: {**item, "concurrency": None}):
        found += _predictions(list(alike))
    return found


def _told(function: Callable[..., T], options: object) -> dict[str, object]:
    try:
        return {"result": function(options)}
    except SpecSimError as error:
        return {"error": one_line(error)}


def _simulate(options: Mapping[str, object]) -> dict[str, object]:
    from specsim.api.simulate_run import simulated

    found = simulated(SimulateOptions.of_values(options), bar=False)
    if found.partial:
        # A signal meant for somebody else must not leave half a run among the results.
        raise RuntimeError("the simulation was interrupted")
    left_out = ("kind", "inputs", "seed", "replications", "partial")
    return {name: value for name, value in found.to_dict().items() if name not in left_out}


def _predictions(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Of tasks that are alike but for their concurrency. Where the method is left open, the load
    has a say in it, and a load that is refused must not refuse the others: one by one."""
    loads: list[Any] = [task.get("concurrency") for task in tasks]
    if len(set(loads)) > 1 and not _DECIDING.isdisjoint(tasks[0]):
        with suppress(SpecSimError):
            together = ",".join(map(str, loads))
            found = _predict({**tasks[0], "concurrency": together})
            by_load = dict(zip(sorted(set(loads)), found, strict=True))
            return [{"result": by_load[load]} for load in loads]
    return [_told(lambda task: _predict(task)[0], task) for task in tasks]


def _predict(options: Mapping[str, object]) -> list[dict[str, object]]:
    """The figures at each load, in rising order. The best draft length, most of the work, is looked
    for where the task names none: a sweep over k has it in its rows."""
    from specsim.api.predict import predicted

    found = predicted(PredictOptions.of_values(options), search_k=options.get("k") is None)
    whole = picked(found, "k=system.setup.k acceptance_length break_even_concurrency "
                          "max_concurrency warnings")
    return [{**point.to_dict(), **whole} for point in found.points]


# --- options ------------------------------------------------------------------------------


@cache
def _options(run: str) -> dict[str, Declared]:
    """The options that a task may have."""
    found = {name: item for name, item in declared(_COMMANDS[run]).items()
             if not item.option.output and item.section != "Measurements"}
    if run == "predict":
        found |= {name: replace(found[name], kind=kind, accepted=(kind,))
                  for name, kind in _LOADS.items()}
    return found


def option_name(name: str, run: str, where: str) -> str:
    """The option's name as the functions have it; UsageError with near matches."""
    plain = name.strip().lstrip("-").replace("-", "_")
    known, typed = _options(run), declared(_COMMANDS[run])
    if plain not in known and plain in file_keys(_COMMANDS[run]):
        plain = file_keys(_COMMANDS[run])[plain].name
    if plain in known:
        return plain
    if plain in typed or plain in ("json", "csv"):
        if plain in typed and not typed[plain].option.output:
            raise UsageError(f"{where}: {shown(name)} is for one result; leave it out of a sweep")
        raise UsageError(
            f"{where}: {shown(name)} says where one result goes; a sweep has --out, --json and "
            "--csv of its own"
        )
    raise UsageError(
        f"{where}: {shown(name)} is not an option of specsim {run}; {hint(name, known, 3)}see "
        f"`specsim {run} --help`"
    )


def option_value(name: str, value: object, run: str, where: str) -> object:
    """A value as the option wants it; UsageError that names the value and the rule."""
    item = _options(run)[name]
    if Sequence in item.accepted and real(value) is not None:
        return repr(value)
    return from_value(item, name, value, f"{where}:", MAX_WHOLE)


def parse_value(name: str, text: str, run: str, where: str) -> object:
    """A value typed on the command line."""
    kind, word = _options(run)[name].kind, text.strip()
    try:
        if kind is bool:
            return {"true": True, "false": False}[word.lower()]
        found: object = kind(word)
        beyond = isinstance(found, int) and abs(found) > MAX_WHOLE
        if beyond or (isinstance(found, float) and math.isnan(found)):
            raise ValueError
        return found
    except (KeyError, ValueError):
        limit = f" up to {MAX_WHOLE}" if kind is int else ""
        raise UsageError(
            f"{where}: {name} is {shown(word)}; it must be {VALUE_WORDS[kind]}{limit}"
        ) from None

"""One task of a sweep, as a worker runs it: the options of `simulate` or `predict` to figures.

A worker imports this module and gets plain values; what it gives back is JSON-ready. The figures
are those of `specsim simulate --json` and of a point of `specsim predict --json`.
"""

import inspect
import math
import types
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_type_hints

from specsim.commands.options import shown
from specsim.errors import SpecSimError, UsageError
from specsim.planning.values import real
from specsim.planning.values import shown as shown_value

OUTPUTS = frozenset({
    "context", "json_out", "csv_out", "trace_out", "records", "export", "export_vllm_bench",
    "export_prometheus", "plot",
})
ALIASES = {"num_speculative_tokens": "k"}
LISTS = ("acceptance", "acceptance_conditional")
LOADS = {"concurrency": int, "rate": float}  # of predict, one per task
MAX_WHOLE = 1 << 53  # nothing counts beyond it, and an error repeats the number
WORDS = {
    int: f"a whole number up to {MAX_WHOLE}", float: "a number", str: "text",
    bool: "true or false",
}


def run_task(payload: dict[str, Any]) -> dict[str, Any]:
    """{'result': figures}, or {'error': one line} where the options are refused."""
    from specsim.commands import one_line

    try:
        if payload["run"] == "simulate":
            result = _simulate(payload["options"], payload["seed"])
        else:
            result = _predict(payload["options"])
    except SpecSimError as error:
        return {"error": one_line(error)}
    return {"result": result}


def _simulate(options: dict[str, Any], seed: int) -> dict[str, Any]:
    from specsim.api.simulate_run import run

    values = {**_defaults("simulate"), **options, "seed": seed}
    found = run(values, frozenset(options) | {"seed"}, bar=False)
    if found.partial:
        # A signal meant for somebody else must not leave half a run among the results.
        raise RuntimeError("the simulation was interrupted")
    out = found.to_dict()
    return {
        name: value for name, value in out.items()
        if name not in ("kind", "inputs", "seed", "replications", "partial")
    }


def _predict(options: dict[str, Any]) -> dict[str, Any]:
    from specsim.analytic.predict import predict
    from specsim.api.deployment import build_request
    from specsim.api.values import options_of

    request = build_request(options_of({"model": "", **options}))  # a command may name the model
    concurrency, rate = options.get("concurrency"), options.get("rate")
    found = predict(
        request.system,
        request.workload,
        None if concurrency is None else [concurrency],
        None if rate is None else [rate],
        request.warnings,
    )
    return {
        **found.points[0].to_dict(),
        "k": request.system.setup.k,
        "acceptance_length": found.acceptance_length,
        "break_even_concurrency": found.break_even_concurrency,
        "max_concurrency": found.max_concurrency,
        "warnings": list(found.warnings),
    }


# --- options ------------------------------------------------------------------------------


@cache
def option_types(run: str) -> dict[str, type]:
    """The options that a task may have, and the type of each."""
    found = {}
    for name, hint in get_type_hints(_function(run)).items():
        if name in OUTPUTS or name == "return":
            continue
        kinds = [part for part in _parts(hint) if part is not type(None)]
        found[name] = kinds[0]
    if run == "predict":
        found.update(LOADS)
    return found


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _function(run: str) -> Any:
    if run == "simulate":
        from specsim.commands.simulate import simulate

        return simulate
    from specsim.commands.predict import predict

    return predict


@cache
def _defaults(run: str) -> dict[str, Any]:
    parameters = inspect.signature(_function(run)).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "context"}


def option_name(name: str, run: str, where: str) -> str:
    """The option's name as the functions have it; UsageError with near matches."""
    plain = name.strip().lstrip("-").replace("-", "_")
    plain = ALIASES.get(plain, plain)
    known = option_types(run)
    if plain in known:
        return plain
    if plain in OUTPUTS or plain in ("json", "csv"):
        raise UsageError(
            f"{where}: {shown(name)} says where one result goes; a sweep has --out, --json and "
            "--csv of its own"
        )
    near = get_close_matches(plain, known, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"{where}: {shown(name)} is not an option of specsim {run}; {hint}see "
        f"`specsim {run} --help`"
    )


def option_value(name: str, value: Any, run: str, where: str) -> Any:
    """A value as the option wants it; UsageError that names the value and the rule."""
    kind = option_types(run)[name]
    if name in LISTS and isinstance(value, list):
        if value and all(_is_number(x) for x in value):
            return ",".join(repr(x) for x in value)
    elif kind is float and _is_number(value):
        found = real(value)
        if found is not None and not math.isnan(found):
            return found
    elif kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
    elif isinstance(value, kind):
        if not isinstance(value, int) or abs(value) <= MAX_WHOLE:
            return value
    elif kind is str and name in LISTS and _is_number(value):
        return repr(value)
    raise UsageError(f"{where}: {name} is {shown_value(value)}; it must be {WORDS[kind]}")


def parse_value(name: str, text: str, run: str, where: str) -> Any:
    """A value typed on the command line."""
    kind = option_types(run)[name]
    word = text.strip()
    try:
        if kind is bool:
            return {"true": True, "false": False}[word.lower()]
        found = kind(word)
        beyond = isinstance(found, int) and abs(found) > MAX_WHOLE
        if beyond or (isinstance(found, float) and math.isnan(found)):
            raise ValueError
        return found
    except (KeyError, ValueError):
        raise UsageError(f"{where}: {name} is {shown(word)}; it must be {WORDS[kind]}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

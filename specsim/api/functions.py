"""The Python functions, made of the use cases that take an object with options.

    def run(options: PredictOptions) -> Prediction: ...
    predict = python_function(PredictOptions, run)

`predict("qwen3.6-27b", concurrency=[1, 8])` has the names, types and defaults of the model's
fields; type checkers see them.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from specsim.errors import UsageError
from specsim.options.declare import OptionSet, declared
from specsim.options.values import shown_value

P = ParamSpec("P")
R = TypeVar("R")
Result_co = TypeVar("Result_co", covariant=True)
O = TypeVar("O", bound=OptionSet)  # noqa: E741

_RULES = """

Options are those of `specsim {name}`. Raises `specsim.errors.SpecSimError` for whatever a caller
can correct."""


class ModelFunction(Protocol[P, Result_co]):
    """A function of the Python interface: the model first, options by name."""

    def __call__(
        self, model: str | Path | None = None, *args: P.args, **kwargs: P.kwargs
    ) -> Result_co: ...


def named_function(options: Callable[P, O], run: Callable[[O], R]) -> Callable[P, R]:
    """A function that takes its options by name, and calls `run` with them, checked."""
    kind: type[O] = options  # type: ignore[assignment]

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        kind.known(kwargs)
        return run(kind(**kwargs))

    _describe(call, kind, run)
    return call


def python_function(options: Callable[P, O], run: Callable[[O], R]) -> ModelFunction[P, R]:
    """The same for a function whose first argument is the model."""
    inner = named_function(options, run)

    def call(model: str | Path | None = None, *args: P.args, **kwargs: P.kwargs) -> R:
        if model is not None and not isinstance(model, str | Path):
            raise UsageError(f"model is {shown_value(model)}; it must be text")
        if model is not None:
            kwargs["model"] = model
        return inner(*args, **kwargs)

    _describe(call, options, run)  # type: ignore[arg-type]
    return call


def _describe(call: object, options: type[O], run: Callable[[O], R]) -> None:
    """What `help()` shows."""
    keyword, place = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = next(iter(declared(options)))
    parameters = [
        inspect.Parameter(
            name, place if name == first == "model" else keyword,
            default=inspect.Parameter.empty if item.required else item.default,
            annotation=options.model_fields[name].annotation,
        )
        for name, item in declared(options).items()
    ]
    returned = inspect.signature(run).return_annotation
    told = {
        "__name__": options.NAME.replace(" ", "_"),
        "__qualname__": options.NAME.replace(" ", "_"),
        "__module__": run.__module__,
        "__doc__": inspect.cleandoc(run.__doc__ or "") + _RULES.format(name=options.NAME),
        "__signature__": inspect.Signature(parameters, return_annotation=returned),
    }
    for name, value in told.items():
        setattr(call, name, value)

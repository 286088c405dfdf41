"""specsim: what speculative decoding will do for an LLM, on a GPU, under a load.

    import specsim
    result = specsim.predict("qwen3.6-27b", weights="fp8", gpu="h200-sxm", concurrency=[1, 16, 64])
    print(result)                # the table of `specsim predict`
    result.points[0].speedup     # typed fields
    result.to_frame()            # pandas or polars

Functions take the options of the commands of the same name; errors that a caller can correct are
`specsim.errors.SpecSimError`. Everything is loaded at first use: the import itself costs nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.api.bench import BenchRuns, read_bench
    from specsim.api.calibrate import Calibration, calibrate
    from specsim.api.capacity import Capacity, capacity
    from specsim.api.compare import Comparison, compare
    from specsim.api.crossover import Crossover, crossover
    from specsim.api.diagnose import Diagnoses, diagnose
    from specsim.api.explain import Explanation, explain
    from specsim.api.fleet import Fleet, fleet
    from specsim.api.gpus import Gpu, Gpus, gpus
    from specsim.api.matrix import Matrix, matrix
    from specsim.api.models import Model, Models, models
    from specsim.api.pareto import Pareto, pareto
    from specsim.api.policies import Policies, policies
    from specsim.api.predict import Prediction, predict
    from specsim.api.quick import QuickLook, quick
    from specsim.api.report import report
    from specsim.api.simulate import Simulation, simulate
    from specsim.api.sweep import SweepResult, sweep
    from specsim.api.tune import Tuning, tune
    from specsim.api.validate_bench import validate_bench
    from specsim.api.validate_live import validate_live
    from specsim.api.validate_published import PublishedScores, validate_published
    from specsim.api.validate_records import validate_records
    from specsim.api.validation import Validation
    from specsim.errors import SpecSimError
    from specsim.version import __version__

__all__ = [
    "BenchRuns",
    "Calibration",
    "Capacity",
    "Comparison",
    "Crossover",
    "Diagnoses",
    "Explanation",
    "Fleet",
    "Gpu",
    "Gpus",
    "Matrix",
    "Model",
    "Models",
    "Pareto",
    "Policies",
    "Prediction",
    "PublishedScores",
    "QuickLook",
    "Simulation",
    "SpecSimError",
    "SweepResult",
    "Tuning",
    "Validation",
    "__version__",
    "calibrate",
    "capacity",
    "compare",
    "crossover",
    "diagnose",
    "explain",
    "fleet",
    "gpus",
    "matrix",
    "models",
    "pareto",
    "policies",
    "predict",
    "quick",
    "read_bench",
    "report",
    "simulate",
    "sweep",
    "tune",
    "validate_bench",
    "validate_live",
    "validate_published",
    "validate_records",
]
_PLACES = {
    "__version__": "version",
    "BenchRuns": "api.bench",
    "Calibration": "api.calibrate",
    "Capacity": "api.capacity",
    "Comparison": "api.compare",
    "Crossover": "api.crossover",
    "Diagnoses": "api.diagnose",
    "Explanation": "api.explain",
    "Fleet": "api.fleet",
    "Gpu": "api.gpus",
    "Gpus": "api.gpus",
    "Matrix": "api.matrix",
    "Model": "api.models",
    "Models": "api.models",
    "Pareto": "api.pareto",
    "Policies": "api.policies",
    "Prediction": "api.predict",
    "PublishedScores": "api.validate_published",
    "QuickLook": "api.quick",
    "Simulation": "api.simulate",
    "SpecSimError": "errors",
    "SweepResult": "api.sweep",
    "Tuning": "api.tune",
    "Validation": "api.validation",
    "read_bench": "api.bench",
}
_PLACES |= {name: f"api.{name}" for name in __all__ if name not in _PLACES}  # functions


class _Called(ModuleType):
    """A part of the package that is also a function: `specsim.report.tables` is a module of it,
    `specsim.report(...)` writes a page."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(f"specsim.{_PLACES[name]}"), name)(*args, **options)


class _Package(ModuleType):
    """Importing a part sets it as an attribute here, over a function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PLACES and type(value) is ModuleType:
            value.__class__ = _Called
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("calibrate", "diagnose", "report"):
        return import_module(f"{__name__}.{name}")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

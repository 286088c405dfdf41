"""`specsim.matrix`: what one GPU sustains, for models x GPUs."""

from collections.abc import Callable
from typing import Any

from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.api.functions import named_function
from specsim.api.requests import build_workload
from specsim.api.results import Result, flat
from specsim.errors import UsageError
from specsim.hardware.store import list_profiles
from specsim.jsonable import Key
from specsim.options.analytic import MatrixOptions
from specsim.options.groups import DeploymentOptions
from specsim.options.repeat import repeat
from specsim.options.values import Words, as_text, profile_folder, shown
from specsim.planning import matrix as planning

MAX_NAMES = 400
FLOOR = 20.0  # tokens/s of a stream where nothing else is asked for


class Matrix(Result, planning.MatrixFigures):
    """Models x GPUs as `cells`, each with and without speculation."""

    BLOCKS = "matrix.matrix_section"
    operating_point = Key[dict[str, Any]]()

    def to_rows(self) -> list[dict[str, object]]:
        return [flat(cell.row()) for cell in self.cells]


class MatrixStudy:
    """Checked rows and columns; `run` fills the cells."""

    def __init__(self, options: MatrixOptions) -> None:
        folder = profile_folder(options.profiles)
        self.options = options
        self.models = _names(options.models, "--models")
        self.gpus = _names(options.gpus, "--gpus")
        if self.gpus == ["all"]:
            self.gpus = [profile.name for profile in list_profiles(folder)]

    def run(self, report: Callable[[int, int], None] | None = None) -> Matrix:
        """report: told (cells done, all) while it goes on."""
        options = self.options
        floor = FLOOR if options.stream_floor is None else options.stream_floor
        workload = build_workload(self._deployment(self.models[0], self.gpus[0], 1))
        point = planning.OperatingPoint(
            workload, options.think, 0.0 if options.concurrency is not None else floor,
            options.ttft or 0.0, options.concurrency or 0,
        )
        found = planning.matrix(self.models, self.gpus, self._build, point, options.tp, report)
        return Matrix.of(found, repeat(options))

    def _deployment(self, model: str, gpu: str, tp: int) -> DeploymentOptions:
        name, form = split_format(model)
        asked = DeploymentOptions.of(self.options).but(model=name, gpu=gpu, tp=tp)
        return asked.but(weights=form) if form else asked

    def _build(self, model: str, gpu: str, tp: int) -> tuple[System, tuple[str, ...]]:
        found = build_request(self._deployment(model, gpu, tp))
        return found.system, found.warnings


def run(options: MatrixOptions) -> Matrix:
    """Sustained tokens/s per GPU and users per GPU for `models` x `gpus`."""
    return MatrixStudy(options).run()


matrix = named_function(MatrixOptions, run)


def split_format(model: str) -> tuple[str, str]:
    """NAME:WEIGHTS as (name, weights); a colon inside a path belongs to the path."""
    name, sign, form = model.rpartition(":")
    if not sign or "/" in form:
        return model, ""
    if not form.strip():
        raise UsageError(f"--models has {shown(model)}; name a weight format behind the colon")
    return name, form


def _names(given: Words, flag: str) -> list[str]:
    text = as_text(given)
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} is {shown(text)}; it must be names separated by commas")
    if len(names) > MAX_NAMES:
        raise UsageError(f"{flag} has {len(names)} names; give at most {MAX_NAMES}")
    return list(dict.fromkeys(names))

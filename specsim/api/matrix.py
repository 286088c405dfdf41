"""`specsim.matrix`: what one GPU sustains, for models x GPUs."""

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
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.values import Words, parse_names, profile_folder, shown
from specsim.planning import matrix as planning
from specsim.report.progress import task_bar

MAX_NAMES = 400
SHOW_BAR_FROM = 60  # cells; about two seconds
FLOOR = 20.0  # tokens/s of a stream where nothing else is asked for


class Matrix(Result, planning.MatrixFigures):
    """Models x GPUs as `cells`, each with and without speculation."""

    BLOCKS = "matrix.matrix_section"
    operating_point = Key[dict[str, Any]]()

    def to_rows(self) -> list[dict[str, object]]:
        return [flat(cell.row()) for cell in self.cells]


def run(options: MatrixOptions, bar: bool = False) -> Matrix:
    """Sustained tokens/s per GPU and users per GPU for `models` x `gpus`."""
    folder = profile_folder(options.profiles)
    models, gpus = _names(options.models, "--models"), _names(options.gpus, "--gpus")
    if gpus == ["all"]:
        gpus = [profile.name for profile in list_profiles(folder)]
    given = DeploymentOptions.of(options)

    def deployment(model: str, gpu: str, tp: int) -> DeploymentOptions:
        name, form = split_format(model)
        asked = given.but(model=name, gpu=gpu, tp=tp)
        return asked.but(weights=form) if form else asked

    def build(model: str, gpu: str, tp: int) -> tuple[System, tuple[str, ...]]:
        found = build_request(deployment(model, gpu, tp))
        return found.system, found.warnings

    floor = FLOOR if options.stream_floor is None else options.stream_floor
    point = planning.OperatingPoint(
        build_workload(deployment(models[0], gpus[0], 1)), options.think,
        0.0 if options.concurrency is not None else floor, options.ttft or 0.0,
        options.concurrency or 0,
    )
    with task_bar(bar and len(models) * len(gpus) >= SHOW_BAR_FROM, "cells") as report:
        found = planning.matrix(models, gpus, build, point, options.tp, report)
    return Matrix.of(found, repeat(options))


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
    names = parse_names(given, flag)
    if len(names) > MAX_NAMES:
        raise UsageError(f"{flag} has {len(names)} names; give at most {MAX_NAMES}")
    return names

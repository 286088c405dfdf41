"""`specsim.fleet`: several models with their demand on a pool of GPUs, from a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.api.functions import named_function
from specsim.api.requests import build_workload
from specsim.api.results import Result, flat
from specsim.errors import SpecSimError, UsageError
from specsim.files import check_writable, write_whole
from specsim.formats.traces import read_trace
from specsim.hardware.store import load_profile
from specsim.jsonable import Key, json_text
from specsim.latency.engine import find_engine
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.sizing import FleetOptions
from specsim.options.tables import from_table
from specsim.options.values import profile_folder
from specsim.planning import fleet_result as planning
from specsim.planning.capacity_loads import Arrivals, LoadShape, People
from specsim.planning.capacity_runs import default_jobs
from specsim.planning.fleet import plan_fleet
from specsim.planning.fleet_day import check_day, plan_day
from specsim.planning.fleet_day_file import trace_day
from specsim.planning.fleet_file import Wanted, read_fleet
from specsim.planning.fleet_size import Asked, Effort, gates_of, planner_profile
from specsim.report.doc import Doc
from specsim.report.export_fleet import EXPORTED, fleet_files, kube_name
from specsim.report.progress import words_line
from specsim.sim.scenario import find_scenario

STAGE_S, WARMUP_S = 300.0, 60.0
MAX_WHOLE = 1_000_000_000_000


class Fleet(Result, planning.FleetFigures):
    """Endpoints of a pool: `endpoints`, `does_not_fit`, `gpus`, ..."""

    BLOCKS = "fleet.fleet_section"
    method = Key[str]()
    does_not_fit = Key[list[dict[str, str]]]()
    gpus = Key[list[dict[str, Any]]]()
    empty_gpus = Key[dict[str, int]]()

    def to_rows(self) -> list[dict[str, object]]:
        """Of the day where there is one, by model and hour; else of the endpoints."""
        if self.day is not None:
            return [flat(row) for row in self.day.rows()]
        return [flat(endpoint.row()) for endpoint in self.endpoints]


def run(options: FleetOptions, bar: bool = False) -> Fleet:
    """Plan the endpoints of a fleet `file`: models with their demand on a pool of GPUs."""
    count = default_jobs() if options.jobs is None else options.jobs
    folder = profile_folder(options.profiles)
    file = read_fleet(str(options.file), lambda path: trace_day(read_trace(path), path.name))
    by_hour = options.day or options.export is not None or file.day is not None
    if options.export is not None:
        check_writable(Path(options.export) / EXPORTED, "--export")
    if by_hour:
        check_day(file)
    devices = {pool.type: load_profile(pool.type, folder) for pool in file.gpus}
    warnings: list[str] = []
    asked: dict[str, Asked] = {}
    for model in file.models:
        try:
            deployment = _deployment(model, folder)
            find_engine(deployment.engine)  # a misspelt one is no misfit
            shape = _shape(model, deployment)
            asked[model.name] = _asked(model, deployment, shape, warnings)
        except SpecSimError as error:
            place = f"model {model.name}: "
            raise UsageError(place + str(error).removeprefix(place)) from None
    with words_line(bar, "planning") as tell:
        effort = Effort(options.quick, options.seed, count)
        found = plan_fleet(file, asked, devices, effort, tell=tell, warnings=warnings)
        if by_hour:
            try:
                effort = replace(effort, quick=effort.quick or found.partial)
                found = plan_day(file, asked, found, devices, effort, tell)
            except KeyboardInterrupt:
                found = plan_day(file, asked, found, devices, Effort(quick=True), tell)
                told = "interrupted: without speculation capacities are by formulas"
                found = replace(found, partial=True, warnings=(*found.warnings, told))
    result = Fleet.of(found, repeat(options))
    if options.export is not None:
        _write(result, Path(options.export))
    return result


fleet = named_function(FleetOptions, run)


def _write(result: Fleet, folder: Path) -> None:
    """The day for other planners: YAML, and a folder per model of Dynamo's profiler."""
    for name, text in fleet_files(Doc(result.to_dict())).items():
        write_whole(folder / name, text)
    for endpoint in result.endpoints:
        tables = planner_profile(endpoint.sized)
        for name, table in zip(("prefill", "decode"), tables, strict=True):
            path = folder / "dynamo" / kube_name(endpoint.sized.name) / f"{name}_raw_data.json"
            write_whole(path, json_text(table, indent=1) + "\n")


def _deployment(model: Wanted, profiles: str | None) -> DeploymentOptions:
    """The options of a model, GPU and TP left open."""
    found = from_table(DeploymentOptions, model.options, f"model {model.name}:", MAX_WHOLE)
    return DeploymentOptions.of_values({"profiles": profiles, **found})


def _shape(model: Wanted, options: DeploymentOptions) -> LoadShape:
    scenario = None if model.scenario is None else find_scenario(model.scenario)
    usual_s, warm_s = (
        (STAGE_S, WARMUP_S) if scenario is None else (scenario.duration_s, scenario.warmup_s)
    )
    duration_s = usual_s if model.duration_s is None else model.duration_s
    warmup_s = min(warm_s, duration_s / 2) if model.warmup_s is None else model.warmup_s
    if not warmup_s < duration_s:
        raise UsageError(
            f"warmup_s is {warmup_s:g}; it must be below the {duration_s:g} s of a run"
        )
    if scenario is not None:
        return People(scenario.behaviour, duration_s, warmup_s, scenario.name, scenario.thinking)
    return Arrivals(
        build_workload(options), duration_s, warmup_s, model.burstiness, model.range_ratio,
        stretch=model.duration_s is None and model.warmup_s is None,
    )


def _asked(
    model: Wanted, options: DeploymentOptions, shape: LoadShape, warnings: list[str]
) -> Asked:
    slo = dict(model.slo)
    if not slo and model.scenario is not None:
        slo = dict(find_scenario(model.scenario).slo)
        warnings.append(
            f"{model.name}: no slo is given; that of scenario {model.scenario} is taken: "
            + ", ".join(f"{gate} {limit:g}" for gate, limit in slo.items())
        )
    if not slo and not model.stream_floor:
        raise UsageError(
            f"model {model.name} has neither slo nor stream_floor, so any load would do; give one, "
            "such as slo = { ttft_p95 = 2 }"
        )

    def build(gpu: str, tp: int) -> System:
        request = build_request(options.but(gpu=gpu, tp=tp))
        for text in request.warnings:
            note = f"{model.name}: {text}"
            if note not in warnings:
                warnings.append(note)
        return request.system

    settings = () if model.max_model_len is None else (("max_model_len", model.max_model_len),)
    asked = Asked(
        model.name, build, shape, slo, model.stream_floor, _demand(model, options), model.tp or 0,
        options.max_num_seqs or 0, options.k is not None, settings,
    )
    if "queue_p95" in gates_of(asked) and "queue_p95" not in slo:
        warnings.append(
            f"{model.name}: no SLO limits waiting, so queue_p95 = 10 s is added: nothing else "
            "would bound the load"
        )
    return asked


def _demand(model: Wanted, options: DeploymentOptions) -> float:
    if model.demand == "tokens_per_s":
        return model.amount / build_workload(options).output_len
    return model.amount

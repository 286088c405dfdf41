"""`specsim fleet`, from a checked file to models that can be sized: systems, loads, demands."""

from collections.abc import Mapping
from typing import Any

from specsim.analytic.system import System
from specsim.api.deployment import build_request, build_workload
from specsim.commands.options import Options, profile_folder
from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.planning.capacity_loads import Arrivals, LoadShape, People
from specsim.planning.capacity_runs import default_jobs
from specsim.planning.fleet import plan_fleet
from specsim.planning.fleet_file import Wanted, read_fleet
from specsim.planning.fleet_result import Fleet
from specsim.planning.fleet_size import Asked, gates_of
from specsim.planning.values import real, shown
from specsim.report.progress import words_line
from specsim.sim.scenario import find_scenario

STAGE_S, WARMUP_S = 300.0, 60.0
MAX_JOBS = 64
MAX_WHOLE = 1_000_000_000_000
# Key of a fleet's model -> (option, type).
_OPTIONS: dict[str, tuple[str, type]] = {
    "weights": ("weights", str),
    "kv": ("kv", str),
    "ep": ("ep", int),
    "method": ("method", str),
    "draft": ("draft", str),
    "num_speculative_tokens": ("k", int),
    "acceptance_rate": ("acceptance_rate", float),
    "acceptance_mean_rate": ("acceptance_mean", float),
    "acceptance_length": ("acceptance_length", float),
    "max_num_seqs": ("max_num_seqs", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "fidelity": ("fidelity", str),
    "workload": ("workload", str),
    "input_len": ("input_len", int),
    "output_len": ("output_len", int),
    "cached_share": ("cached_share", float),
}
_LISTS = {"acceptance": "acceptance", "acceptance_conditional": "acceptance_conditional"}


def run(
    path: str, *, quick: bool, seed: int, jobs: int | None, profiles: str | None, bar: bool
) -> Fleet:
    """Read the file, build what it names, plan."""
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"--seed is {seed}; it must be from 0 to {(1 << 32) - 1}")
    count = default_jobs() if jobs is None else jobs
    if not 1 <= count <= MAX_JOBS:
        raise UsageError(f"--jobs is {count}; it must be from 1 to {MAX_JOBS}")
    folder = profile_folder(profiles)
    file = read_fleet(path)
    devices = {pool.gpu: load_profile(pool.gpu, folder) for pool in file.pools}
    warnings: list[str] = []
    asked: dict[str, Asked] = {}
    demands: dict[str, float] = {}
    for model in file.models:
        options = _options(model, profiles)
        find_engine(options.engine)  # a misspelt one is no misfit
        shape = _shape(model, options)
        asked[model.name] = _asked(model, options, shape, warnings)
        demands[model.name] = _demand(model, options, shape)
    with words_line(bar, "planning") as tell:
        return plan_fleet(
            file, asked, demands, devices, quick=quick, seed=seed, jobs=count, tell=tell,
            warnings=warnings,
        )


def _options(model: Wanted, profiles: str | None) -> Options:
    """The options of a model, GPU and TP left open."""
    out: dict[str, Any] = {}
    given: Mapping[str, Any] = {**model.served, **model.traffic}
    for key, value in given.items():
        if key in _LISTS:
            out[_LISTS[key]] = _rates(model, key, value)
        elif key in _OPTIONS:
            option, kind = _OPTIONS[key]
            out[option] = _typed(model, key, value, kind)
    engine, version = given.get("engine", "vllm"), given.get("engine_version")
    engine = _typed(model, "engine", engine, str)
    if version is not None:
        engine = f"{engine}=={_typed(model, 'engine_version', version, str)}"
    name = _typed(model, "model", given["model"], str)
    return Options(model=name, engine=engine, profiles=profiles, **out)


def _typed(model: Wanted, key: str, value: Any, kind: type) -> Any:
    found = real(value) if kind is float else value
    # Nothing here counts beyond this, and an error repeats the number.
    huge = kind is int and isinstance(value, int) and abs(value) > MAX_WHOLE
    if not isinstance(found, kind) or isinstance(found, bool) or huge:
        names = {str: "text", int: f"a whole number up to {MAX_WHOLE:g}", float: "a number"}
        raise UsageError(f"model {model.name}: {key} is {shown(value)}; it must be {names[kind]}")
    return found


def _rates(model: Wanted, key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    numbers = isinstance(value, list) and value and all(
        real(x) is not None for x in value
    )
    if not numbers:
        raise UsageError(
            f"model {model.name}: {key} is {shown(value)}; it must be a list of numbers"
        )
    return ",".join(repr(real(x)) for x in value)


def _shape(model: Wanted, options: Options) -> LoadShape:
    traffic = model.traffic

    def seconds(key: str, default: float) -> float:
        value = float(_typed(model, key, traffic.get(key, default), float))
        if not 0 <= value <= 1e6:
            raise UsageError(f"model {model.name}: {key} is {value:g}; it must be 0 to 1000000 s")
        return value

    if model.scenario is not None:
        scenario = find_scenario(model.scenario)
        duration_s = seconds("duration_s", scenario.duration_s)
        warmup_s = seconds("warmup_s", min(scenario.warmup_s, duration_s / 2))
        _check_stage(model, duration_s, warmup_s)
        return People(
            scenario.behaviour, duration_s, warmup_s, scenario.name, scenario.thinking
        )
    duration_s = seconds("duration_s", STAGE_S)
    warmup_s = seconds("warmup_s", min(WARMUP_S, duration_s / 2))
    _check_stage(model, duration_s, warmup_s)
    burstiness = float(_typed(model, "burstiness", traffic.get("burstiness", 1.0), float))
    ratio = float(_typed(model, "range_ratio", traffic.get("range_ratio", 0.0), float))
    if not burstiness > 0 or not 0 <= ratio < 1:
        raise UsageError(
            f"model {model.name}: burstiness is {burstiness:g} and range_ratio {ratio:g}; they "
            "must be above 0, and from 0 to below 1"
        )
    free = "duration_s" not in traffic and "warmup_s" not in traffic
    return Arrivals(
        build_workload(options), duration_s, warmup_s, burstiness, ratio, stretch=free
    )


def _check_stage(model: Wanted, duration_s: float, warmup_s: float) -> None:
    if not warmup_s < duration_s:
        raise UsageError(
            f"model {model.name}: warmup_s is {warmup_s:g}; it must be below the {duration_s:g} s "
            "of a run"
        )


def _asked(model: Wanted, options: Options, shape: LoadShape, warnings: list[str]) -> Asked:
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
        from dataclasses import replace

        request = build_request(replace(options, gpu=gpu, tp=tp))
        for text in request.warnings:
            note = f"{model.name}: {text}"
            if note not in warnings:
                warnings.append(note)
        return request.system

    served = model.served
    settings: tuple[tuple[str, Any], ...] = ()
    if "max_model_len" in served:
        longest = _typed(model, "max_model_len", served["max_model_len"], int)
        if not 1 <= longest <= 100_000_000:
            raise UsageError(
                f"model {model.name}: max_model_len is {longest}; it must be 1 to 100000000"
            )
        settings = (("max_model_len", longest),)
    tp = 0
    if "tp" in served:
        tp = _typed(model, "tp", served["tp"], int)
        if not 1 <= tp <= 1024:
            raise UsageError(
                f"model {model.name}: tp is {tp}; it must be from 1 to 1024, or left out"
            )
    asked = Asked(
        model.name, build, shape, slo, model.stream_floor, tp, options.max_num_seqs or 0,
        options.k is not None, settings,
    )
    if "queue_p95" in gates_of(asked) and "queue_p95" not in slo:
        warnings.append(
            f"{model.name}: no gate is about waiting, so queue_p95 = 10 s is added: nothing else "
            "would bound the load"
        )
    return asked


def _demand(model: Wanted, options: Options, shape: LoadShape) -> float:
    if model.demand == "tokens_per_s":
        return model.amount / build_workload(options).output_len
    return model.amount

"""Names, types and defaults of what the functions of `import specsim` accept.

They are those of the command line (a test compares them): `gpu=` is `--gpu`, `max_num_seqs=` is
`--max-num-seqs`. Where the command line takes a list in text ("1,8,64"), Python may give a list;
for the gates of `slo` a mapping; for vLLM's `speculative_config` its dict.
"""

import json
import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, Union, get_args, get_origin, get_type_hints

from specsim.api.options import Options, shown
from specsim.errors import UsageError

Numbers = str | float | Sequence[float]  # text with commas, one number or several
Words = str | Sequence[str]


class Plan(TypedDict, total=False):
    """The model's place: device, engine, drafting, what is accepted."""

    gpu: str
    ep: int
    attention_dp: int
    engine: str
    method: str | None
    draft: str | None
    k: int | None
    acceptance: Numbers | None
    acceptance_conditional: Numbers | None
    acceptance_rate: float | None
    acceptance_mean: float | None
    acceptance_length: float | None
    draft_share: float
    exit_layers: int
    workload: str | None
    input_len: int | None
    output_len: int | None
    cached_share: float
    gpu_memory_utilization: float | None
    fidelity: str
    profiles: str | Path | None


class Serving(Plan, total=False):
    """One deployment, with its limits."""

    command: str | None
    tp: int
    weights: str | None
    kv: str | None
    speculative_config: str | Mapping[str, Any] | None
    tree: str | Sequence[int] | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None


class PredictOptions(Serving, total=False):
    concurrency: Numbers | None
    rate: Numbers | None


class TuneOptions(Serving, total=False):
    concurrency: Numbers | None
    rate: Numbers | None
    objective: str
    slo: str | Mapping[str, float] | None
    methods: Words | None
    max_k: int
    acceptance_range: str | Sequence[float] | None
    mix: str | None
    max_memory: float | None


class CrossoverOptions(Serving, total=False):
    contexts: str | int | Sequence[int] | None
    max_concurrency: int | None
    cheap_share: float


class ParetoOptions(Plan, total=False):
    ks: Numbers | None
    tps: Numbers | None
    weights: Words | None
    kv: Words | None
    max_num_seqs: Numbers | None
    max_num_batched_tokens: Numbers | None
    max_ttft: float | None
    stream_floor: float | None


class RunOptions(Serving, total=False):
    """What `simulate` and `capacity` share."""

    scenario: str | Path | None
    slo: str | Mapping[str, float] | None
    duration: float | None
    warmup: float | None
    burstiness: float | None
    range_ratio: float | None
    seed: int
    replications: int
    baseline: bool
    easiness: str | None
    max_concurrent: int
    max_model_len: int | None
    prefix_caching: bool | None
    users: int | None
    rate: float | None


class SimulateOptions(RunOptions, total=False):
    concurrency: int | None
    trace: str | Path | None
    sort_trace: bool
    requests: int | None
    precision: float | None
    adaptive: bool
    replicas: int
    router: str
    fail: str | None
    request_timeout: float | None
    trace_out: str | Path | None
    records: str | Path | None
    export: str | Path | None
    export_vllm_bench: str | Path | None
    export_prometheus: str | Path | None


class CapacityOptions(RunOptions, total=False):
    demand: str | Path | None
    unit: str | None
    ladder: Numbers | None
    stream_floor: float | None
    no_stream_floor: bool
    operating_share: float
    price_per_gpu_hour: float | None
    resolution: float
    jobs: int | None


OPTIONS: dict[str, type] = {
    "predict": PredictOptions,
    "tune": TuneOptions,
    "crossover": CrossoverOptions,
    "pareto": ParetoOptions,
    "simulate": SimulateOptions,
    "capacity": CapacityOptions,
}
# Defaults besides those of `Options`; what is not named here is None.
_OWN: dict[str, dict[str, Any]] = {
    "predict": {},
    "tune": {"objective": "throughput", "max_k": 8},
    "crossover": {"cheap_share": 0.5},
    "pareto": {},
    "simulate": {
        "sort_trace": False, "seed": 0, "replications": 1, "baseline": True, "adaptive": False,
        "replicas": 1, "router": "round_robin", "max_concurrent": 0,
    },
    "capacity": {
        "no_stream_floor": False, "operating_share": 0.8, "resolution": 0.05, "replications": 24,
        "seed": 0, "baseline": True, "max_concurrent": 0,
    },
}
_NAMES = {
    int: "a whole number", float: "a number", str: "text", bool: "True or False",
    Path: "a path", Sequence: "a list", Mapping: "a mapping",
}


@cache
def defaults(name: str) -> dict[str, Any]:
    """Every option of a function with its default, `model` included. Do not change the dict."""
    plain = vars(Options(""))
    own = _OWN[name]
    return {"model": None} | {
        option: own.get(option, plain.get(option)) for option in _kinds(name)
    }


@cache
def _kinds(name: str) -> dict[str, tuple[Any, ...]]:
    """Option -> the classes that its values may have."""
    found: dict[str, tuple[Any, ...]] = {}
    for option, hint in get_type_hints(OPTIONS[name]).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        found[option] = tuple(get_origin(part) or part for part in parts)
    return found


def filled(name: str, model: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """All values of a function by name: checked, as the command line has them.

    UsageError for an unknown name (with near matches) or a value of the wrong kind."""
    kinds = _kinds(name)
    if model is not None and not isinstance(model, str | Path):
        raise UsageError(f"model is {shown_value(model)}; it must be text")
    values = {**defaults(name), "model": None if model is None else str(model)}
    for option, value in given.items():
        if option not in kinds:
            near = get_close_matches(option, kinds, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"see help(specsim.{name})"
            raise UsageError(f"specsim.{name} has no option {option!r}; {hint}")
        values[option] = _plain(option, value, kinds[option])
    return values


def shown_value(value: Any) -> str:
    """Any value as an error shows it."""
    return shown(value) if isinstance(value, str) else shown(repr(value))[1:-1]


def _plain(option: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """One value as the command line would have parsed it."""
    known = tuple(kind for kind in kinds if kind is not type(None))
    if value is None and type(None) in kinds:
        return None
    number = _number(value)
    if number is not None and (float in known or (int in known and isinstance(number, int))):
        return f"{number:.17g}" if str in known else (float(number) if float in known else number)
    if isinstance(value, bool):
        if bool in known:
            return value
    elif isinstance(value, str | Path) and str in known:
        return str(value)
    elif isinstance(value, Mapping) and Mapping in known:
        if option == "slo":
            return ",".join(f"{gate}={limit}" for gate, limit in value.items())
        return json.dumps(value)
    elif Sequence in known and _several(value):
        return ",".join(_word(option, item) for item in value)
    words = " or ".join(dict.fromkeys(_NAMES[kind] for kind in known))
    raise UsageError(f"{option} is {shown_value(value)}; it must be {words}")


def _word(option: str, item: Any) -> str:
    number = _number(item)
    if number is not None:
        return f"{number:.17g}"
    if isinstance(item, str):
        return item
    raise UsageError(f"{option} has {shown_value(item)}; it must be numbers or text")


def _number(value: Any) -> int | float | None:
    """A number of Python or NumPy as a plain one; None for everything else."""
    if isinstance(value, bool | str | Path) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    scalar = getattr(value, "item", None)  # NumPy's scalars
    if scalar is None or getattr(value, "shape", ()) != ():
        return None
    plain = scalar()
    return plain if isinstance(plain, int | float) and not isinstance(plain, bool) else None


def _several(value: Any) -> bool:
    """Lists, tuples, ranges, arrays and the like; no text, mappings or raw bytes."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping)

"""A scenario on the command line: its system as options that flags override, and its people."""

from collections.abc import Mapping
from typing import Any

from specsim.api.options import shown
from specsim.errors import UsageError
from specsim.sim.compare import LoadPlan
from specsim.sim.humans import behaviour_to_dict
from specsim.sim.scenario import Scenario
from specsim.sim.spread import chat_contexts

Values = dict[str, Any]
DEFAULT_SCENARIO = "mindrouter-chat"  # whose people --users alone means
# Key of [system] -> (option, type).
_OPTIONS: dict[str, tuple[str, type]] = {
    "model": ("model", str),
    "gpu": ("gpu", str),
    "tp": ("tp", int),
    "ep": ("ep", int),
    "weights": ("weights", str),
    "kv": ("kv", str),
    "max_model_len": ("max_model_len", int),
    "max_num_seqs": ("max_num_seqs", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "method": ("method", str),
    "draft": ("draft", str),
    "num_speculative_tokens": ("k", int),
    "acceptance_rate": ("acceptance_rate", float),
    "acceptance_mean_rate": ("acceptance_mean", float),
    "acceptance_length": ("acceptance_length", float),
    "easiness": ("easiness", str),
    "replicas": ("replicas", int),
    "router": ("router", str),
    "max_concurrent": ("max_concurrent", int),
}
_RATES = {"acceptance": "acceptance", "acceptance_conditional": "acceptance_conditional"}
_ACCEPTANCE = frozenset(
    {"acceptance", "acceptance_conditional", "acceptance_rate", "acceptance_mean",
     "acceptance_length"}
)
_SPECULATION = _ACCEPTANCE | {"method", "draft", "k", "easiness"}
# What a flag puts aside besides the option of its own name: another model has other drafters, and
# another drafter other acceptance.
_PUTS_ASIDE: dict[str, frozenset[str]] = {
    "model": _SPECULATION | {"weights", "kv", "max_model_len"},
    "method": _SPECULATION,
    "speculative_config": _SPECULATION,
    "draft": _ACCEPTANCE | {"method", "easiness"},
    **dict.fromkeys(_ACCEPTANCE, _ACCEPTANCE),
}


def with_scenario(values: Values, given: frozenset[str], scenario: Scenario) -> Values:
    """The options with those of the scenario where the command line has none."""
    aside = set(given)
    for name in given:
        aside |= _PUTS_ASIDE.get(name, frozenset())
    out = dict(values)
    for name, value in _system_options(scenario.system, scenario.name).items():
        if name not in aside:
            out[name] = value
    return out


def _system_options(system: Mapping[str, Any], where: str) -> Values:
    """[system] as options, checked for type; ranges are checked where options are."""
    out: Values = {}
    for key, value in system.items():
        if key in _RATES:
            out[_RATES[key]] = _rates(value, key, where)
        elif key in _OPTIONS:
            option, kind = _OPTIONS[key]
            accepted = (int, float) if kind is float else kind
            if not isinstance(value, accepted) or isinstance(value, bool):
                names = {str: "text", int: "a whole number", float: "a number"}
                raise UsageError(
                    f"scenario {where}: [system] {key} is {shown(repr(value))}; it must be "
                    f"{names[kind]}"
                )
            out[option] = kind(value)
    engine = system.get("engine", "vllm")
    version = system.get("engine_version")
    if not isinstance(engine, str) or not isinstance(version, str | None):
        raise UsageError(
            f"scenario {where}: [system] engine and engine_version must be text, such as "
            '"vllm" and "0.25.1"'
        )
    if version is not None:
        out["engine"] = f"{engine}=={version}"
    elif "engine" in system:
        out["engine"] = engine
    return out


def _rates(value: object, key: str, where: str) -> str:
    if isinstance(value, str):
        return value
    numbers = isinstance(value, list) and bool(value) and all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in value
    )
    if isinstance(value, list) and numbers:
        return ",".join(repr(x) for x in value)
    raise UsageError(
        f"scenario {where}: [system] {key} is {shown(repr(value))}; it must be a list of numbers"
    )


def people_plan(
    scenario: Scenario, users: int | None, streams: int | None, duration_s: float, warmup_s: float
) -> LoadPlan:
    """The scenario's people (`users` of them, or as many as it says), or `streams` of them that
    never pause."""
    thinking = scenario.thinking if streams is None else False
    count = streams if streams is not None else scenario.users if users is None else users
    description: dict[str, Any] = {
        "kind": "people",
        "scenario": scenario.name,
        "source": scenario.source,
        "users": count if thinking else None,
        "streams": None if thinking else count,
        "duration_s": duration_s,
        "warmup_s": warmup_s,
        "behaviour": behaviour_to_dict(scenario.behaviour),
        "assumed": dict(scenario.assumed),
    }
    context, variation = chat_contexts(
        scenario.behaviour, warmup_s, duration_s, thinking=thinking
    )
    return LoadPlan(
        lambda seed: scenario.load(count, thinking=thinking),
        description,
        max(1, round(context)),
        context_variation=variation,
    )

"""A scenario on the command line: its system as options that flags override, and its people."""

from typing import TypeVar

from specsim.options.declare import OptionSet, declared
from specsim.options.groups import AcceptanceOptions, DraftingOptions
from specsim.options.serving import AcceptanceSpreadOptions
from specsim.options.tables import from_table
from specsim.sim.behaviour import behaviour_to_dict, chat_contexts
from specsim.sim.compare import LoadPlan
from specsim.sim.scenario import Scenario

DEFAULT_SCENARIO = "mindrouter-chat"  # whose people --users alone means
_ACCEPTANCE = set(declared(AcceptanceOptions))
_SPECULATION = {*_ACCEPTANCE, *declared(DraftingOptions), *declared(AcceptanceSpreadOptions)}
# What a flag puts aside besides the option of its own name: another model has other drafters, and
# another drafter other acceptance.
_PUTS_ASIDE = {
    "model": _SPECULATION | {"weights", "kv", "max_model_len"},
    "method": _SPECULATION,
    "speculative_config": _SPECULATION,
    "draft": _ACCEPTANCE | {"method", *declared(AcceptanceSpreadOptions)},
    **dict.fromkeys(_ACCEPTANCE, _ACCEPTANCE),
}

O = TypeVar("O", bound=OptionSet)  # noqa: E741


def with_scenario(options: O, scenario: Scenario) -> O:
    """The options with those of the scenario's system where the call has none."""
    aside = set(options.model_fields_set)
    for name in options.model_fields_set:
        aside |= _PUTS_ASIDE.get(name, set())
    place = f"scenario {scenario.name}: [system]"
    found = from_table(type(options), scenario.system, place)
    return options.but(**{name: value for name, value in found.items() if name not in aside})


def people_plan(
    scenario: Scenario, users: int | None, streams: int | None, duration_s: float,
    warmup_s: float, settled: bool = False,
) -> LoadPlan:
    """The scenario's people (`users` of them, or as many as it says), or `streams` of them that
    never pause."""
    thinking = scenario.thinking if streams is None else False
    count = streams if streams is not None else scenario.users if users is None else users
    description: dict[str, object] = {
        "kind": "people",
        "scenario": scenario.name,
        "source": scenario.source,
        "users": count if thinking else None,
        "streams": None if thinking else count,
        "settled": settled,
        "duration_s": duration_s,
        "warmup_s": warmup_s,
        "behaviour": behaviour_to_dict(scenario.behaviour),
        "assumed": dict(scenario.assumed),
    }
    _, variation = chat_contexts(
        scenario.behaviour, warmup_s, duration_s, thinking=thinking, settled=settled
    )
    return LoadPlan(
        lambda seed: scenario.load(count, thinking=thinking, settled=settled), description,
        context_variation=variation, completed=True,
    )

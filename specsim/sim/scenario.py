"""Scenario files: a load of simulated users together with the system it is for, as TOML.

Packaged ones lie in `scenarios/`; a path to a file of the same form works as well. [system] names
model, GPU, engine and speculation for the command that builds them; [users] how people behave;
[tools] what agents do between a message and its answer; [stage] how long, [slo] the gates;
[assumed] lists what is not from the source. Unknown keys are refused: a misspelt one would
otherwise change nothing, silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from specsim.checked import Rule, Shape, check, did_you_mean, toml_table
from specsim.data import data_root
from specsim.errors import UsageError, closest
from specsim.files import file_text
from specsim.sim.behaviour import MOST_TOKENS, ChatBehaviour, ToolUse
from specsim.sim.humans import Humans
from specsim.sim.lengths import law_from
from specsim.sim.slo import canonical, check_slo

SYSTEM_KEYS = {
    "model", "gpu", "tp", "ep", "weights", "kv", "engine", "engine_version", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization",
    "method", "draft", "num_speculative_tokens",
    "acceptance", "acceptance_conditional", "acceptance_rate", "acceptance_mean_rate",
    "acceptance_length", "easiness", "replicas", "router", "max_concurrent",
}
MOST_USERS = 100_000
MOST_SECONDS = 100_000_000  # three years
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS), Rule(f"a number from 0 to {MOST_SECONDS}")]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Count = Annotated[int, Field(ge=1, le=MOST_USERS)]


class _Users(Shape):
    """How people behave, see `behaviour.ChatBehaviour`; what is of any type is a law."""

    opener_tokens: object
    followup_tokens: object
    output_tokens: object
    compose_s: object = 0.0
    start_s: object = 0.0
    summary_tokens: object = 1000.0
    count: Count = 1
    thinking: bool = True
    system_tokens: Tokens = 0
    system_prompts: Annotated[int, Field(ge=0, le=MOST_USERS)] = 0
    another_turn: Seconds = 0.0
    max_turns: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 1
    read_tok_s: Seconds = 15.0
    read_max_s: Seconds = 45.0
    answers_cached: bool = True
    context_limit: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None


class _Tools(Shape):
    """What agents do, see `behaviour.ToolUse`: laws."""

    calls: object
    call_tokens: object
    result_tokens: object
    wait_s: object
    at_once: object = 1.0


class _Stage(Shape):
    duration_s: Seconds = 360.0
    warmup_s: Seconds = 60.0
    ladder: Annotated[
        tuple[Count, ...],
        Field(strict=False, max_length=200),
        Rule(f"at most 200 whole numbers of users from 1 to {MOST_USERS}"),
    ] = ()


class _File(Shape):
    users: _Users
    tools: _Tools | None = None
    name: str | None = None
    source: str = ""
    system: dict[str, object] = Field(default_factory=dict)  # checked by who builds the system
    stage: _Stage = Field(default_factory=_Stage)
    slo: dict[str, int | float] = Field(default_factory=dict)
    assumed: dict[str, object] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load with the system it describes. behaviour: of its users, who are agents where it has
    tools. system: plain values by SYSTEM_KEYS. ladder: numbers of
    users at which its source measured, for `specsim capacity`."""

    name: str
    source: str
    users: int
    thinking: bool
    behaviour: ChatBehaviour
    duration_s: float
    warmup_s: float
    system: Mapping[str, object] = field(default_factory=dict)
    slo: Mapping[str, float] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    ladder: tuple[int, ...] = ()

    def load(
        self, users: int | None = None, *, thinking: bool | None = None, settled: bool = False
    ) -> Humans:
        """The scenario's people; `users` and `thinking` override the file."""
        return Humans(
            self.behaviour, self.users if users is None else users,
            thinking=self.thinking if thinking is None else thinking, settled=settled,
        )


def list_scenarios() -> tuple[str, ...]:
    """Names of the packaged scenarios."""
    return tuple(sorted(path.stem for path in data_root("scenarios").glob("*.toml")))


def find_scenario(name: str) -> Scenario:
    """A packaged scenario by name, or a scenario file by path. UsageError, FormatError."""
    path = Path(name)
    if path.suffix.lower() != ".toml":
        known = list_scenarios()
        if name not in known:
            raise UsageError(
                f"scenario {name!r} is not known; {closest(name, known)}packaged: "
                f"{', '.join(known)}; or give the path of a .toml file"
            )
        path = data_root("scenarios") / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f"scenario file {name!r} does not exist")
    return scenario_from(toml_table(file_text(path), path.name), path.name)


def scenario_from(raw: Mapping[str, object], where: str) -> Scenario:
    """Check a parsed scenario. UsageError names the table and the key."""
    file = check(_File, {"users": {}, **raw}, where, UsageError)
    users, stage = file.users, file.stage
    for key in file.system:
        if key not in SYSTEM_KEYS:
            hint = did_you_mean(key, SYSTEM_KEYS)
            raise UsageError(f"{where}: [system] has no key {key!r}; {hint}")
    tools = None if file.tools is None else ToolUse(**_settings(file.tools, f"{where}: [tools]"))
    habits = _settings(users, f"{where}: [users]")
    del habits["count"], habits["thinking"]
    try:
        behaviour = ChatBehaviour(**habits, tools=tools)
    except UsageError as error:
        raise UsageError(f"{where}: [users] {error}") from None
    gates = {canonical(name): limit for name, limit in file.slo.items()}
    check_slo(gates)
    return Scenario(
        name=where if file.name is None else file.name, source=file.source, users=users.count,
        thinking=users.thinking, behaviour=behaviour, duration_s=stage.duration_s,
        warmup_s=stage.warmup_s, system=file.system, slo=gates,
        assumed={key: str(value) for key, value in file.assumed.items()},
        ladder=tuple(sorted(set(stage.ladder))),
    )


def _settings(table: Shape, where: str) -> dict[str, Any]:
    """The values of a table, those of any type as laws."""
    given = {name: getattr(table, name) for name in type(table).model_fields}
    for name, field_info in type(table).model_fields.items():
        if field_info.annotation is object:
            given[name] = law_from(given[name], f"{where} {name}")
    return given

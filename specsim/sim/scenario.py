"""Scenario files: a load of simulated people together with the system it is for, as TOML.

Packaged ones lie in `scenarios/`; a path to a file of the same form works as well. [system] names
model, GPU, engine and speculation for the command that builds them; [users] how people behave;
[stage] how long, [slo] the gates; [assumed] lists what is not from the source. Unknown keys are
refused: a misspelt one would otherwise change nothing, silently.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specsim.data import data_root
from specsim.errors import FormatError, UsageError
from specsim.sim.humans import ChatBehaviour, Humans
from specsim.sim.lengths import Constant, law_from
from specsim.sim.slo import canonical, check_slo

MAX_FILE_BYTES = 1_000_000
SYSTEM_KEYS = {
    "model", "gpu", "tp", "ep", "weights", "kv", "engine", "engine_version", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization",
    "method", "draft", "num_speculative_tokens",
    "acceptance", "acceptance_conditional", "acceptance_rate", "acceptance_mean_rate",
    "acceptance_length", "easiness", "replicas", "router", "max_concurrent",
}
STAGE_KEYS = {"duration_s", "warmup_s", "ladder"}
USER_KEYS = {
    "count", "thinking", "system_tokens", "another_turn", "max_turns", "read_tok_s", "read_max_s",
    "compose_s", "start_s", "output_tokens", "opener_tokens", "followup_tokens",
    "answers_cached",
}
TABLES = {"name", "source", "system", "users", "stage", "slo", "assumed"}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load with the system it describes. system: plain values by SYSTEM_KEYS. ladder: numbers of
    users at which its source measured, for `specsim capacity`."""

    name: str
    source: str
    users: int
    thinking: bool
    behaviour: ChatBehaviour
    duration_s: float
    warmup_s: float
    system: Mapping[str, Any] = field(default_factory=dict)
    slo: Mapping[str, float] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    ladder: tuple[int, ...] = ()

    def load(self, users: int | None = None, *, thinking: bool | None = None) -> Humans:
        """The scenario's people; `users` and `thinking` override the file."""
        return Humans(
            self.behaviour,
            self.users if users is None else users,
            thinking=self.thinking if thinking is None else thinking,
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
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(
                f"scenario {name!r} is not known; {hint}packaged: {', '.join(known)}; "
                "or give the path of a .toml file"
            )
        path = data_root("scenarios") / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f"scenario file {name!r} does not exist")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise FormatError(f"{path.name} is larger than 1 MB; a scenario is a few kB of TOML")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # syntax, encoding, huge numbers, deep nesting
        raise FormatError(f"{path.name} is not valid TOML: {error}") from None
    return scenario_from(raw, path.name)


def scenario_from(raw: Mapping[str, Any], where: str) -> Scenario:
    """Check a parsed scenario. UsageError names the table and the key."""
    _known(raw, TABLES, f"{where}: the top level")
    users = _table(raw, "users", where)
    stage = _table(raw, "stage", where)
    system = _table(raw, "system", where)
    slo = _table(raw, "slo", where)
    assumed = _table(raw, "assumed", where)
    _known(users, USER_KEYS, f"{where}: [users]")
    _known(stage, STAGE_KEYS, f"{where}: [stage]")
    _known(system, SYSTEM_KEYS, f"{where}: [system]")
    for key in ("opener_tokens", "followup_tokens", "output_tokens"):
        if key not in users:
            raise UsageError(f"{where}: [users] needs {key}")

    def law(key: str, default: float | None = None) -> Any:
        if key not in users and default is not None:
            return Constant(default)
        return law_from(users[key], f"{where}: [users] {key}")

    behaviour = ChatBehaviour(
        opener_tokens=law("opener_tokens"),
        followup_tokens=law("followup_tokens"),
        output_tokens=law("output_tokens"),
        compose_s=law("compose_s", 0.0),
        start_s=law("start_s", 0.0),
        system_tokens=_whole(users, "system_tokens", 0, where, 0),
        another_turn=_number(users, "another_turn", 0.0, where),
        max_turns=_whole(users, "max_turns", 1, where, 1),
        read_tok_s=_number(users, "read_tok_s", 15.0, where),
        read_max_s=_number(users, "read_max_s", 45.0, where),
        answers_cached=_switch(users, "answers_cached", where),
    )
    gates = {canonical(name): limit for name, limit in slo.items()}
    check_slo(gates)
    thinking = _switch(users, "thinking", where)
    return Scenario(
        name=str(raw.get("name", where)),
        source=str(raw.get("source", "")),
        users=_whole(users, "count", 1, where, 1),
        thinking=thinking,
        behaviour=behaviour,
        duration_s=_number(stage, "duration_s", 360.0, where),
        warmup_s=_number(stage, "warmup_s", 60.0, where),
        system=dict(system),
        slo=gates,
        assumed={key: str(value) for key, value in assumed.items()},
        ladder=_stages(stage, where),
    )


def _table(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} must be a table [{key}], got {value!r}")
    return value


def _known(table: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            others = f"; it has {', '.join(sorted(known))}"
            hint = f"; did you mean {near[0]!r}?" if near else others
            raise UsageError(f"{what} has no key {key!r}{hint}")


def _switch(table: Mapping[str, Any], key: str, where: str) -> bool:
    value = table.get(key, True)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: [users] {key} is {value!r}; it must be true or false")
    return value


def _stages(table: Mapping[str, Any], where: str) -> tuple[int, ...]:
    value = table.get("ladder", [])
    whole = isinstance(value, list) and all(
        isinstance(x, int) and not isinstance(x, bool) and 1 <= x <= 100_000 for x in value
    )
    if not whole or len(value) > 200:
        raise UsageError(
            f"{where}: [stage] ladder is {value!r:.60}; it must be at most 200 whole numbers of "
            "users from 1 to 100000"
        )
    return tuple(sorted(set(value)))


def _number(table: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError(f"{where}: {key} is {value!r}; it must be a number, 0 or more")
    return float(value)


def _whole(table: Mapping[str, Any], key: str, default: int, where: str, low: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UsageError(f"{where}: {key} is {value!r}; it must be a whole number from {low}")
    return value

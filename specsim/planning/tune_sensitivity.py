"""Which unknown would change the answer, and which measurement would settle it (docs/tune.md).

Each unknown is moved to the ends of its range with everything else as predicted, and the choice is
made again; the loss is how much slower the choice made today would be there than the best one.
Acceptance beyond the measured positions goes between conditional rates that fall by 10 % per
position and ones that stay, the step-cost ratio over its 90 % interval (else 15 %); draft cost, the
engine's overhead per speculative step and the load between half and double (assumed).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from specsim.analytic.closed import MAX_CONCURRENCY, closed_loop, decode_steps
from specsim.analytic.intervals import interval_of
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import SpecSimError
from specsim.jsonable import Jsonable
from specsim.latency.engine import find_engine
from specsim.ops.work import UNIFORM
from specsim.planning.flags import ServedNames, ready_flags
from specsim.planning.pinned import pinned_command
from specsim.speculation.acceptance import DEPTH_SLOPE, SLOPE_SPREAD_90, Acceptance

MATTERS = 0.01  # losses below this are within what a prediction can tell
DEFAULT_ACCEPTANCE = 0.10
DEFAULT_RATIO = 0.15

Valuer = Callable[[System], float]  # output tokens per second, or 1 / TPOT, of a choice


@dataclass(frozen=True, slots=True)
class Choice(Jsonable):
    """A method with a draft length."""

    method: str
    k: int


@dataclass(frozen=True, slots=True)
class Unknown(Jsonable):
    """One unknown at both ends of its range. low, high: the range as factors or values (see
    `range_text`); at_low, at_high: the choice there; loss: what today's choice loses at the worse
    end, a share; measurement: what settles it; commands: how."""

    name: str
    range_text: str
    low: float
    high: float
    at_low: Choice
    at_high: Choice
    loss: float
    changes: bool
    measurement: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Sensitivity:
    """unknowns: the worst first. decisive: the one to measure, None where none matters."""

    unknowns: tuple[Unknown, ...]

    @property
    def decisive(self) -> Unknown | None:
        worst = self.unknowns[0] if self.unknowns else None
        return worst if worst is not None and worst.loss >= MATTERS else None

    def to_dict(self) -> dict[str, object]:
        return {
            "decisive": self.decisive.name if self.decisive else None,
            "unknowns": [unknown.to_dict() for unknown in self.unknowns],
        }


def sensitivity(
    choices: Sequence[System],
    today: Choice,
    workload: Workload,
    clients: int,
    objective: str = "throughput",
    spreads: Mapping[str, tuple[float, float]] | None = None,
    version: str | None = None,
) -> Sensitivity:
    """choices: every system that could be chosen, without plain decoding (always one of them).
    spreads: range of the acceptance length at each method's own k that was given, by method."""
    if not choices:
        return Sensitivity(())
    base = _Base(tuple(choices), workload, clients, objective)
    lead = next((c for c in choices if c.setup.method == today.method), choices[0])
    lead = max((c for c in choices if c.setup.method == lead.setup.method),
               key=lambda c: c.setup.k)
    ends = [
        _acceptance(base, spreads or {}),
        _beyond(base),
        _ratio(base),
        _draft(base),
        _overhead(base),
        _routing(base),
        _load(base),
    ]
    found = []
    for end in ends:
        if end is None:
            continue
        at_low, low_loss = base.pick(end.at_low, today)
        at_high, high_loss = base.pick(end.at_high, today)
        found.append(
            Unknown(
                end.name, end.text, end.low, end.high, at_low, at_high, max(low_loss, high_loss),
                at_low != today or at_high != today,
                *_measurement(end.name, lead, today, workload, clients, version),
            )
        )
    return Sensitivity(tuple(sorted(found, key=lambda u: -u.loss)))


@dataclass(frozen=True)
class _Base:
    choices: tuple[System, ...]
    workload: Workload
    clients: int
    objective: str

    def value(self, system: System, factor: float = 1.0, draft: float = 1.0,
              clients: int | None = None) -> float:
        """The objective of a choice whose speculative steps take `factor` times, and their drafting
        `draft` times, what is predicted."""
        state = closed_loop(system, self.workload, clients or self.clients)
        extra_s = 0.0
        if system.speculative and (factor != 1 or draft != 1):
            step = system.latency.step(
                system.decode_shape(state.running, self.workload.mean_context)
            )
            extra_s = (factor - 1) * state.step_s + (draft - 1) * step.draft_s
        steps = decode_steps(self.workload.output_len, system.tokens_per_step)
        tokens = max(1, self.workload.output_len - 1)
        if self.objective == "tpot":
            each_s = state.tpot_s + extra_s * steps / tokens
            return 1 / each_s if each_s > 0 else math.inf  # answers of one token have no TPOT
        busy_s = state.running / state.request_rate + extra_s * steps
        return state.running * self.workload.output_len / busy_s

    def accepting(self, moved: Callable[[str, Acceptance], Acceptance]) -> Valuer:
        """The value of a choice whose acceptance is moved: (method, acceptance) to another."""

        def value(system: System) -> float:
            accepted = system.acceptance
            if accepted is None or not system.speculative:
                return self.value(system)
            return self.value(system.with_(acceptance=moved(system.setup.method, accepted)))

        return value

    def pick(self, valuer: Valuer, today: Choice) -> tuple[Choice, float]:
        """(the best choice under `valuer`, what today's loses against it)."""
        values: dict[Choice, float] = {}
        for system in (self.choices[0].plain(), *self.choices):
            try:
                method = system.setup.method if system.speculative else "none"
                values[Choice(method, system.setup.k)] = valuer(system)
            except SpecSimError:
                continue  # does not run there
        if not values:
            return today, 0.0  # nothing runs there, so no other choice is better
        best = max(values, key=lambda c: (values[c], -c.k))
        if values.get(today, 0.0) >= values[best] * (1 - 1e-9):
            return today, 0.0
        return best, 1 - values.get(today, 0.0) / values[best]


class _End(NamedTuple):
    """An unknown with both ends of its range, and what a choice is worth there."""

    name: str
    text: str
    low: float
    high: float
    at_low: Valuer
    at_high: Valuer


def scaled_acceptance(acceptance: Acceptance, k: int, length: float) -> Acceptance:
    """The acceptance with every P_i raised to one power, so that AL(k) is `length`: positions keep
    their order and stay within 0 and 1."""
    low, high = 1e-3, 1e3
    rates = acceptance.probabilities(max(k, acceptance.positions))

    def total(power: float) -> float:
        return 1 + sum(float(rate**power) for rate in rates[:k])

    for _ in range(60):
        middle = (low * high) ** 0.5
        if total(middle) > length:
            low = middle
        else:
            high = middle
    power = (low * high) ** 0.5
    return replace(acceptance, unconditional=tuple(rate**power for rate in rates))


def _acceptance(base: _Base, spreads: Mapping[str, tuple[float, float]]) -> _End | None:
    lead = max(base.choices, key=lambda c: c.setup.k)
    if lead.acceptance is None:
        return None

    def ends(method: str, accepted: Acceptance) -> tuple[int, float, float]:
        """(draft length, least and greatest acceptance length at so many drafts)"""
        grounds = accepted.grounds
        if method not in spreads and grounds is not None:
            share = accepted.draft_probability
            low, high = (1 + (tokens - 1) / share for tokens in grounds.tokens_90)
            return grounds.k, low, high
        known = min(accepted.measured_positions, accepted.positions)
        drafts = accepted.expected_tokens(known) - 1
        assumed = 1 + drafts * (1 - DEFAULT_ACCEPTANCE), 1 + drafts * (1 + DEFAULT_ACCEPTANCE)
        return known, *spreads.get(method, assumed)

    def moved(end: int, method: str, accepted: Acceptance) -> Acceptance:
        known, *lengths = ends(method, accepted)
        target = min(known + 1 - 1e-6, max(1 + 1e-6, lengths[end]))
        return scaled_acceptance(accepted, known, target)

    method = lead.setup.method
    known, low, high = ends(method, lead.acceptance)
    grounds = lead.acceptance.grounds
    origin = "given" if method in spreads else (
        f"90 %, {grounds.level}" if grounds is not None else "assumed: 10 % of accepted drafts"
    )
    text = f"{low:.2f} to {high:.2f} tokens/step at k = {known} ({origin})"
    return _End("acceptance", text, low, high, *(
        base.accepting(partial(moved, end)) for end in (0, 1)))


def _beyond(base: _Base) -> _End | None:
    reaching = [
        c for c in base.choices
        if c.acceptance is not None and c.acceptance.kind != "rate"
        and c.setup.k > c.acceptance.measured_positions
    ]
    if not reaching:
        return None

    def moved(slope: float, _: str, accepted: Acceptance) -> Acceptance:
        known = accepted.probabilities(accepted.measured_positions)
        return replace(accepted, unconditional=known, slope=slope)

    first = min(c.acceptance.measured_positions for c in reaching if c.acceptance is not None)
    low, high = DEPTH_SLOPE - SLOPE_SPREAD_90, DEPTH_SLOPE + SLOPE_SPREAD_90
    text = f"logit slope {low:.1f} to {high:.1f} over ln(position) beyond {first} (over drafters)"
    name = "acceptance beyond the measured positions"
    return _End(name, text, low, high, *(
        base.accepting(partial(moved, slope)) for slope in (low, high)))


def _ratio(base: _Base) -> _End:
    found = interval_of(base.choices[0], "step_cost_ratio", 1.0)
    low, high = found or (1 - DEFAULT_RATIO, 1 + DEFAULT_RATIO)
    origin = "90 % interval of public measurements" if found else "assumed"
    text = f"x {low:.2f} to x {high:.2f} ({origin})"
    return _End(
        "step cost", text, low, high,
        lambda s: base.value(s, factor=low), lambda s: base.value(s, factor=high),
    )


def _draft(base: _Base) -> _End:
    return _End(
        "draft cost", "x 0.5 to x 2 (assumed)", 0.5, 2.0,
        lambda s: base.value(s, draft=0.5), lambda s: base.value(s, draft=2.0),
    )


def _overhead(base: _Base) -> _End | None:
    over = base.choices[0].engine.overheads
    if base.choices[0].fidelity == "datasheet" or not (over.spec_step_s or over.spec_seq_s):
        return None

    def moved(factor: float) -> Valuer:
        changed = replace(
            over, spec_step_s=over.spec_step_s * factor, spec_seq_s=over.spec_seq_s * factor
        )
        return lambda s: base.value(s.with_overheads(changed) if s.speculative else s)

    return _End("engine overhead", "x 0.5 to x 2 (assumed)", 0.5, 2.0, moved(0.5), moved(2.0))


def _routing(base: _Base) -> _End | None:
    """Whether the traffic uses all experts alike: the one thing about a mixture that moves the
    price of verifying more tokens most, and differs from model to model."""
    routing = base.choices[0].latency.routing
    if not base.choices[0].spec.has_experts or routing == UNIFORM:
        return None
    text = "as in most served traffic to all experts used alike"
    return _End(
        "use of experts", text, 0.0, 1.0, base.value,
        lambda s: base.value(s.with_(routing=UNIFORM)),
    )


def _load(base: _Base) -> _End:
    low, high = max(1, base.clients // 2), min(MAX_CONCURRENCY, base.clients * 2)
    return _End(
        "load", f"{low} to {high} clients (assumed)", float(low), float(high),
        lambda s: base.value(s, clients=low), lambda s: base.value(s, clients=high),
    )


# --- how to measure -----------------------------------------------------------------------------


def _measurement(
    name: str, lead: System, today: Choice, workload: Workload, clients: int, version: str | None
) -> tuple[str, tuple[str, ...]]:
    if name.startswith("acceptance"):
        what = (
            f"serve your own traffic with k = {lead.setup.k} for some thousand steps and read the "
            "acceptance per position; one run answers every shorter k"
        )
        # SGLang's counters stand for those of engines without a command line here.
        read = lead.engine.server.metrics or find_engine("sglang").server.metrics
        again = (
            f"specsim tune {lead.spec.name} ... --method {lead.setup.method} "
            "--acceptance P1,P2,..."
        )
        return what, (*_serve(lead, version), read, again)
    if name == "load":
        return "count running requests over a day", (
            "curl -s localhost:8000/metrics | grep num_requests_running",
        )
    # Two lengths far apart, the chosen one among them: their difference is the cost per draft.
    chain = lead.setup.tree_topk == 1
    long = lead.with_(k=today.k) if chain and today.k > 1 else lead
    short = lead.with_(k=1) if chain else lead
    ks = f"k = {short.setup.k} and k = {long.setup.k}" if short.setup.k != long.setup.k else (
        f"k = {long.setup.k}"
    )
    what = (
        f"time {ks} with the acceptance fixed, and plain decoding: TPOT x tokens per step is the "
        "step time"
    )
    runs: list[str] = []
    for side in (short, long) if short.setup.k != long.setup.k else (long,):
        try:
            length = round(1 + side.setup.k / 2, 1)
            runs.append(pinned_command(side, length, ServedNames(version=version)))
        except SpecSimError:
            runs += _serve(side, version)
    bench = (
        "vllm bench serve --dataset-name random "
        f"--random-input-len {workload.input_len} --random-output-len {workload.output_len} "
        f"--ignore-eos --max-concurrency {clients} --num-prompts {max(32, 8 * clients)} "
        "--save-result"
    )
    return what, (*runs, bench)


def _serve(system: System, version: str | None) -> list[str]:
    """The command that serves `system`; none where the engine's command line is not known."""
    try:
        return [ready_flags(system, version=version).command]
    except SpecSimError:
        return []

"""Simulated people who chat: conversations that are sent again in full with every turn.

A user opens a conversation, reads the answer, thinks, writes again; the prompt of a turn is the
system prompt and all messages and answers so far, so an engine's prefix cache can find most of it
if it is still there. After the last turn the user starts a new conversation. Each user has a
random stream of his own: what he writes does not depend on how fast the system answers, and users
1..n are the same people in a run with more of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from specsim.errors import UsageError
from specsim.sim.cluster import Cluster
from specsim.sim.lengths import Constant, Law
from specsim.sim.request import FINISHED, Request
from specsim.sim.ticket import Ticket

KEYS_PER_USER = 1 << 20  # conversations of one user
PLAYED_USERS = 200
PLAYED_TOK_S = 40.0  # assumed speed of answers; it only places turns in time


@dataclass(frozen=True, slots=True)
class ChatBehaviour:
    """How the users of a scenario behave. Lengths in tokens, times in seconds.

    another_turn: probability of a further turn after each; at most max_turns in all.
    read_tok_s: reading speed of an answer, at most read_max_s. compose_s: law of writing time.
    start_s: law of when a user first writes; one whose turn fails starts anew after composing.
    answers_cached: whether an engine's prefix cache finds its own answers in the prompts
    that follow; it does not where the chat template writes them differently there.
    """

    opener_tokens: Law
    followup_tokens: Law
    output_tokens: Law
    compose_s: Law
    system_tokens: int = 0
    another_turn: float = 0.0
    max_turns: int = 1
    read_tok_s: float = 15.0
    read_max_s: float = 45.0
    start_s: Law = field(default_factory=lambda: Constant(0.0))
    answers_cached: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.another_turn < 1:
            raise UsageError(f"another_turn is {self.another_turn!r}; it must be 0 to below 1")
        if self.max_turns < 1 or self.read_tok_s <= 0:
            raise UsageError("max_turns must be 1 or more and read_tok_s above 0")

    def reading_s(self, answer_tokens: float) -> float:
        return min(answer_tokens / self.read_tok_s, self.read_max_s)


class PlayedTurn(NamedTuple):
    """A turn without an engine: when it is written, its prompt (history and message), of which
    `old` tokens were in the prompt (or answer) before and could be cached, the answer, and the
    pause after it."""

    at_s: float
    prompt_tokens: float
    old_tokens: float
    answer_tokens: float
    pause_s: float


def played_turns(
    behaviour: ChatBehaviour, last_s: float, *, thinking: bool
) -> Iterator[PlayedTurn]:
    """What PLAYED_USERS people write until `last_s`, if answers come at PLAYED_TOK_S."""
    generator = np.random.default_rng(0)
    for _ in range(PLAYED_USERS):
        start_s = behaviour.start_s.draw(generator)  # drawn by all: they are the same people
        now_s = start_s if thinking else 0.0
        context = old = 0.0
        turn = 0
        while now_s < last_s:
            if turn == 0:
                context = behaviour.system_tokens + behaviour.opener_tokens.draw(generator)
                old = 0.0
            else:
                context += behaviour.followup_tokens.draw(generator)
            answer = max(1.0, behaviour.output_tokens.draw(generator))
            turn += 1
            over = turn >= behaviour.max_turns or generator.random() >= behaviour.another_turn
            pause_s = 0.0
            if thinking:
                pause_s = behaviour.reading_s(answer) + behaviour.compose_s.draw(generator)
            yield PlayedTurn(now_s, context, old, answer, pause_s)
            now_s = now_s + answer / PLAYED_TOK_S + pause_s
            old = context + (answer if behaviour.answers_cached else 0.0)
            context += answer
            turn = 0 if over else turn


class Humans:
    """`users` people behaving alike. thinking False: they answer at once (saturation)."""

    listens = True
    total: int | None = None

    def __init__(self, behaviour: ChatBehaviour, users: int, *, thinking: bool = True) -> None:
        if isinstance(users, bool) or users < 1:
            raise UsageError(f"users is {users!r}; it must be 1 or more")
        self.behaviour = behaviour
        self.users = users
        self.thinking = thinking

    def start(self, cluster: Cluster, seed: int) -> None:
        for number in range(self.users):
            _User(self, cluster, number, np.random.default_rng([seed, 4, number]))


class _User:
    """One person: a conversation at a time, one request at a time."""

    def __init__(
        self, crowd: Humans, cluster: Cluster, number: int, generator: np.random.Generator
    ) -> None:
        self._habits = crowd.behaviour
        self._thinking = crowd.thinking
        self._cluster = cluster
        self._number = number
        self._generator = generator
        self._conversation = 0
        self._turn = 0
        self._turns = 1
        self._context = 0
        start_s = self._habits.start_s.draw(generator)
        # Streams that never pause are all there from the start.
        cluster.clock.call_at(start_s if self._thinking else 0.0, self._write)

    def _write(self) -> None:
        """Send the next message."""
        habits, generator = self._habits, self._generator
        if self._turn == 0:
            self._conversation += 1
            self._context = habits.system_tokens
            self._turns = 1
            while self._turns < habits.max_turns and generator.random() < habits.another_turn:
                self._turns += 1
            message = habits.opener_tokens.draw(generator)
        else:
            message = habits.followup_tokens.draw(generator)
        self._context += max(1, round(message))
        output = max(1, round(habits.output_tokens.draw(generator)))
        key = self._number * KEYS_PER_USER + self._conversation
        request = Request(
            self._cluster.clock.now,
            self._context,
            output,
            ((key, self._context),),
            habits.answers_cached,
            key,
            self._turn,
        )
        self._turn += 1
        self._cluster.submit(request, self._answered)

    def _answered(self, ticket: Ticket, status: str, time_s: float) -> None:
        habits = self._habits
        self._context += ticket.output_tokens
        if status != FINISHED or self._turn >= self._turns:
            self._turn = 0
        pause_s = 0.0
        if self._thinking:
            reading_s = habits.reading_s(ticket.output_tokens)
            pause_s = reading_s + habits.compose_s.draw(self._generator)
        if pause_s > 0.0 or status != FINISHED:
            # A refused request must not be sent again in the same instant, for ever.
            self._cluster.clock.call_at(time_s + max(pause_s, 1e-3), self._write)
        else:
            self._write()


def behaviour_to_dict(behaviour: ChatBehaviour) -> dict[str, float | bool]:
    """Means of the laws, for the record beside a result."""
    return {
        "opener_tokens_mean": behaviour.opener_tokens.mean,
        "followup_tokens_mean": behaviour.followup_tokens.mean,
        "output_tokens_mean": behaviour.output_tokens.mean,
        "compose_s_mean": behaviour.compose_s.mean,
        "another_turn": behaviour.another_turn,
        "max_turns": behaviour.max_turns,
        "system_tokens": behaviour.system_tokens,
        "answers_cached": behaviour.answers_cached,
    }

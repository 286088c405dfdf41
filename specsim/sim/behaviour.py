"""What the users of a scenario do, without an engine: people who chat, and agents with tools
(docs/simulate.md).

Every call sends the whole conversation again: system prompt, messages, answers and results so far.
All calls of a turn but the last end in tool calls, whose results come back after the tools' time. A
call that would outgrow `context_limit` is compacted first: a call writes a summary, which takes the
conversation's place behind the system prompt. What a user does depends on his random stream alone,
not on how fast the system answers. `begun`: in a settled run everybody is met at a random moment of
his life.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from specsim.errors import UsageError
from specsim.jsonable import picked
from specsim.sim.lengths import Constant, Law

MOST_TOKENS = 20_000_000  # of one message
MOST_CALLS = 10_000  # of one turn
PLAYED_USERS = 200
PLAYED_TOK_S = 40.0  # assumed speed of answers; it only places turns in time
LIVED = 6  # conversations, at least, before a settled run begins


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What happens between a message and its answer. Lengths in tokens, times in seconds.

    calls: calls of the model per turn; 1: it answers at once. call_tokens: written by a call that
    ends in tools. at_once: tools called together, whose results of result_tokens each come when
    the slowest is done, wait_s being the time of one.
    """

    calls: Law
    call_tokens: Law
    result_tokens: Law
    wait_s: Law
    at_once: Law = field(default_factory=lambda: Constant(1.0))


@dataclass(frozen=True, slots=True)
class ChatBehaviour:
    """How the users of a scenario behave. Lengths in tokens, times in seconds.

    another_turn: probability of a further turn after each; at most max_turns in all.
    read_tok_s: reading speed of an answer, at most read_max_s. compose_s: law of writing time.
    start_s: law of when a user first writes; one whose turn fails starts anew after composing.
    answers_cached: whether an engine's prefix cache finds its own answers in the prompts
    that follow; it does not where the chat template writes them differently there.
    system_prompts: how many different system prompts the users share, user i having the i-th of
    them; 0: no conversation shares its own with another. context_limit: tokens of prompt and
    answer beyond which a conversation is compacted to a summary of summary_tokens.
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
    system_prompts: int = 0
    context_limit: int | None = None
    summary_tokens: Law = field(default_factory=lambda: Constant(1000.0))
    tools: ToolUse | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.another_turn < 1:
            raise UsageError(f"another_turn is {self.another_turn!r}; it must be 0 to below 1")
        if self.max_turns < 1 or self.read_tok_s <= 0:
            raise UsageError("max_turns must be 1 or more and read_tok_s above 0")
        least = self.system_tokens + self.summary_tokens.mean + self.opener_tokens.mean
        if self.context_limit is not None and self.context_limit <= least:
            raise UsageError(
                f"context_limit is {self.context_limit}; it must be above the {least:.0f} tokens "
                "of system prompt, summary and message together"
            )

    def reading_s(self, answer_tokens: float) -> float:
        return min(answer_tokens / self.read_tok_s, self.read_max_s)


class ModelCall(NamedTuple):
    """A call of the model. conversation: its number. part: number of the content it continues,
    another one for each conversation and after each compaction, which begins with the system
    prompt. turn: calls of the conversation before. message_tokens: added to the context.
    output_tokens: asked for. pause_s: until the next call of this user, without his reading of
    the answer if he `reads` it. compacts: the answer is a summary that replaces the context."""

    conversation: int
    part: int
    turn: int
    message_tokens: int
    output_tokens: int
    pause_s: float
    reads: bool
    compacts: bool = False


Script = Generator[ModelCall, tuple[bool, int], None]


def tokens_of(law: Law, generator: np.random.Generator, most: int = MOST_TOKENS) -> int:
    """A whole number of a law, from 1 to `most`."""
    return max(1, round(min(law.draw(generator), most)))


def script(habits: ChatBehaviour, generator: np.random.Generator, *, thinking: bool) -> Script:
    """The calls of one user, for ever.

    It is sent (failed, context) after each: whether the call failed, whose user starts anew, and
    the tokens that the conversation has with the answer. thinking False: nobody pauses, no tool
    takes time."""
    conversation = part = 0
    while True:
        conversation += 1
        part += 1
        turns = 1
        while turns < habits.max_turns and generator.random() < habits.another_turn:
            turns += 1
        message = tokens_of(habits.opener_tokens, generator)
        calls = _calls(habits, generator)
        turn, context = 0, habits.system_tokens
        while True:
            calls -= 1
            answers = calls == 0
            law = habits.output_tokens if answers or not habits.tools else habits.tools.call_tokens
            output = tokens_of(law, generator)
            limit = habits.context_limit
            if limit is not None and turn and context + message + output > limit:
                summary = tokens_of(habits.summary_tokens, generator)
                failed, context = yield ModelCall(
                    conversation, part, turn, 0, summary, 0.0, False, True
                )
                turn += 1
                part += 1
                if failed:
                    break
            pause_s, result = 0.0, 0
            if not answers:
                pause_s, result = _tools(habits.tools, generator, thinking)
            elif thinking:
                pause_s = habits.compose_s.draw(generator)
            failed, context = yield ModelCall(
                conversation, part, turn, message, output, pause_s, answers and thinking
            )
            turn += 1
            if failed:
                break
            message = result
            if answers:
                turns -= 1
                if not turns:
                    break
                message = tokens_of(habits.followup_tokens, generator)
                calls = _calls(habits, generator)


def _calls(habits: ChatBehaviour, generator: np.random.Generator) -> int:
    """Calls of the model in the next turn."""
    return tokens_of(habits.tools.calls, generator, MOST_CALLS) if habits.tools else 1


def _tools(
    tools: ToolUse | None, generator: np.random.Generator, thinking: bool
) -> tuple[float, int]:
    """(seconds, tokens) of the tools that one call of the model asks for."""
    assert tools is not None
    count = tokens_of(tools.at_once, generator, MOST_CALLS)
    result = sum(tokens_of(tools.result_tokens, generator) for _ in range(count))
    wait_s = max(tools.wait_s.draw(generator) for _ in range(count)) if thinking else 0.0
    return wait_s, min(result, MOST_TOKENS)


class PlayedTurn(NamedTuple):
    """A call without an engine: when it is sent, its prompt (history and message), of which
    `old` tokens were in the prompt (or answer) before and could be cached, the answer, and the
    pause after it."""

    at_s: float
    prompt_tokens: int
    old_tokens: int
    answer_tokens: int
    pause_s: float


class Begun(NamedTuple):
    """Where a user is: his further calls, the next of them and when it is sent, the tokens of the
    conversation before it, and how many of those were in a prompt or an answer before."""

    calls: Script
    call: ModelCall
    at_s: float
    context: int
    old: int

    def pause_s(self, habits: ChatBehaviour) -> float:
        """After the call."""
        read_s = habits.reading_s(self.call.output_tokens) if self.call.reads else 0.0
        return self.call.pause_s + read_s


def begun(
    habits: ChatBehaviour, generator: np.random.Generator, *, thinking: bool, settled: bool = False
) -> Begun:
    """The first call of a user in a run.

    settled: the run begins at a moment drawn from a later part of his life, after at least LIVED
    conversations of usual length. So it falls into long conversations and long pauses more often
    than into short ones, in proportion to their length (inspection paradox: what is left of a
    pause of length D is E[D^2] / 2 E[D] on average; Ross, Stochastic Processes, 3.4), and finds
    the turn and the history that belong to that moment. Who is being answered then sends his next
    message when the answer and the pause after it are over."""
    start_s = habits.start_s.draw(generator)
    calls = script(habits, generator, thinking=thinking)
    now = Begun(calls, next(calls), start_s if thinking else 0.0, habits.system_tokens,
                _shared(habits))
    if not settled:
        return now
    moment_s = _life_s(habits, thinking) * (1 + generator.random())
    while now.at_s < moment_s:
        now = _after(habits, now)
    return now._replace(at_s=now.at_s - moment_s)


@lru_cache(maxsize=64)
def _life_s(habits: ChatBehaviour, thinking: bool) -> float:
    """Seconds that LIVED conversations of a user take on average."""
    spans_s = []
    for number in range(LIVED):
        now = begun(habits, user_stream(0, number), thinking=thinking)
        first_s = now.at_s
        while now.call.conversation <= LIVED:
            now = _after(habits, now)
        spans_s.append(now.at_s - first_s)
    return float(np.mean(spans_s))


def _shared(habits: ChatBehaviour) -> int:
    """Tokens that a new conversation has from others."""
    return habits.system_tokens if habits.system_prompts else 0


def _after(habits: ChatBehaviour, now: Begun) -> Begun:
    """The next call, if the answer comes at PLAYED_TOK_S."""
    call, output = now.call, now.call.output_tokens
    prompt = now.context + call.message_tokens
    at_s = now.at_s + output / PLAYED_TOK_S + now.pause_s(habits)
    old = prompt + (output if habits.answers_cached else 0)
    context = habits.system_tokens + output if call.compacts else prompt + output
    following = now.calls.send((False, context))
    if following.part != call.part:
        old = _shared(habits)
    if following.conversation != call.conversation:
        context = habits.system_tokens
    return Begun(now.calls, following, at_s, context, old)


@lru_cache(maxsize=16)
def played_turns(
    behaviour: ChatBehaviour, last_s: float, *, thinking: bool, settled: bool = False
) -> tuple[PlayedTurn, ...]:
    """What PLAYED_USERS users send until `last_s`, if answers come at PLAYED_TOK_S: they are the
    users of a run with seed 0."""
    played = []
    for number in range(PLAYED_USERS):
        generator = user_stream(0, number)
        now = begun(behaviour, generator, thinking=thinking, settled=settled)
        while now.at_s < last_s:
            played.append(PlayedTurn(
                now.at_s, now.context + now.call.message_tokens, now.old, now.call.output_tokens,
                now.pause_s(behaviour),
            ))
            now = _after(behaviour, now)
    return tuple(played)


def chat_contexts(
    behaviour: ChatBehaviour, first_s: float, last_s: float, *, thinking: bool = True,
    settled: bool = False,
) -> tuple[float, float]:
    """(mean, coefficient of variation) of the tokens that conversations hold between two times of
    a run, halfway through the answers and weighted by their length.

    Users are played without an engine, so that a short run sees young conversations.
    """
    played = played_turns(behaviour, last_s, thinking=thinking, settled=settled)
    turns = [turn for turn in played if turn.at_s >= first_s]
    held = [turn.prompt_tokens + turn.answer_tokens / 2 for turn in turns]
    weights = [turn.answer_tokens for turn in turns]
    if not held:
        first = behaviour.system_tokens + behaviour.opener_tokens.mean
        return first + behaviour.output_tokens.mean / 2, 0.0
    mean = float(np.average(held, weights=weights))
    variance = float(np.average((np.array(held) - mean) ** 2, weights=weights))
    return mean, variance**0.5 / mean


def user_stream(seed: int, number: int) -> np.random.Generator:
    """The random stream of a user, the same whatever the others do."""
    return np.random.default_rng([seed, 4, number])


def behaviour_to_dict(behaviour: ChatBehaviour) -> dict[str, object]:
    """Means of the laws, for the record beside a result."""
    out = picked(
        behaviour,
        "opener_tokens_mean=opener_tokens.mean followup_tokens_mean=followup_tokens.mean "
        "output_tokens_mean=output_tokens.mean compose_s_mean=compose_s.mean another_turn "
        "max_turns system_tokens answers_cached system_prompts context_limit",
    )
    if behaviour.tools is not None:
        out |= picked(
            behaviour.tools,
            "tool_calls_mean=calls.mean tool_call_tokens_mean=call_tokens.mean "
            "tools_at_once_mean=at_once.mean tool_result_tokens_mean=result_tokens.mean "
            "tool_wait_s_mean=wait_s.mean",
        )
    return out

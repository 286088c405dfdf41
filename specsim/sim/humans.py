"""Simulated users: people who chat, agents that call tools (`behaviour` says what they do).

The prompt of a call is the whole conversation so far, so an engine's prefix cache can find most
of it if it is still there. After the last turn a user starts a new conversation. Each user has a
random stream of his own: users 1..n are the same people in a run with more of them.
"""

from specsim.errors import UsageError
from specsim.sim.behaviour import ChatBehaviour, begun, user_stream
from specsim.sim.cluster import Cluster
from specsim.sim.request import FINISHED, Request
from specsim.sim.ticket import Ticket

KEYS_PER_USER = 1 << 20  # conversations of one user, and their parts after compactions


class Humans:
    """`users` people behaving alike. thinking False: they answer at once (saturation). settled:
    the run meets them in steady service (`behaviour.begun`). The engine's cache is empty either
    way; within everybody's first turn it comes to hold what it would."""

    listens = True
    total: int | None = None

    def __init__(
        self, behaviour: ChatBehaviour, users: int, *, thinking: bool = True, settled: bool = False
    ) -> None:
        if isinstance(users, bool) or users < 1:
            raise UsageError(f"users is {users!r}; it must be 1 or more")
        self.behaviour = behaviour
        self.users = users
        self.thinking = thinking
        self.settled = settled

    def start(self, cluster: Cluster, seed: int) -> None:
        for number in range(self.users):
            _User(self, cluster, number, seed)


class _User:
    """One person or agent: a conversation at a time, one request at a time."""

    def __init__(self, crowd: Humans, cluster: Cluster, number: int, seed: int) -> None:
        self._habits = habits = crowd.behaviour
        self._cluster = cluster
        self._first_key = number * KEYS_PER_USER
        self._system: tuple[tuple[int, int], ...] = ()
        if habits.system_prompts and habits.system_tokens:
            # Beside the keys of conversations, which begin at 1 and have other parents.
            self._system = ((number % habits.system_prompts, habits.system_tokens),)
        first = begun(
            habits, user_stream(seed, number), thinking=crowd.thinking, settled=crowd.settled
        )
        self._calls, self._call, self._context = first.calls, first.call, first.context
        cluster.clock.call_at(first.at_s, self._send)

    def _send(self) -> None:
        call, habits = self._call, self._habits
        self._context += call.message_tokens
        key = self._first_key + call.part
        own = self._context - (habits.system_tokens if self._system else 0)
        request = Request(
            self._cluster.clock.now, self._context, call.output_tokens, (*self._system, (key, own)),
            habits.answers_cached, self._first_key + call.conversation, call.turn,
        )
        self._cluster.submit(request, self._answered)

    def _answered(self, ticket: Ticket, status: str, time_s: float) -> None:
        habits, call, output = self._habits, self._call, ticket.output_tokens
        failed = status != FINISHED
        pause_s = call.pause_s + (habits.reading_s(output) if call.reads else 0.0)
        self._context = output + (habits.system_tokens if call.compacts else self._context)
        self._call = self._calls.send((failed, self._context))
        if self._call.conversation != call.conversation:
            self._context = habits.system_tokens
        if pause_s > 0.0 or failed:
            # A refused request must not be sent again in the same instant, for ever.
            self._cluster.clock.call_at(time_s + max(pause_s, 1e-3), self._send)
        else:
            self._send()

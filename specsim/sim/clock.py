"""The run's clock: a simpy environment that schedules at absolute times and knows what is ahead.

Three kinds of events, in this order where times are equal:

* outside events (arrivals, failures, deadlines, users): simpy's ordinary priority, noted in a
  calendar, so that an engine knows how far it can run before anything can reach it;
* the end of an engine's stretch: after all outside events of that instant.

Absolute times matter: simpy adds delays to now, and (t - now) + now need not be t.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVarTuple

import simpy
from simpy.events import NORMAL, Event, EventPriority

Arguments = TypeVarTuple("Arguments")
AFTER_OUTSIDE = EventPriority(NORMAL + 1)


class Clock(simpy.Environment):
    """simpy's environment with absolute times and a calendar of outside events. Seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._calendar: list[float] = []

    def at(self, time_s: float) -> Event:
        """An outside event at `time_s` (now if that is past). Yield it, or add callbacks."""
        time_s = max(time_s, self.now)
        self._forget_past()
        heappush(self._calendar, time_s)
        return self._triggered(time_s, EventPriority(NORMAL))

    def call_at(
        self, time_s: float, action: Callable[[*Arguments], None], *args: *Arguments
    ) -> Event:
        """Call `action(*args)` as an outside event."""
        event = self.at(time_s)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: action(*args))
        return event

    def engine_wakes_at(self, time_s: float) -> Event:
        """The end of an engine's stretch: after the outside events of that instant."""
        return self._triggered(max(time_s, self.now), AFTER_OUTSIDE)

    def ring(self, event: Event) -> None:
        """Trigger an event an engine waits for: now, after the outside events of this instant."""
        self._trigger(event, self.now, AFTER_OUTSIDE)

    def next_outside_s(self) -> float:
        """When the next outside event comes; infinite if none is known."""
        self._forget_past()
        return self._calendar[0] if self._calendar else float("inf")

    def _forget_past(self) -> None:
        calendar, now_s = self._calendar, self.now
        while calendar and calendar[0] <= now_s:
            heappop(calendar)

    def _triggered(self, time_s: float, priority: EventPriority) -> Event:
        return self._trigger(self.event(), time_s, priority)

    def _trigger(self, event: Event, time_s: float, priority: EventPriority) -> Event:
        event._ok = True
        event._value = None
        # What Environment.schedule does, at a time instead of after a delay.
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event

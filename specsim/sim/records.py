"""Collecting what became of requests, column by column.

A record is 8-byte numbers until somebody asks for `RequestRecord` objects, so that 10,000 requests
take a few MB.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from specsim.sim.request import STATUSES, RequestRecord

INT_FIELDS = (
    "request_id", "session", "turn", "replica", "status", "prompt_tokens", "cached_tokens",
    "output_tokens", "requested_tokens", "chunks", "verify_steps", "drafted_tokens",
    "accepted_tokens", "preemptions", "stalls", "attempts",
)
TIME_FIELDS = ("arrival_s", "scheduled_s", "first_token_s", "last_token_s", "end_s")
_STATUS = INT_FIELDS.index("status")
_STATUS_CODE = {name: code for code, name in enumerate(STATUSES)}


class Records(Sequence[RequestRecord]):
    """All records of a run, in the order in which requests ended. A time never reached is NaN."""

    def __init__(self) -> None:
        self._ints = array("q")
        self._times = array("d")
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._times) // len(TIME_FIELDS)

    @overload
    def __getitem__(self, index: int) -> RequestRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[RequestRecord]: ...
    def __getitem__(self, index: int | slice) -> RequestRecord | list[RequestRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        width, times = len(INT_FIELDS), len(TIME_FIELDS)
        return make_record(
            self._ints[index * width : (index + 1) * width],
            self._times[index * times : (index + 1) * times], self._reasons.get(index, ""),
        )

    def __iter__(self) -> Iterator[RequestRecord]:
        for index in range(len(self)):
            yield self[index]

    def add(self, ints: Sequence[int], times: Sequence[float], reason: str = "") -> None:
        """Append one record: values in the order of INT_FIELDS and TIME_FIELDS."""
        if reason:
            self._reasons[len(self)] = reason
        self._ints.extend(ints)
        self._times.extend(times)

    def add_block(self, ints: NDArray[np.int64], times: NDArray[np.float64]) -> None:
        """Append records as rows of two tables."""
        self._ints.frombytes(np.ascontiguousarray(ints).tobytes())
        self._times.frombytes(np.ascontiguousarray(times).tobytes())

    def ints(self, name: str) -> NDArray[np.int64]:
        """A whole-number column."""
        table = np.frombuffer(self._ints, dtype=np.int64).reshape(-1, len(INT_FIELDS))
        return table[:, INT_FIELDS.index(name)].copy()

    def times(self, name: str) -> NDArray[np.float64]:
        """A column of times, NaN where it never came."""
        table = np.frombuffer(self._times, dtype=np.float64).reshape(-1, len(TIME_FIELDS))
        return table[:, TIME_FIELDS.index(name)].copy()

    def status(self, name: str) -> NDArray[np.bool_]:
        """Which requests ended as `name`."""
        return np.asarray(self.ints("status") == _STATUS_CODE[name])


def status_code(name: str) -> int:
    return _STATUS_CODE[name]


def make_record(ints: Sequence[int], times: Sequence[float], reason: str = "") -> RequestRecord:
    """A `RequestRecord` from the numbers of one."""
    values: dict[str, object] = dict(zip(INT_FIELDS, ints, strict=True))
    for name, time_s in zip(TIME_FIELDS, times, strict=True):
        values[name] = None if math.isnan(time_s) else time_s
    values["status"] = STATUSES[ints[_STATUS]]
    return RequestRecord(**values, reason=reason)  # type: ignore[arg-type]

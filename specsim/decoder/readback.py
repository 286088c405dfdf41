"""Records from the device to the host, without stopping the device.

On CUDA a ring of pinned buffers, one more than can be in flight, each with an event that says its
copy is done; a buffer is reused only after its record was received. On the CPU a copy where the
host reads late, else the tensor itself.
"""

import torch
from torch import Tensor


class Readback:
    def __init__(self, device: torch.device, lag: int) -> None:
        self._cuda = device.type == "cuda"
        self._next = 0
        self._held: dict[int, tuple[Tensor, torch.cuda.Event | None]] = {}
        self._spare: dict[tuple[int, ...], list[Tensor]] = {}
        self._lag = lag

    def send(self, record: Tensor) -> int:
        """Start bringing a record over; the ticket to receive it with."""
        ticket = self._next
        self._next += 1
        if not self._cuda:
            # A runner may write its next record to the same memory before this one is read.
            self._held[ticket] = (record.clone() if self._lag else record, None)
            return ticket
        shape = tuple(record.shape)
        spare = self._spare.setdefault(shape, [])
        buffer = spare.pop() if spare else torch.empty(shape, dtype=record.dtype).pin_memory()
        buffer.copy_(record, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._held[ticket] = (buffer, event)
        return ticket

    def receive(self, ticket: int) -> list[list[int]]:
        """The record's rows; waits for its copy."""
        buffer, event = self._held.pop(ticket)
        if event is not None:
            event.synchronize()
        rows: list[list[int]] = buffer.tolist()
        if event is not None:
            self._spare[tuple(buffer.shape)].append(buffer)
        return rows

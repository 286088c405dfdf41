"""Replicas onto GPUs: whole devices inside one node, or parts of one where that was asked for.

A replica of t GPUs takes t empty ones of one node, of the node with the fewest left that has
enough. A replica that may share takes part of one device: beside others that may share too, never
beside another of the same model (one failure would take both), as long as

    memory  the bytes of all (weights, drafter, reserve, cache of its running requests) fit
    load    the shares of time they need add up to at most `share`
    speed   each stream keeps its floor while the others run: with the others busy a share u of the
            time, streams run at (1 - u) of their speed (assumed: time is shared, nothing overlaps)

Widest first, then by memory, each where it leaves least room (best fit decreasing).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Piece:
    """One replica to place. bytes_needed, load, slack: for replicas that share a device: bytes on
    it, share of its time, largest share of time that others may take."""

    model: str
    gpu: str
    gpus: int
    shares: bool = False
    bytes_needed: float = 0.0
    load: float = 0.0
    slack: float = 0.0


@dataclass(slots=True)
class PoolDevice:
    """A GPU of the pool with what was put on it."""

    gpu: str
    node: int
    index: int
    room_bytes: float
    pieces: list[Piece] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.gpu}:{self.index}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A replica and its devices."""

    piece: Piece
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """placed replicas, those left over, and the devices that stay empty."""

    placed: tuple[Placed, ...]
    left: tuple[Piece, ...]
    empty: dict[str, int]


def devices_of(pools: Sequence[tuple[str, int, int, float]]) -> list[PoolDevice]:
    """Devices of pools of (type, count, devices per node, usable bytes of one)."""
    out, node = [], 0
    for gpu, count, per_node, room in pools:
        for index in range(count):
            if index % max(1, per_node) == 0:
                node += 1
            out.append(PoolDevice(gpu, node, index, room))
    return out


def pack(
    devices: list[PoolDevice], pieces: Sequence[Piece], share: float, *, in_order: bool = False
) -> Packing:
    """Place all pieces, in their order if asked for; those for which there is no room are left."""
    placed, left = [], []
    order = list(pieces)
    if not in_order:
        order.sort(key=lambda p: (p.shares, -p.gpus, -p.bytes_needed))
    free = _free(devices)
    refused: set[Piece] = set()  # devices only fill up, so the next one alike has no room either
    for piece in order:
        found: list[PoolDevice] = []
        if piece not in refused:
            found = _shared(devices, piece, share) if piece.shares else _whole(free, piece)
        if not found:
            refused.add(piece)
            left.append(piece)
            continue
        for device in found:
            if not device.pieces:
                free[device.gpu][device.node].remove(device)
            device.pieces.append(piece)
        placed.append(Placed(piece, tuple(device.name for device in found)))
    empty: dict[str, int] = {}
    for device in devices:
        empty.setdefault(device.gpu, 0)
        empty[device.gpu] += not device.pieces
    return Packing(tuple(placed), tuple(left), empty)


def _free(devices: list[PoolDevice]) -> dict[str, dict[int, list[PoolDevice]]]:
    """Empty devices by type and node, in their order."""
    out: dict[str, dict[int, list[PoolDevice]]] = {}
    for device in devices:
        if not device.pieces:
            out.setdefault(device.gpu, {}).setdefault(device.node, []).append(device)
    return out


def _whole(free: dict[str, dict[int, list[PoolDevice]]], piece: Piece) -> list[PoolDevice]:
    enough = [node for node in free.get(piece.gpu, {}).values() if len(node) >= piece.gpus]
    if not enough:
        return []
    return min(enough, key=len)[: piece.gpus]


def _shared(devices: list[PoolDevice], piece: Piece, share: float) -> list[PoolDevice]:
    def room(device: PoolDevice) -> float:
        return device.room_bytes - sum(other.bytes_needed for other in device.pieces)

    beside = [
        device
        for device in devices
        if device.gpu == piece.gpu and device.pieces and _goes(device, piece, share)
    ]
    if beside:
        return [min(beside, key=room)]
    empty = [d for d in devices if d.gpu == piece.gpu and not d.pieces]
    if empty and piece.bytes_needed <= empty[0].room_bytes:
        return [empty[0]]
    return []


def _goes(device: PoolDevice, piece: Piece, share: float) -> bool:
    """Whether a piece may join the pieces of a device."""
    others = device.pieces
    if any(not other.shares or other.model == piece.model for other in others):
        return False
    everyone = [*others, piece]
    if sum(one.bytes_needed for one in everyone) > device.room_bytes:
        return False
    load = sum(one.load for one in everyone)
    return load <= share and all(load - one.load <= one.slack for one in everyone)

"""Part A: what the device can do at best. Reading and copying memory, a large square product, and
the gap between kernels that do nothing.
"""

from functools import partial

import torch

from specsim.calibrate.records import Measurement
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured, reader


def jobs(stream_bytes: tuple[int, ...], cube: int, nodes: int, dtype: str) -> list[MeasureJob]:
    """stream_bytes: working sets of the memory sweep; cube: side of the product."""
    out = []
    for size in stream_bytes:
        for op in ("read", "copy"):
            moved = size if op == "read" else 2 * size
            point = MeasurePoint("stream", {"bytes": size, "op": op})
            work = JobCost(bytes=moved, setup_bytes=4 * size)
            out.append(MeasureJob("A", (point,), work, (), partial(_stream, point)))
    point = MeasurePoint("gemm_peak", {"m": cube, "n": cube, "k": cube, "dtype": dtype})
    work = JobCost(bytes=6 * cube**2, flops=2 * cube**3, setup_bytes=16 * cube**2)
    out.append(MeasureJob("A", (point,), work, (), partial(_cube, point)))
    point = MeasurePoint("launch", {"nodes": nodes})
    out.append(MeasureJob("A", (point,), JobCost(calls=nodes), (), partial(_launch, point)))
    return out


def _stream(point: MeasurePoint, session: Session) -> list[Measurement]:
    size, op = int(point.shape["bytes"]), str(point.shape["op"])
    session.release_probe()  # its buffer is as large as this one
    data = session.normal(size // 4, dtype=torch.float32)
    call = reader(data) if op == "read" else partial(torch.empty_like(data).copy_, data)
    timed = session.time([call])
    moved = size if op == "read" else 2 * size
    rate = moved / timed.timing.min_s
    if op == "read":
        session.bytes_per_s = rate  # of the largest working set so far: sizes rise
    return [measured(point, timed, bytes_per_s=rate)]


def _cube(point: MeasurePoint, session: Session) -> list[Measurement]:
    side = int(point.shape["m"])
    a, b = session.normal(side, side), session.normal(side, side)
    out = torch.empty_like(a)
    call = partial(torch.mm, a, b, out=out)
    timed = session.time([call])
    session.flop_per_s = 2 * side**3 / timed.timing.min_s
    return [measured(point, timed, flop_per_s=session.flop_per_s)]


def _launch(point: MeasurePoint, session: Session) -> list[Measurement]:
    """One sample is the whole chain; each kernel depends on the one before."""
    nodes = int(point.shape["nodes"])
    cell = torch.zeros(1, device=session.device)

    def chain() -> None:
        for _ in range(nodes):
            cell.add_(1.0)

    timed = session.time([chain])
    per_node = timed.timing.min_s / nodes
    session.call_s = max(per_node, session.call_s / 10)
    return [measured(point, timed, node_s=per_node)]

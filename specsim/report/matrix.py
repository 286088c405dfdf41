"""The text that `specsim matrix` prints."""

from specsim.planning.matrix import Cell, Matrix, Served
from specsim.report.tables import seconds, table


def matrix_text(result: Matrix) -> str:
    """The operating point, a line per cell, notes."""
    point = result.point
    head = [
        f"requests of {point.workload.input_len} + {point.workload.output_len} tokens, "
        f"{point.think_s:g} s between an answer and the next message of a user"
    ]
    if point.concurrency:
        head.append(f"operating point: {point.concurrency} clients per replica")
    else:
        text = f"operating point: most requests with {point.stream_floor:g} tok/s per stream"
        if point.ttft_limit_s:
            text += f" and a mean TTFT of {seconds(point.ttft_limit_s)}"
        head.append(text)
    rows = [_row(cell) for cell in result.cells]
    body = table(
        ["model", "GPU", "tp", "tok/s/GPU plain", "with", "gain", "users/GPU plain", "with",
         "at once plain", "with", "TTFT", ""],
        rows,
        left=2,
    )
    misfits = [f"{c.model} on {c.gpu}: {c.reason}" for c in result.cells if c.reason]
    marked = any(cell.assumed and not cell.reason for cell in result.cells)
    notes = ["* kernel efficiencies of this GPU are assumed, not measured on it"] if marked else []
    notes += [f"note: {text}" for text in result.warnings]
    blocks = ["\n".join(head), body, "\n".join(misfits), "\n".join(notes)]
    return "\n\n".join(block for block in blocks if block)


def _row(cell: Cell) -> list[str]:
    mark = "*" if cell.assumed and not cell.reason else ""
    if cell.reason:
        return [cell.model, cell.gpu, "-", *["-"] * 8, "does not fit"]
    name = f"{cell.model} ({cell.weights})"
    words = cell.missed if cell.missed else (
        f"{cell.method} k={cell.k}" if cell.speculative else "no speculation known"
    )
    shown = cell.speculative or cell.plain
    return [
        name,
        cell.gpu + mark,
        str(cell.tp),
        _number(cell.plain, "tok_s_per_gpu"),
        _number(cell.speculative, "tok_s_per_gpu"),
        "-" if cell.gain is None else f"{cell.gain:.2f}x",
        _number(cell.plain, "users_per_gpu"),
        _number(cell.speculative, "users_per_gpu"),
        _number(cell.plain, "concurrency"),
        _number(cell.speculative, "concurrency"),
        seconds(shown.ttft_s) if shown else "-",
        words,
    ]


def _number(side: Served | None, name: str) -> str:
    return "-" if side is None else f"{getattr(side, name):.0f}"

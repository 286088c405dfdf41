"""The step loop compiled by numba: the same functions, made machine code.

The plain functions stay what they are; numba is told that it may compile them when `run` calls
them, and to use the loops of `rows_loop` in place of numpy's vector operations. Nothing is
imported from numba before it is asked for. Machine code is cached in the user's cache directory,
in a folder named by the source it was made from.

State is handed over as addresses and the arrays are rebuilt on the other side: such arrays are
not reference counted, and counting costs more than the steps themselves.
"""

import hashlib
import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from specsim.errors import UsageError
from specsim.sim import (
    adapt,
    fields,
    kv,
    preempt,
    price,
    rows,
    rows_loop,
    schedule,
    step,
    streams,
    stretch,
)
from specsim.sim.fields import Core

_MODULES = (fields, kv, rows_loop, streams, adapt, price, preempt, schedule, step)
_HELPERS: tuple[Callable[..., Any], ...] = (
    kv.bucket_of, kv.find_node, kv.new_node, kv.drop_node, kv.queue_append, kv.queue_remove,
    kv.queue_prepend,
    kv.take_blocks, kv.match_prefix, kv.pin_prefix, kv.publish_prefix, kv.release_blocks,
    kv.release_pieces,
    streams.start_run, streams.close_run, streams.sit_out, streams.note_gap, streams.resume_rows,
    streams.prompt_token,
    adapt.observe_step, adapt.adaptive_drafts, adapt.tier_of_batch, adapt.place_in_tier,
    price.price_step, price.step_width, price.mean_context, price.decode_seconds,
    price.mixed_seconds,
    schedule.schedule, schedule.next_drafts, schedule.schedule_rows,
    preempt.grow_or_preempt, preempt.choose_victim, preempt.preempt, preempt.discard,
    preempt.drop_chunk, preempt.save_blocks, preempt.save_row, preempt.remove_row,
    schedule.add_chunk, schedule.continue_prefill, schedule.admit, schedule.may_still_write,
    schedule.settle_reserve, schedule.draws_left, schedule.steps_of_draws,
    step.run, step.receive, step.begin_step, step.settle_step, step.retire_rows, step.finish,
    step.settle_chunks, step.join_rows,
    rows_loop.node_below_loop, rows_loop.grow_rows_loop, rows_loop.emit_rows_loop,
    rows_loop.keep_rows_loop, rows_loop.between_corners_loop,
)
_INSTEAD = (
    (rows.grow_rows, rows_loop.grow_rows_loop),
    (rows.emit_rows, rows_loop.emit_rows_loop),
    (rows.keep_rows, rows_loop.keep_rows_loop),
    (rows.node_below, rows_loop.node_below_loop),
    (rows.between_corners, rows_loop.between_corners_loop),
    (stretch.stretch, rows_loop.no_stretch),
)

Runner = Callable[[float], int]


def available() -> bool:
    """Whether numba is installed (without importing it)."""
    return importlib.util.find_spec("numba") is not None


def cache_dir() -> Path:
    """Folder of the machine code of exactly this source."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for module in _MODULES:
        assert module.__file__ is not None
        digest.update(Path(module.__file__).read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specsim" / f"steps-{digest.hexdigest()[:16]}"


def is_cached() -> bool:
    """Whether the machine code of this source is at hand."""
    return any(cache_dir().rglob("*.nbc"))


def bind(core: Core) -> Runner:
    """`step.run` of this state, compiled: horizon in, reason out.

    The arrays of `core` must stay in place while the result is in use, which keeps them alive.
    """
    entry = _entry()
    addresses = np.array([array.ctypes.data for array in core], dtype=np.int64)
    shapes = np.zeros((len(core), 5), dtype=np.int64)
    for i, array in enumerate(core):
        assert array.flags.c_contiguous
        shapes[i, : array.ndim] = array.shape
    kept = core  # the addresses below point into it

    def run_compiled(horizon_s: float) -> int:
        assert kept is not None
        return entry(addresses, shapes, horizon_s)

    return run_compiled


@cache
def _entry() -> Callable[..., int]:
    """The compiled entry. The first call of a new version takes half a minute."""
    if not available():
        raise UsageError(
            "the compiled step loop needs numba, which is not installed; "
            "pip install 'specsim-llm[fast]' or leave compiled out"
        )
    import importlib

    numba: Any = importlib.import_module("numba")
    from numba.extending import overload, register_jitable

    for helper in _HELPERS:
        register_jitable(helper)
    for plain, loop in _INSTEAD:
        overload(plain, strict=False)(_always(loop))
    place = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_dir())
    from specsim.sim.compiled_entry import run_at

    entry: Callable[..., int]
    try:
        entry = numba.njit(cache=True)(run_at)
    except RuntimeError:  # no directory to cache in can be written
        entry = numba.njit(run_at)
    finally:
        numba.config.CACHE_DIR = place
    return entry


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    """What `overload` wants: a function from argument types to the implementation."""

    def implementation(*args: Any) -> Callable[..., Any]:
        return loop

    return implementation

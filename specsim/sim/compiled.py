"""The step loop compiled by numba: the same functions, made machine code.

The plain functions stay what they are; numba is told that it may compile them when `run` calls
them, and to use the loops of `rows_loop` in place of numpy's vector operations. Nothing is
imported from numba before it is asked for. Machine code is cached in the user's cache directory,
in a folder named by the source it was made from.

State is handed over as the address of a structure (`structs`), which both sides read and write.
"""

import hashlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from specsim.errors import UsageError
from specsim.latency import launches
from specsim.sim import (
    adapt,
    core,
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
from specsim.sim.core import Core
from specsim.sim.structs import address_of

# Modules whose functions run compiled, but for those that have a stand-in.
_MODULES = (core, kv, rows_loop, streams, adapt, price, preempt, schedule, step, launches)
# What decides the layout of the state, and with it the machine code, besides.
_LAYOUT = ("compiled", "compiled_entry", "structs")
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
    here = Path(__file__).parent
    files = [here / f"{name}.py" for name in _LAYOUT]
    files += [Path(inspect.getfile(module)) for module in _MODULES]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specsim" / f"steps-{digest.hexdigest()[:16]}"


def is_cached() -> bool:
    """Whether the machine code of this source is at hand."""
    return any(cache_dir().rglob("*.nbc"))


def bind(core: Core) -> Runner:
    """`step.run` of this state, compiled: horizon in, reason out.

    core: made by `structs.as_struct`, whose lists and arrays must stay in place while the result
    is in use; after they are replaced it must be bound again.
    """
    entry = _entry()
    address = address_of(core, Core)
    return lambda horizon_s: entry(address, horizon_s)


def _compilable() -> Iterator[Callable[..., object]]:
    """All functions of the modules that compiled code may call."""
    for module in _MODULES:
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__:
                yield function


@cache
def _entry() -> Callable[[int, float], int]:
    """The compiled entry. The first call of a new version takes some 15 seconds."""
    if not available():
        raise UsageError(
            "the compiled step loop needs numba, which is not installed; "
            "pip install 'specsim-llm[fast]' or leave compiled out"
        )
    import importlib

    numba: Any = importlib.import_module("numba")  # what it has is made at run time
    from numba.extending import overload, register_jitable

    for function in _compilable():
        register_jitable(function)
    for plain, loop in _INSTEAD:
        overload(plain, strict=False)(_always(loop))
    place = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_dir())
    from specsim.sim.compiled_entry import run_at

    entry: Callable[[int, float], int]
    try:
        entry = numba.njit(cache=True)(run_at)
    except RuntimeError:  # no directory to cache in can be written
        entry = numba.njit(run_at)
    finally:
        numba.config.CACHE_DIR = place
    return entry


def _always(loop: Callable[..., object]) -> Callable[..., Callable[..., object]]:
    """What `overload` wants: a function from argument types to the implementation."""

    def implementation(*args: object) -> Callable[..., object]:
        return loop

    return implementation

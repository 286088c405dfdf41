"""The step loop as machine code: the same functions, translated to C and compiled.

The plain functions stay what they are; `to_c` writes them as C, with the loops of `rows_loop` in
place of numpy's vector operations, and the C compiler of the machine makes a library of it, which
takes about a second, once for each version of the source. It is kept in the user's cache directory
under a name made from the source; loading it takes a millisecond.

State is handed over as the address of a structure (`structs`), which both sides read and write.
"""

import ctypes
import hashlib
import inspect
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.latency import launches
from specsim.sim import rows, rows_loop, step
from specsim.sim.core import Core
from specsim.sim.structs import address_of

Runner = Callable[[float], int]
Plain = Callable[..., object]


# What is called from outside, by its name in the library.
ENTRIES: dict[str, Plain] = {"run_steps": step.run, "draw_steps": rows_loop.draw_steps}
COMPILERS = ("cc", "gcc", "clang")
# No fused multiply-add: it would round once where Python rounds twice.
OPTIONS = ("-O2", "-std=c11", "-ffp-contract=off", "-fPIC", "-shared")
OTHERS_WRITE = (stat.S_IWGRP | stat.S_IWOTH) if os.name == "posix" else 0
MOST_SECONDS = 120  # for the compiler; it takes one


def instead() -> dict[Plain, Plain]:
    """Loops by the functions that they stand in for."""
    return {
        getattr(rows, name.removesuffix("_loop")): loop
        for name, loop in inspect.getmembers(rows_loop, inspect.isfunction)
        if name.endswith("_loop")
    }


def bind(core: Core) -> Runner:
    """`step.run` of this state, compiled: horizon in, reason out. UsageError if it cannot be.

    core: made by `structs.as_struct`, whose lists and arrays must stay in place while the result
    is in use; after they are replaced it must be bound again.
    """
    entry = _of_library("run_steps")
    entry.argtypes, entry.restype = (ctypes.c_void_p, ctypes.c_double), ctypes.c_int64
    address = address_of(core, Core)
    return lambda horizon_s: entry(address, horizon_s)


def draw_steps(
    states: NDArray[np.int64], moves: NDArray[np.float64], uniform: NDArray[np.float64],
    thresholds: NDArray[np.float64], step_levels: int, passed: NDArray[np.uint8],
) -> None:
    """`rows_loop.draw_steps`, compiled."""
    arrays = (_array(values) for values in (states, moves, uniform, thresholds))
    _of_library("draw_steps")(*arrays, ctypes.c_int64(step_levels), _array(passed))


class _Array1(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("shape", ctypes.c_int64 * 1))


class _Array2(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2))


def _array(values: NDArray[np.generic]) -> ctypes.Structure:
    """As C functions take it (see `structs`)."""
    assert values.flags.c_contiguous
    return (_Array1, _Array2)[values.ndim - 1](values.ctypes.data, values.shape)


def _of_library(name: str) -> Any:
    """A function of the compiled loop. UsageError if there is none."""
    library = _library()
    if isinstance(library, str):
        raise UsageError(f"the compiled step loop {library}; leave compiled out")
    return getattr(library, name)


def is_cached() -> bool:
    """Whether the machine code of this source is at hand."""
    return any(place.exists() for place in _places())


def available() -> bool:
    """Whether the compiled loop can be used: it is loaded, after it was made where it has to be."""
    return not isinstance(_library(), str)


@cache
def _library() -> ctypes.CDLL | str:
    """The compiled loop, or why there is none."""
    reason = "has no folder to be kept in"
    for place in _places():
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = place.parent.lstat()  # a link may lead elsewhere by the time it is loaded
            if stat.S_ISLNK(folder.st_mode) or folder.st_uid != _user():
                raise UsageError(f"is not kept in {place.parent}, which is another user's")
            if folder.st_mode & OTHERS_WRITE:
                raise UsageError(f"is not kept in {place.parent}, where other users may write")
            if not place.exists():
                _make(place)
            return ctypes.CDLL(str(place))
        except (OSError, subprocess.SubprocessError, UsageError) as error:
            reason = str(error) if isinstance(error, UsageError) else f"cannot be made ({error})"
    return reason


@cache
def _places() -> tuple[Path, ...]:
    """Where the library of exactly this source stands: in the user's cache, else in a folder for
    temporary files that is the user's own."""
    digest = hashlib.sha256(repr((OPTIONS, sys.platform, platform.machine())).encode())
    for file in sorted(_sources()):
        digest.update(file.read_bytes())
    name = f"steps-{digest.hexdigest()[:16]}.so"
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    kept = [base / "specsim"] if base.is_absolute() else []  # a user may have no home
    with suppress(OSError):  # nor a folder for temporary files
        kept.append(Path(tempfile.gettempdir()) / f"specsim-{_user()}")
    return tuple(folder / name for folder in kept)


def _user() -> int:
    """Number of the user, who alone may have put machine code where it is loaded from; 0 where
    there are no such numbers."""
    return os.getuid() if hasattr(os, "getuid") else 0


def _sources() -> set[Path]:
    """Files that decide what the machine code is."""
    return {Path(launches.__file__), *Path(__file__).parent.rglob("*.py")}


def _make(library: Path) -> None:
    """Translate and compile. The library is there whole or not at all, also where several
    processes make it at once."""
    from specsim.sim.to_c import translate

    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise UsageError(f"needs a C compiler, and there is no {' or '.join(COMPILERS)}")
    source, functions = translate(ENTRIES, instead())
    strange = {Path(inspect.getfile(function)) for function in functions} - _sources()
    assert not strange, f"_sources() has to name {strange}"
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / "steps.so"
        command = [*compiler.split(), *OPTIONS, "-x", "c", "-", "-o", str(made), "-lm"]
        done = subprocess.run(
            command, input=source, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise UsageError(f"cannot be made: {compiler} says: {last}")
        made.replace(library)

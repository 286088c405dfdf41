"""Python's arithmetic after translation to C, and what is refused."""

import ctypes
import itertools
import subprocess

import pytest

from specsim.errors import UsageError
from specsim.sim import compiled
from specsim.sim.core import Ring, push
from specsim.sim.structs import address_of, as_struct
from specsim.sim.to_c import translate

needs_compiler = pytest.mark.skipif(not compiled.available(), reason="there is no C compiler")


def arithmetic(a: int, b: int, x: float) -> float:
    total = 0
    for i in range(a, b):
        if i == 3 or not (1 < i <= 6):
            continue
        total += i % 4 - i // 3
    if b != 0:
        total += 10 * (a // b) + a % b + max(a, b) - min(a, b, 2)
        total += a / b
    first, second = max(a, -a), -b
    return total + x * (first if a > b else second) - int(x)


def walk(ring: Ring, add: int) -> int:
    """All slots of a ring, after one more came in."""
    push(ring, add)
    found = 0
    j = 0
    while True:
        if j >= ring.count:
            break
        found = found * 10 + ring.slots[j]
        j += 1
    return found


def in_c(function, folder, returns, *parameters):
    source, _ = translate({"entry": function}, {})
    library = folder / f"{function.__name__}.so"
    command = ["cc", *compiled.OPTIONS, "-Wall", "-Werror", "-x", "c", "-", "-o", str(library)]
    command += ["-Wno-unused-function", "-lm"]
    subprocess.run(command, input=source, text=True, check=True)
    entry = ctypes.CDLL(str(library)).entry
    entry.restype, entry.argtypes = returns, parameters
    return entry


@needs_compiler
def test_arithmetic_is_pythons(tmp_path):
    number, whole = ctypes.c_double, ctypes.c_int64
    entry = in_c(arithmetic, tmp_path, number, whole, whole, number)
    for a, b, x in itertools.product(range(-7, 8), range(-7, 8), (-2.7, 0.1, 1e17)):
        assert entry(a, b, x) == arithmetic(a, b, x), (a, b, x)


@needs_compiler
def test_structures_and_arrays_are_those_of_the_core(tmp_path):
    entry = in_c(walk, tmp_path, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    ring = as_struct(Ring([4, 7, 0, 0], count=2))
    assert entry(address_of(ring, Ring), 9) == 479 == walk(Ring([4, 7, 0, 0], count=2), 9)
    assert (ring.count, ring.slots.tolist()) == (3, [4, 7, 9, 0])


def two_types(a: int) -> int:
    a = a / 2
    return int(a)


def from_the_end(ring: Ring) -> int:
    return ring.slots[-1]


def other_value(a: int) -> int:
    return a or 5


def no_such_field(ring: Ring) -> int:
    return ring.length


def unknown_call(a: int) -> int:
    return a.bit_length()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (two_types, "a is a int64_t and a double"),
        (from_the_end, "indices count from 0"),
        (other_value, "of comparisons"),
        (no_such_field, "no such field"),
        (unknown_call, "only functions known by name"),
    ],
)
def test_what_c_would_do_otherwise_is_refused_with_its_place(function, why):
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(TypeError, match=rf"test_sim_to_c\.py:{line}: .*{why}"):
        translate({"entry": function}, {})


def test_without_a_compiler_the_reason_is_told_and_runs_go_on_plain(monkeypatch, tmp_path):
    from sim_costs import Linear
    from specsim.sim.config import SimConfig
    from specsim.sim.loads import OpenLoop
    from specsim.sim.request import Request
    from specsim.sim.run import simulate

    compiled._library.cache_clear()
    monkeypatch.setattr(compiled, "_places", lambda: (tmp_path / "specsim" / "steps.so",))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    try:
        assert not compiled.is_cached() and not compiled.available()
        load, cost = OpenLoop([Request(0.0, 10, 10)], total=5000), Linear(0.01, 1e-4, 1e-5)
        result = simulate(SimConfig(1000), load, cost)
        assert not result.compiled and result.summary()["requests"]["finished"] == 1
        with pytest.raises(UsageError, match=r"needs a C compiler.*leave compiled out"):
            simulate(SimConfig(1000, compiled=True), load, cost)
        monkeypatch.setenv("CC", "/bin/false")
        compiled._library.cache_clear()
        assert not compiled.available()
    finally:
        compiled._library.cache_clear()


@needs_compiler
def test_a_library_that_another_user_could_have_put_there_is_not_loaded(monkeypatch, tmp_path):
    compiled._library.cache_clear()
    monkeypatch.setattr(compiled, "_places", lambda: (tmp_path / "steps.so",))
    monkeypatch.setattr(compiled, "_user", lambda: tmp_path.stat().st_uid + 1)
    try:
        assert "another user" in compiled._library()
    finally:
        compiled._library.cache_clear()


@needs_compiler
@pytest.mark.parametrize("how", ["open", "link"])
def test_a_folder_that_others_may_change_is_not_used(monkeypatch, tmp_path, how):
    folder = tmp_path / "specsim"
    if how == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    compiled._library.cache_clear()
    monkeypatch.setattr(compiled, "_places", lambda: (folder / "steps.so",))
    try:
        assert "is not kept in" in compiled._library()
    finally:
        compiled._library.cache_clear()


def test_without_any_folder_to_write_to_runs_go_on_plain(monkeypatch):
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr(compiled.tempfile, "gettempdir", none)
    monkeypatch.setenv("XDG_CACHE_HOME", "nowhere")
    compiled._places.cache_clear()
    compiled._library.cache_clear()
    try:
        assert not compiled.is_cached() and not compiled.available()
        with pytest.raises(UsageError, match="no folder to be kept in"):
            compiled.draw_steps(*[None] * 6)  # type: ignore[arg-type]
    finally:
        compiled._places.cache_clear()
        compiled._library.cache_clear()

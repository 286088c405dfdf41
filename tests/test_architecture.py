"""Imports point downwards only, and the prediction path stays light."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from sources import PACKAGE, modules, nodes_of, tree_of

ROOT = PACKAGE.parent

# Layer of each part of the package; a module may import from its own part and from lower layers.
LAYERS = {
    "units": 0, "errors": 0, "data": 0, "search": 0, "version": 0, "jsonable": 0,
    "interrupts": 0, "summary": 0,
    "vllm_files": 0.5, "rows": 0.5,
    "files": 0.5,  # raises the errors of the layer below, and is there for all above
    "checked": 0.7,
    "options": 1.6,  # names the drafting methods in its help
    "hardware": 1, "model": 1,
    "methods": 1.5,  # what each drafting method runs; asked by all above
    "ops": 2,
    "roofline": 2.5,  # prices the shapes of ops
    "latency": 3,
    "speculation": 4,
    "analytic": 5,
    "sim": 6,
    "planning": 7,
    "report": 8,
    "api": 9,
    "commands": 10,
}
GROUND = {"units", "errors", "data", "search", "version", "jsonable", "vllm_files", "rows", "files",
          "checked", "interrupts", "summary"}
# Edges: what they may import besides themselves.
EDGES = {
    "formats": {*GROUND, "model", "hardware", "methods", "sim.request"},
    "client": {*GROUND, "model", "hardware", "formats", "sim.request"},
    "calibrate": {*GROUND, "hardware", "model", "methods", "ops", "roofline",
                  "latency", "speculation", "analytic", "formats"},
    "accuracy": {*GROUND, "hardware", "model", "methods", "ops", "roofline",
                 "latency", "speculation", "analytic", "formats", "sim", "client", "calibrate"},
    "diagnose": {*GROUND, "hardware", "model", "methods", "ops", "roofline", "latency",
                 "speculation", "analytic", "formats", "client", "calibrate"},
    "decoder": {*GROUND, "model.spec", "formats.hf_config", "formats.gguf_header",
                "speculation.acceptance"},
    "measure": {"units", "errors", "data", "version", "jsonable", "files", "decoder",
                "calibrate.records", "summary", "speculation.acceptance"},
    "serve": {*GROUND, "decoder", "formats"},
    "explore": {*GROUND, "api", "report", "options", "model", "hardware", "methods", "latency",
                "analytic", "serve"},
}
# The Python interface joins edges and layers; only the command line is above it.
FACADES = {"api"}
NOT_FOR_FACADES = {"commands", "decoder", "measure", "serve", "explore"}
HEAVY = {"torch", "triton", "simpy", "typer", "transformers", "starlette", "uvicorn", "aiohttp",
         "httpx2", "plotly", "matplotlib", "dask", "distributed", "ray", "pandas", "polars",
         "pyarrow"}
ALLOWED_HEAVY = {
    "sim": {"simpy"},
    "commands": {"typer"},
    "decoder": {"torch", "triton", "transformers"},
    "measure": {"torch"},
    "serve": {"starlette", "uvicorn"},
    "explore": {"starlette", "uvicorn"},
    "client": {"aiohttp", "httpx2"},
    "planning": {"dask", "distributed", "ray"},
    "api": {"pandas", "polars"},
    "report": {"plotly", "matplotlib", "pandas", "polars", "pyarrow"},
}


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    found: set[str] = set()
    for node in tree_of(path).body if top_level_only else nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
            if node.module.count(".") < 2 and node.module.startswith("specsim"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def forbidden(path: Path) -> Iterator[str]:
    """Names that the module imports from above itself, or from beside it."""
    part = part_of(path)
    if part in ("__init__", "__main__", "commands"):
        return
    for name in imports(path):
        target = name.removeprefix("specsim.")
        other = target.split(".")[0]
        if target == name or other == part or other.startswith("__"):
            continue
        if part in EDGES:
            if not any(target == a or target.startswith(a + ".") or a.startswith(target + ".")
                       for a in EDGES[part]):
                yield name
        elif part in FACADES:
            if other in NOT_FOR_FACADES:
                yield name
        elif other not in LAYERS or LAYERS[other] >= LAYERS[part]:
            yield name


def found_in(rule: Callable[[Path], Iterable[object]]) -> dict[str, list[object]]:
    """What a rule finds in each module that breaks it."""
    found = {str(path.relative_to(PACKAGE)): list(rule(path)) for path in modules()}
    assert len(found) > 300
    return {name: what for name, what in found.items() if what}


def test_imports_point_downwards() -> None:
    assert found_in(forbidden) == {}


def test_heavy_packages_stay_in_their_rooms() -> None:
    def outside(path: Path) -> set[str]:
        part = part_of(path)
        heavy = {name.split(".")[0] for name in imports(path)} & HEAVY
        at_top = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
        # Of commands heavy packages belong inside the function.
        allowed = ALLOWED_HEAVY.get(part, set())
        inside = allowed | ({"torch"} if part == "commands" else set())
        return (heavy - inside) | (at_top - {"typer"} if part == "commands" else set())

    assert found_in(outside) == {}


def test_modules_say_what_they_are_and_stay_readable() -> None:
    def unreadable(path: Path) -> Iterator[str]:
        if not ast.get_docstring(tree_of(path)):
            yield "no module docstring"
        if len(path.read_text(encoding="utf-8").splitlines()) > 420:
            yield "too long: split it by purpose"

    assert found_in(unreadable) == {}


def test_predict_needs_no_heavy_package() -> None:
    code = (
        "import sys; sys.argv = ['specsim', 'predict', 'qwen3.6-27b', '--json'];\n"
        "from specsim.commands import app\n"
        "try:\n    app()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "unwanted = {'torch', 'triton', 'simpy', 'scipy', 'numpy', 'transformers'}\n"
        "heavy = unwanted & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_module_reaches_into_another_objects_attributes() -> None:
    """`__dict__` and `object.__setattr__` only on oneself (a frozen dataclass checking itself)."""
    def reached(path: Path) -> Iterator[int]:
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and node.attr == "__dict__" and not (
                isinstance(node.value, ast.Name) and node.value.id == "self"
            ):
                yield node.lineno
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "__setattr__"
                and isinstance(node.func.value, ast.Name)  # not super().__setattr__
            ):
                first = node.args[0] if node.args else None
                if not (isinstance(first, ast.Name) and first.id == "self"):
                    yield node.lineno

    assert found_in(reached) == {}


@pytest.mark.parametrize(("name", "text", "allowed"), [
    ("sim/here.py", "import specsim.planning.tune", False),
    ("sim/here.py", "from specsim import planning", False),
    ("sim/here.py", "from specsim.latency import price", True),
    ("formats/here.py", "from specsim.sim.loop import run", False),
    ("formats/here.py", "from specsim.sim.request import Request", True),
    ("api/here.py", "from specsim.commands import app", False),
])
def test_the_check_of_imports_finds_what_it_looks_for(
    name: str, text: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "nodes_of", lambda _: list(ast.walk(ast.parse(text))))
    assert (list(forbidden(PACKAGE / name)) == []) is allowed

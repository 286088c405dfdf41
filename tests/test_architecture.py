"""Imports point downwards only, and the prediction path stays light."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "specsim"

# Layer of each part of the package; a module may import from its own part and from lower layers.
LAYERS = {
    "units": 0, "errors": 0, "data": 0, "search": 0, "version": 0, "jsonable": 0,
    "vllm_files": 0,
    "rows": 0.5,
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
          "checked"}
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
    "decoder": {*GROUND, "model.spec", "formats.hf_config", "formats.gguf_header"},
    "measure": {"units", "errors", "version", "jsonable", "decoder", "calibrate.records",
                "calibrate.summary"},
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


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    tree = tree_of(path)
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
            if node.module.count(".") < 2 and node.module.startswith("specsim"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    part = part_of(path)
    if part in ("__init__", "__main__"):
        return
    for name in imports(path):
        if not name.startswith("specsim."):
            continue
        target = name.removeprefix("specsim.")
        other = target.split(".")[0]
        if other == part or other.startswith("__"):
            continue
        if part in EDGES:
            allowed = EDGES[part]
            inside = any(target == a or target.startswith(a + ".") or a.startswith(target + ".")
                         for a in allowed)
            assert inside, f"{path.name}: {part} must not import {name}"
        elif part in FACADES:
            assert other not in NOT_FOR_FACADES, f"{path.name}: {part} must not import {name}"
        elif part != "commands":
            assert other in LAYERS, f"{path.name}: {part} must not import the edge {name}"
            assert LAYERS[other] < LAYERS[part], f"{path.name}: {part} must not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_packages_stay_in_their_rooms(path: Path) -> None:
    part = part_of(path)
    heavy = {name.split(".")[0] for name in imports(path)} & HEAVY
    assert heavy <= ALLOWED_HEAVY.get(part, set()) | ({"torch"} if part == "commands" else set())
    at_top = {name.split(".")[0] for name in imports(path, top_level_only=True)}
    if part == "commands":
        assert not at_top & (HEAVY - {"typer"}), "heavy packages belong inside the function"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_say_what_they_are_and_stay_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(tree_of(path)), f"{path} has no module docstring"
    assert len(text.splitlines()) <= 420, f"{path} is too long: split it by purpose"


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


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_reaches_into_another_objects_attributes(path: Path) -> None:
    """`__dict__` and `object.__setattr__` only on oneself (a frozen dataclass checking itself)."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            assert isinstance(node.value, ast.Name) and node.value.id == "self", (
                f"{path.name}, line {node.lineno}: __dict__ of another object"
            )
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "__setattr__"
            and isinstance(node.func.value, ast.Name)  # not super().__setattr__
        ):
            first = node.args[0] if node.args else None
            assert isinstance(first, ast.Name) and first.id == "self", (
                f"{path.name}, line {node.lineno}: sets an attribute of another object"
            )

"""The modules of the package, parsed once for all tests that look through them."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "specsim"
_KINDS = (
    ast.Import, ast.ImportFrom, ast.Attribute, ast.Call, ast.FunctionDef, ast.Compare,
    ast.MatchValue, ast.Tuple, ast.List, ast.Set, ast.Dict,
)


@cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """What the tests ask for, of one walk."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, _KINDS)]

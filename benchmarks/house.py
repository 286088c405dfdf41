"""How easy the code is to change, as a table: sizes, types, cycles, names, places to touch.

    python benchmarks/house.py [TREE] [--against TREE2] [--names]

TREE is a checkout (default: this one), TREE2 an older one, whose figures stand first. --names also
lists the class names that several classes share, the import cycles and the places. Only the source
is read; nothing of it is imported. How things are counted:

    lines               of all .py files under specsim/, blank ones too
    function length     from `def` to the last line; without decorators
    documented share    lines of docstrings and comments of all lines
    Any                 annotations of parameters, results and variables that hold `Any`
    parameters          functions with nine or more, self included, *args and **kwargs one each
    import cycles       groups of modules that import each other in a ring, imports inside of
                        functions included; and the modules in them
    shared class names  names that two or more modules use for a class

Places to touch are files edited by hand to add one more of a kind. They are measured by a specimen:
the files (hw_profiles, engines and specsim; without comments and docstrings) that name it.

    a GPU               'b60'
    a model family      'glm4_moe', a family of known parts, under specsim/, and its catalogue entry
    a mixer             the class Mamba2, its module-like names (mamba2_...) and the string 'mamba2'
    a drafting method   'dflash' in any name or string
    an engine version   any version of vLLM: a string '0.25', '0.10.1', 'vllm==...' or a tuple
                        (0, 25), counted in specsim/; and its one file under engines/. Shades of
                        grey and `in (0, 16)` are no versions
    an option           'exit_layers' or '--exit-layers' where it is declared or handed on (a
                        parameter, a field, a keyword argument, a string) in the packages around the
                        model, those that MODEL_PACKAGES does not name
"""

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Where an option has its meaning; everywhere else it is only declared and handed on.
MODEL_PACKAGES = {
    "hardware", "model", "ops", "roofline", "latency", "speculation", "methods", "analytic",
    "decoder", "calibrate",
}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_VLLM_VERSION = re.compile(r"(vllm==)?0\.([5-9]|[1-4]\d)(\.\d+)?")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its path from the root of the tree, text and syntax."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """'specsim/sim' for specsim/sim/core.py; 'specsim' for what lies directly in it."""
        return "/".join(self.path.parts[:2]) if len(self.path.parts) > 2 else "specsim"

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def modules_of(tree: Path) -> list[Module]:
    """All modules of the package in this checkout."""
    out = []
    for path in sorted((tree / "specsim").rglob("*.py")):
        inside = path.relative_to(tree)
        parts = inside.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        out.append(Module(name, inside, text, ast.parse(text)))
    return out


def functions(module: Module) -> Iterator[FunctionNode]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode):
            yield node


def docstrings(module: Module) -> list[ast.Expr]:
    """The statements that are docstrings, those under fields included."""
    return [
        node for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def documented_lines(module: Module) -> int:
    """Lines of docstrings, and lines that hold a comment."""
    held: set[int] = set()
    for node in docstrings(module):
        held.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            held.add(token.start[0])
    return len(held)


def annotations(module: Module) -> Iterator[ast.expr]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation


def any_annotations(module: Module) -> int:
    return sum(
        any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(annotation))
        for annotation in annotations(module)
    )


def has_any_in_signature(function: FunctionNode) -> bool:
    arguments = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    given = [function.returns, *(argument.annotation for argument in arguments)]
    return any(
        isinstance(part, ast.Name) and part.id == "Any"
        for annotation in given if annotation is not None for part in ast.walk(annotation)
    )


def parameter_count(function: FunctionNode) -> int:
    given = function.args
    named = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return named + (given.vararg is not None) + (given.kwarg is not None)


def imports(module: Module, names: set[str]) -> set[str]:
    """The modules of the package that it imports anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return found & names - {module.name}


def cycles(modules: list[Module]) -> list[list[str]]:
    """Groups of two or more modules each of which reaches all others (Tarjan 1972)."""
    names = {module.name for module in modules}
    graph = {module.name: sorted(imports(module, names)) for module in modules}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                groups.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return groups


def shared_class_names(modules: list[Module]) -> dict[str, list[str]]:
    """Class names with the modules that use them, where those are several."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in sorted({n.name for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef)}):
            places[name].append(module.name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


# --- places to touch -------------------------------------------------------------------------


def words(module: Module) -> Iterator[str]:
    """Names and strings of the code, without docstrings."""
    documentation = {id(node.value) for node in docstrings(module)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, FunctionNode | ast.ClassDef | ast.alias):
            yield node.name
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.value
        yield from declared(node)


def declared(node: ast.AST) -> Iterator[str]:
    """The name that a parameter or a keyword argument gives."""
    if isinstance(node, ast.arg | ast.keyword) and node.arg:
        yield node.arg


def handed_on(module: Module) -> Iterator[str]:
    """Names of parameters, fields and keyword arguments, and strings: where options travel."""
    documentation = {id(node.value) for node in docstrings(module)}
    for node in ast.walk(module.tree):
        yield from declared(node)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.value


def is_vllm_version(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple) and len(node.elts) in (2, 3):
        values = [item.value if isinstance(item, ast.Constant) else None for item in node.elts]
        return (
            values[0] == 0 and all(type(value) is int for value in values)
            and 5 <= int(str(values[1])) < 50
        )
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
        and _VLLM_VERSION.fullmatch(node.value) is not None
    )


def spoken(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but greys (color="0.9") and sets of numbers that something is in."""
    yield node
    if isinstance(node, ast.keyword) and node.arg == "color":
        return
    found_in = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)
    for child in ast.iter_child_nodes(node):
        if not (found_in and isinstance(child, ast.Tuple)):
            yield from spoken(child)


def naming(
    modules: list[Module], pattern: str, source: Callable[[Module], Iterator[str]] = words
) -> list[str]:
    """The modules in which the pattern is found."""
    wanted = re.compile(pattern, re.IGNORECASE)
    return [str(m.path) for m in modules if any(wanted.search(word) for word in source(m))]


def data_naming(tree: Path, folder: str, pattern: str) -> list[str]:
    """TOML files of a data folder in which the pattern stands outside of comments."""
    wanted = re.compile(pattern, re.IGNORECASE)
    return [
        str(path.relative_to(tree)) for path in sorted((tree / folder).glob("*.toml"))
        if any(wanted.search(line.partition("#")[0])
               for line in path.read_text(encoding="utf-8").splitlines())
    ]


def places(tree: Path, modules: list[Module]) -> dict[str, list[str]]:
    """For each kind of thing that people add, the files that name a specimen."""
    outer = [m for m in modules if m.path.parts[1] not in MODEL_PACKAGES]
    return {
        "a GPU": [*naming(modules, r"\bb60\b"), "hw_profiles/b60.toml"],
        "a model family of known parts": [
            *naming(modules, r"\bglm4_moe\b|^glm4_moe"), "catalog/models/*.json"
        ],
        "a new mixer": naming(modules, r"mamba2"),
        "a drafting method": [
            *naming(modules, r"dflash"), *data_naming(tree, "engines", r"\bdflash\b")
        ],
        "an engine version": [
            *(str(m.path) for m in modules if any(map(is_vllm_version, spoken(m.tree)))),
            "engines/vllm-*.toml",
        ],
        "an option": naming(outer, r"(^|\W)exit[_-]layers\b", handed_on),
    }


# --- the table -------------------------------------------------------------------------------


@dataclass(frozen=True)
class House:
    """The figures of one checkout; `folders` are lines by folder, `anys` annotations by folder."""

    folders: Counter[str]
    anys: Counter[str]
    lengths: list[int]
    documented: int
    wide: list[str]
    untyped: int
    cycles: list[list[str]]
    shared: dict[str, list[str]]
    places: dict[str, list[str]]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """(what, figure) of everything but the folders."""
        lines = self.folders.total()
        return [
            ("lines of specsim/", f"{lines:,}"),
            ("functions", f"{len(self.lengths):,}"),
            ("median function length", f"{statistics.median(self.lengths):g}"),
            ("mean function length", f"{statistics.mean(self.lengths):.1f}"),
            ("functions over 40 lines", str(sum(length > 40 for length in self.lengths))),
            ("documented share", f"{self.documented / lines:.1%}"),
            ("annotations with Any", str(self.anys.total())),
            ("functions with Any in their signature", str(self.untyped)),
            ("functions with nine parameters or more", str(len(self.wide))),
            ("import cycles (modules in them)",
             f"{len(self.cycles)} ({sum(map(len, self.cycles))})"),
            ("shared class names", str(len(self.shared))),
            *((f"places for {kind}", str(len(where))) for kind, where in self.places.items()),
        ]


def house(tree: Path) -> House:
    """Read one checkout."""
    modules = modules_of(tree)
    if not modules:
        raise SystemExit(f"{tree} has no specsim/; give the root of a checkout")
    folders: Counter[str] = Counter()
    anys: Counter[str] = Counter()
    for module in modules:
        folders[module.folder] += module.lines
        anys[module.folder] += any_annotations(module)
    every = [(module, node) for module in modules for node in functions(module)]
    return House(
        folders, anys,
        [(node.end_lineno or node.lineno) - node.lineno + 1 for _, node in every],
        sum(documented_lines(module) for module in modules),
        [f"{module.name}.{node.name}" for module, node in every if parameter_count(node) >= 9],
        sum(has_any_in_signature(node) for _, node in every),
        cycles(modules), shared_class_names(modules), places(tree, modules),
    )


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(found: House, before: House | None) -> str:
    """The tables, as Markdown."""
    sides = [found] if before is None else [before, found]
    columns = ["now"] if before is None else ["before", "now"]
    rows = [
        [line[0][0], *(figure for _, figure in line)]
        for line in zip(*(side.rows for side in sides), strict=True)
    ]
    names = sorted(set().union(*(side.folders for side in sides)))
    folders = [
        [
            name, *(f"{side.folders[name]:,}" for side in sides),
            *(str(side.anys[name]) for side in sides),
        ]
        for name in names
    ]
    heads = ["folder", *(f"lines {c}" for c in columns), *(f"Any {c}" for c in columns)]
    return f"{markdown(['', *columns], rows)}\n\n{markdown(heads, folders)}"


def details(found: House) -> str:
    """The names behind the counts."""
    parts = [f"{name}: {', '.join(where)}" for name, where in found.shared.items()]
    parts += [f"cycle: {', '.join(group)}" for group in found.cycles]
    parts += [f"nine parameters: {name}" for name in found.wide]
    parts += [f"{kind}: {', '.join(where)}" for kind, where in found.places.items()]
    return "\n".join(f"* {part}" for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--against", type=Path, help="an older checkout, shown first")
    parser.add_argument("--names", action="store_true", help="the names behind the counts")
    options = parser.parse_args()
    found = house(options.tree.resolve())
    print(report(found, house(options.against.resolve()) if options.against else None))
    if options.names:
        print(f"\n{details(found)}")


if __name__ == "__main__":
    main()

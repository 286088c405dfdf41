"""What is particular to a drafting method stands in specsim/methods, compared nowhere else."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from sources import PACKAGE, modules, nodes_of

from specsim.latency.engine import list_engines
from specsim.methods.base import METHODS

KINDS = {kind for method in METHODS.values() for kind in method.drafter_kinds}
# 'none' and 'model' mean other things elsewhere: they count only beside something called a method.
NAMES = {*METHODS, *KINDS, "draft_model", "early_exit"} - {"none", "model"}
# These run or measure methods themselves (the bundled decoder and what drives it), so there a name
# picks the code that drafts.
DECODER = {
    "decoder", "serve", "measure", "commands/decoder_setup.py", "commands/generate.py",
    "commands/train_head.py", "commands/serve.py",
}
# Records of the decoder carry its names; runs of it are planned and driven by them.
RECORDS = {
    "calibrate/host.py", "calibrate/price.py", "accuracy/run_plan.py", "commands/validate_run.py",
}
# The key of a checkpoint's head in the catalogue.
OTHERS = {"model/serial.py"}


def literals(node: ast.expr) -> list[str]:
    """The texts of a constant or of a tuple, list, set or the keys of a dict."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [text for item in node.elts for text in literals(item)]
    if isinstance(node, ast.Dict):
        return [text for key in node.keys if key is not None for text in literals(key)]
    return []


def comparisons(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Source of what compares a method's name or lists several of them."""
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = {t for side in sides for t in literals(side)}
            if named & NAMES or ("none" in named and "method" in ast.unparse(node)):
                yield ast.unparse(node)
        case = isinstance(node, ast.MatchValue) and set(literals(node.value)) & NAMES
        several = isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
        if case or (several and len(set(literals(node)) & NAMES) > 1):
            yield ast.unparse(node)


def files() -> list[Path]:
    found = []
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        apart = {*DECODER, "methods"}
        if name.split("/")[0] not in apart and name not in DECODER | RECORDS | OTHERS:
            found.append(path)
    return found


def test_no_method_is_named_in_a_comparison() -> None:
    assert len(files()) > 300
    named = {str(p): list(comparisons(nodes_of(p))) for p in files()}
    assert {path: found for path, found in named.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    ['x = setup.method == "ngram"', 'y = kind in ("dflash", "z")', 'm = {"mtp": 1, "eagle": 2}',
     'p = setup.method != "none"', 'match m:\n    case "mtp":\n        pass'],
)
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert list(comparisons(ast.walk(ast.parse(source))))


def test_and_leaves_other_words_alone() -> None:
    text = 'a = link_kind == "none"; b = {"mtp": None}; c = part == "model"'
    assert not list(comparisons(ast.walk(ast.parse(text))))


# Foreign results and servers say which engine made or runs them; those who read them may ask.
READ_ENGINES = {"accuracy/rows.py", "client/look.py", "client/result.py", "diagnose/watching.py",
                "formats/server_flags.py"}
ENGINES = {engine.name for engine in list_engines()}


def engine_questions(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Source of comparisons of an engine with a packaged one's name."""
    for node in nodes:
        if isinstance(node, ast.Compare):
            named = {t for side in (node.left, *node.comparators) for t in literals(side)} & ENGINES
            if named and re.search(r"\bengine\b", ast.unparse(node)):
                yield ast.unparse(node)


def test_no_engine_is_named_in_a_comparison() -> None:
    """How engines and their versions differ is data: `engines/*.toml`."""
    assert list(engine_questions(ast.walk(ast.parse('a = system.engine.name == "vllm"'))))
    read = [p for p in files() if p.relative_to(PACKAGE).as_posix() not in READ_ENGINES
            and "bench" not in p.parts]
    asked = {str(p): list(engine_questions(nodes_of(p))) for p in read}
    assert {path: found for path, found in asked.items() if found} == {}

"""The field's words: what is said by vLLM, SGLang and the papers is said so here, and nowhere else
are words invented for it (docs/glossary.md). What was mended stays mended."""

import ast
import re
from pathlib import Path

import pytest
from sources import modules, tree_of

from specsim.speculation.acceptance_catalogue import measurements, source_names
from specsim.speculation.resolve import AcceptanceQuery, resolve

ROOT = Path(__file__).resolve().parents[2]
# What may not be written, and what is written in its place.
INVENTED = {
    r"longer than it multiplies|memory streaming longer": "memory-bound",
    r"drafted tokens ride along": "memory-bound, so verifying drafts costs little",
    r"for want of": "for lack of, or what is missing",
    r"its books": "its state",
    r"\[unstated\]": "no work stated",
    r"the same luck|with .{0,12}luck": "random draws",
    r"in mid-life": "steady service",
    r"what stops (more|a replica)": "limited by",
    r"SLO gate|worst gate(?!_)|every gate|no gate is|gate ttft": "SLO",
    r"hand-overs between stages": "transfers between stages, pipeline bubbles",
    r"GPUs that share (a|every) layer, e\.g\.": "tensor parallel sizes",
    r"Largest number of running sequences": "request slots",
    r"Streaming memory, multiplying": "memory-bound, compute-bound",
    r"[Ss]imulated people|people who chat at": "users",
}
TEXTS = sorted([
    *(ROOT / "specsim").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md",
    *(ROOT / "tests" / "golden" / "terminal").glob("*.txt"),
])
OUTPUTS = sorted((ROOT / "tests" / "golden" / "terminal").glob("*.txt"))
# Names of sets of measurements that are codes, not words: MR27, SPECB.
CODES = sorted({p.set_id for p in measurements() if re.fullmatch(r"[A-Z0-9-]{2,}", p.set_id)})


@pytest.mark.parametrize("pattern", INVENTED)
def test_no_invented_word_comes_back(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found, f"write: {INVENTED[pattern]}"


def test_sources_are_named_not_coded() -> None:
    """A sentence says who measured, not the id of a row."""
    names = source_names()
    assert {point.set_id for point in measurements()} == set(names)
    coded = re.compile(rf"\b({'|'.join(CODES)})\b")
    assert len(CODES) > 20 and not [name for name in names.values() if coded.search(name)]
    for target, method in (("Qwen/Qwen3.6-27B", "mtp"), ("llama-3.1-8b", "eagle3"),
                           ("deepseek-v3", "mtp"), ("gpt-oss-120b", "eagle3")):
        found = resolve(AcceptanceQuery(target, method), 3)
        assert found.rests_on and not coded.search("; ".join(found.rests_on))
        assert not coded.search(found.acceptance.source)
    for path in [*OUTPUTS, *(ROOT / "docs").rglob("*.md")]:
        assert not coded.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.stem)
def test_outputs_count_and_measure_as_people_write(path: Path) -> None:
    """'1 replica', not '1 replicas'; 4.64 ms, not 0.00464 s; no exponents."""
    text = " ".join(path.read_text(encoding="utf-8").split())
    nouns = "replica|request|client|user|GPU|run|token|row|step|point|block|preemption|layer"
    assert not re.findall(rf"(?<![\d.,])\b1 (?:{nouns})s\b", text)
    assert not re.findall(r"\b0\.0\d* s\b", text)
    assert not re.findall(r"\b\d+(?:\.\d+)?e[-+]?\d+\b", text)


def test_outputs_write_percents_one_way() -> None:
    """36.6%, never 36.6 %, in every text of the package that is not a docstring."""
    found = []
    for path in modules():
        if " %" not in path.read_text(encoding="utf-8"):
            continue
        nodes = [*ast.walk(tree_of(path))]
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [getattr(part, "value", "") for part in parts if id(part) not in docstrings]
            text = "".join(text if isinstance(text, str) else "0" for text in texts)
            if re.search(r"\d %(?![\w({.])", text) and path.name != "structs.py":
                found.append((path.name, node.lineno, text[:80]))
    assert not found


def test_the_glossary_has_the_words_of_the_outputs() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for word in ("acceptance length", "tensor parallelism", "memory-bound", "compute-bound",
                 "request slots", "bonus token", "TTFT, TPOT", "step cost ratio, r", "SLO"):
        assert f"\n{word}" in text, word


def test_a_share_is_written_in_one_way() -> None:
    """90%, in pages as in outputs; what scripts write into the README is theirs."""
    pages = [path for path in TEXTS if path.suffix == ".md"]
    texts = {path: path.read_text(encoding="utf-8").partition("<!-- accuracy:begin -->")[0]
             for path in [*pages, *OUTPUTS, ROOT / "catalog" / "mindrouter.toml"]}
    found = [f"{path.name}: {hit}" for path, text in texts.items()
             for hit in re.findall(r".{0,20}\d %.{0,5}", text)]
    assert len(texts) > 50 and not found

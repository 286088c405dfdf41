"""tests/literal.py reads the pages as a reader does, and sees what differs."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
literal: dict[str, Any] = runpy.run_path(str(ROOT / "tests" / "literal.py"))
PAGE = """
```
pip install '.[report]'   # with charts
specsim predict \\
  --k 2
```
<!-- output:begin -->
```
clients  2.20x
```
<!-- output:end -->
On a server (needs a server of your own):
```
vllm serve ...
```
<!-- run: exit=2 -->
```console
$ specsim predict nothing
specsim: ...
```
<!-- file: a/b.toml -->
```toml
x = 1
```
```python
print(1)
```
```json
{}
```
"""


def test_blocks_of_a_page() -> None:
    found = [(b.kind, b.lines, b.code, b.file) for b in literal["blocks"](PAGE)]
    assert found == [
        ("install", ("pip install '.[report]'   # with charts",), 0, ""),
        ("shell", ("specsim predict   --k 2",), 0, ""),
        ("output", ("clients  2.20x",), 0, ""),
        ("left out", ("vllm serve ...",), 0, ""),
        ("shell", ("specsim predict nothing",), 2, ""),
        ("file", ("x = 1\n",), 0, "a/b.toml"),
        ("python", ("print(1)\n",), 0, ""),
    ]


@pytest.mark.parametrize(("page", "printed", "same"), [
    ("a 1 b\nc", "a 22 z\nc", True),
    ("a\n...\nd 7", "a\nb\nc\nd 8 e", True),
    ("...\nd", "a\nb\nd", True),
    ("a\n...", "a\nb", True),
    ("a\nc", "a\nb\nc", False),  # a line is missing on the page
    ("a\nb", "a\nb\nc", False),  # so is the last
    ("a\nb\nc", "a\nb", False),  # the page shows more
    ("speedup 1.2x", "plain 1.2x", False),
    ("x  --  ---", "x ---- --", True),
])
def test_shape(page: str, printed: str, same: bool) -> None:
    shape, differs = literal["shape"], literal["same_shape"]
    assert (differs(shape(page), shape(printed)) == "") is same


@pytest.mark.parametrize(("line", "typed"), [
    ("pip install .", "pip install /d/s-1.whl"),
    ("pip install '.[report]'", "pip install '/d/s-1.whl[report]'"),
    ('pip install ".[decoder,fast]"', "pip install '/d/s-1.whl[decoder,fast]'"),
])
def test_an_install_line_installs_the_wheel_of_the_checkout(line: str, typed: str) -> None:
    assert literal["of_wheel"](line, "/d/s-1.whl") == typed


@pytest.mark.parametrize("line", ["pip install -e .", "pip install '.[a]\" numpy", "pip install x"])
def test_an_install_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(SystemExit, match=r"is not of the form"):
        literal["of_wheel"](line, "/d/s-1.whl")


def test_an_environment_is_made_from_the_largest_that_holds_nothing_else() -> None:
    core, explore, report = "pip install .", "pip install '.[explore]'", "pip install '.[report]'"
    both, decoder = "pip install '.[parquet,report]'", "pip install '.[decoder,fast]'"
    assert literal["extras_of"](core) == frozenset()
    assert literal["extras_of"](explore) == {"explore", "report"}
    assert literal["extras_of"](decoder) == {"decoder", "decoder-cuda", "fast"}
    known = {core, explore, report, both, decoder}
    made = {line: literal["smaller"](line, known) for line in known}
    assert made == {core: core, explore: report, report: core, both: report, decoder: core}
    assert literal["smaller"](explore, {explore, decoder}) == core


def test_what_the_pages_leave_out_is_little_and_needs_what_ci_lacks() -> None:
    pages = [ROOT / name for name in literal["PAGES"]]
    pages += sorted((ROOT / literal["HOWTO"]).glob("*.md"))
    left = [(path.name, block.lines[0].split()[:2]) for path in pages
            for block in literal["blocks"](path.read_text(encoding="utf-8"))
            if block.kind == "left out"]
    assert left == [
        ("plan-runs.md", ["PROMPTS=my-prompts.jsonl", "bash"]),
        ("quick.md", ["specsim", "quick"]),
        ("quick.md", ["$", "specsim"]),
        ("validate.md", ["specsim", "validate"]),
        ("watch.md", ["specsim", "watch"]),
        ("which-k.md", ["vllm", "serve"]),
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_no_page_runs_what_its_reader_has_no_server_for(path: Path) -> None:
    """`console` blocks are run when the pages are built; one that needs a server says `text`."""
    text = path.read_text(encoding="utf-8")
    for match in literal["FENCE"].finditer(text):
        needs = literal["NEEDS"].search(text[: match.start()])
        assert match["info"].strip() != "console" or not needs


EXTRAS = {  # what a command or a snippet shows, and the extra that it needs
    r"--plot \S+\.(svg|png|pdf)": "plots", r"--out \S+\.parquet|read_parquet\(": "parquet",
    r"\.to_frame\(|import pandas|--html": "report",
}


@pytest.mark.parametrize("path", sorted((ROOT / literal["HOWTO"]).glob("*.md")),
                         ids=lambda p: p.name)
def test_a_page_installs_what_it_uses_before_it_uses_it(path: Path) -> None:
    """literal.py finds the same in a quarter of an hour; a snippet imports what it names."""
    install = literal["CORE"]
    for block in literal["blocks"](path.read_text(encoding="utf-8")):
        text = "\n".join(block.lines)
        if block.kind == "install":
            install = text
        elif block.kind in ("shell", "python"):
            needs = {extra for pattern, extra in EXTRAS.items() if re.search(pattern, text)}
            assert all(extra in install for extra in needs), (install, text)
            assert block.kind == "shell" or "specsim." not in text or "import specsim" in text, text

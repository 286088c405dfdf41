"""The documentation: what it shows runs, what it links to exists, Sphinx builds it cleanly."""

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_ext" not in path.parts)
# Commands of the tutorial and of the how-to pages are run by tests/literal.py.
RUN = [path for path in PAGES if path.parent.name != "howto" and path.name != "tutorial.md"
       and "```console" in path.read_text(encoding="utf-8")]
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated", DOCS / "_ext" / "generated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generated: Any = load()


@cache
def expanded(name: str, until: str = "\0") -> str:
    """The page with its commands' output; below a heading `until` as it stands."""
    first, mark, rest = (DOCS / name).read_text(encoding="utf-8").partition(until)
    return str(generated.expand(first, name)) + mark + rest


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"],
                         ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"https?://|mailto:|#", target):
            continue
        place = (path.parent / target.partition("#")[0]).resolve()
        assert place.exists(), f"{path.name} links to {target}"


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for path in PAGES:
        name = str(path.relative_to(DOCS).with_suffix(""))
        assert name == "index" or f"\n{name}\n" in index, f"{name} is in no toctree"


@pytest.mark.slow
def test_extending_does_what_it_shows() -> None:
    text = expanded("extending.md")
    blocks = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in blocks] == [
        "my-gpu.toml", "my_family.py", "my-model/config.json", "ask.py", "retention.py",
        "retention_ops.py", "retnet.py", "retnet-7b/config.json", "ask_retnet.py",
        "my-head/config.json",
        "twin.py", "my-fork.toml", "ask_twin.py",
        "my-engine.toml", "vllm-0.40.toml",
        "my_predict.py",
    ]
    for name, body in blocks:
        assert len(body.splitlines()) < 30, f"{name} is longer than what the page says"
    outputs = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    assert len(outputs) == 8
    assert all("speculation" in out or "memory per GPU" in out for out in outputs)
    assert "assumed (measured on h200-sxm)" in outputs[0]
    assert "state 67.1 MB per request" in outputs[2]  # of the mixer that the page adds
    assert "$ python ask_twin.py" in outputs[4] and "best" in outputs[4]
    assert "--engine vllm-0.40.toml" in outputs[6]


def test_a_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    page = (
        "<!-- file: a/b.txt -->\n```\nhello\nthere\n```\n"
        "<!-- run: head=1 -->\n```console\n$ cat a/b.txt\n$ echo one \\\n  two\n```\n"
        "<!-- run: exit=2 tail=1 -->\n```console\n$ specsim predict qwen3.6-27b --tp 0\n```\n"
    )
    text = generated.expand(page, "page")
    assert "$ cat a/b.txt\nhello\n...\n" in text and "$ echo one \\\n  two\none two\n" in text
    assert "$ specsim predict qwen3.6-27b --tp 0\nspecsim: " in text
    with pytest.raises(generated.PageError, match="ended with 3, not 0"):
        generated.expand("```console\n$ exit 3\n```\n", "page")
    with pytest.raises(generated.PageError, match="nothing is called"):
        generated.expand("<!-- insert: poems -->\n", "page")


def test_reference_has_every_command_and_option() -> None:
    from specsim.options.declare import declared
    from specsim.options.registry import function_models

    texts = generated.help_texts()
    assert {"predict", "tune", "config", "validate live", "report"} <= set(texts)
    reference = generated.command_reference()
    for name, text in texts.items():
        assert text.startswith("Usage: ") and f"## specsim {name}\n" in reference, name
    assert "--max-num-batched-tokens" in texts["predict"]
    for name, model in function_models().items():
        table = generated.option_table(name)
        for option in declared(model):
            assert option == "model" or f"| `{option}` |" in table


def test_every_command_answers_a_question() -> None:
    from specsim.options.registry import command_names

    page = (DOCS / "howto" / "which-command.md").read_text(encoding="utf-8")
    named = re.findall(r"`specsim ((?:validate )?[a-z][a-z-]+)", page)
    assert sorted(set(named)) == sorted(command_names())


def test_tasks_count_their_refusals() -> None:
    page = (DOCS / "tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `([a-z]+)` \| (\d) \| (\d) \|$", page, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\*\*\d+\. ", page, re.MULTILINE)) == 20
    # A file is written first; a group of commands has a help of its own, and its server is started.
    more = {"fleet": 1, "compare": 1, "sweep": 1, "validate": 2}
    for command, steps, refused in rows:
        file = command == "predict" and int(steps) == 4  # of a benchmark
        known = 3 + more.get(command, 0) + file + int(refused)
        assert int(steps) == known and f"$ specsim {command} " in page
    said = page.count("exit=2") + page.count("is refused, as models")
    assert sum(int(refused) for *_, refused in rows) == said


def test_accuracy_page_has_the_figures_of_validation() -> None:
    text = expanded("accuracy.md")
    report = (ROOT / "validation" / "reports" / "report.md").read_text(encoding="utf-8")
    row = next(line for line in report.splitlines() if line.startswith("| step-cost ratio"))
    assert row in text
    # The first table is of sources that no fit has seen; in sample comes after it, under that name.
    head, seen, rest = text.partition("\n## In sample\n")
    first, second = (
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()
         if line.startswith("|")] for part in (head, rest.partition("\n## ")[0])
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    median, worst, sources, _, covered = first[2][1:]
    assert seen and f"{median}; {worst}" == cells[1] and sources == cells[2]
    assert "; ".join(second[2][1:]) == cells[4]
    inside = re.search(r"^\| step_cost_ratio \| all \| (\S+) \| (\d+) \|", report, re.MULTILINE)
    assert inside is not None and covered.startswith(f"{inside[1]} of {inside[2]}; ")
    assert re.search(r"\| \d+ of \d+ sweeps \|", text) and "measured 180, simulated" in text
    assert "](" not in text.partition("validation/reports/report.md")[2]


@pytest.mark.slow
@pytest.mark.parametrize("path", RUN, ids=lambda p: str(p.relative_to(DOCS)))
def test_commands_on_the_page_run(path: Path) -> None:
    text = expanded(str(path.relative_to(DOCS)))
    assert "Traceback" not in text


def decided() -> str:
    """The tutorial up to where it decides; the commands below that are run by tests/literal.py."""
    return expanded("tutorial.md", "\n## 4. ")


@pytest.mark.slow
def test_the_tutorial_decides_what_it_printed() -> None:
    text, _, decision = decided().partition("## The decision")
    said = re.search(r"k = 3 .*64 clients: about (\S+)x for one client, about (\S+)x at", decision)
    assert said is not None
    asked, lower, tuned = re.findall(r"```console\n(.*?)```", text, re.DOTALL)[:3]

    def speedup(clients: int, shown: str) -> float:
        return float(re.findall(rf"^{clients} +(\S+)x ", shown, re.MULTILINE)[0])

    for clients, figure in ((1, said[1]), (64, said[2])):
        assert speedup(clients, asked) == pytest.approx(float(figure), abs=0.06)
    assert asked.count("k = 3") and min(speedup(c, lower) for c in (1, 8, 64)) > 1
    one, at_16, at_64 = re.findall(r"^mtp k=3 +(\S+) +(\S+) +(\S+)$", tuned, re.MULTILINE)[0]
    assert at_16.endswith("x<") and at_64.endswith("x<")
    best_at_1 = re.findall(r"^mtp k=\d\*? +(\S+)x<", tuned, re.MULTILINE)[0]
    assert float(one.rstrip("x<")) > 0.9 * float(best_at_1)


@pytest.mark.slow
def test_sphinx_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    pages, built = tmp_path / "pages", tmp_path / "built"
    for path in PAGES:
        name = str(path.relative_to(DOCS))
        text = path.read_text(encoding="utf-8")
        if name == "tutorial.md":
            shown = decided()
        else:
            shown = expanded(name) if path in RUN else generated.expand(text, name, run=False)
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(shown, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(built)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
        env={**os.environ, "SPECSIM_EXPANDED": str(pages)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for page in ("index.html", "tutorial.html", "reference/commands.html", "accuracy.html"):
        assert (built / page).stat().st_size > 5000
    shown = (built / "tutorial.html").read_text(encoding="utf-8")
    assert "ON: mtp" in shown


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_no_meaning_is_left_empty(path: Path) -> None:
    """In tables every column but the first has a title, and every row what it is for."""
    tables = re.findall(r"(?:^\|.*\|\n)+", path.read_text(encoding="utf-8"), re.MULTILINE)
    for table in tables:
        head, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
                          for line in table.splitlines()]
        assert all(head[1:]), head
        said = [i for i, name in enumerate(head) if name in ("meaning", "type", "way out")]
        assert all(row[i] for row in rows for i in said), [r for r in rows if not all(r)]

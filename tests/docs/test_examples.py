"""The scripts in examples/ do what their first lines say."""

import ast
import contextlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specsim.api.results import Result

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "formats" / "data"


def run(script: str, folder: Path, *words: str, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *words], cwd=folder, text=True,
        capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPECSIM_CONFIG": ""},
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout + (done.stderr if fails else "")


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a script prints, run in this process."""
    def of(script: str, *words: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *words])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
        return capsys.readouterr().out

    return of


def test_should_i_turn_it_on(printed: Callable[..., str]) -> None:
    shown = printed("should_i_turn_it_on.py", "qwen3.6-27b", "--weights", "fp8")
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["1", "4", "16", "64"]
    assert all(float(line.split()[1]) > 1 for line in lines[1:5])
    assert lines[-1].startswith("Leave it on")
    busy = printed("should_i_turn_it_on.py", "qwen3.6-27b", "--busiest", "300")
    assert busy.splitlines()[-1].startswith("It depends: above")


def test_compare_gpus(printed: Callable[..., str]) -> None:
    pytest.importorskip("pandas")
    shown = printed("compare_gpus.py")
    assert all(gpu in shown for gpu in ("b200", "h100-sxm", "h200-sxm", "l40s"))


@pytest.mark.slow
def test_from_benchmark_to_flags(tmp_path: Path) -> None:
    for name, source in (("plain", "vllm_base_codeedit_c1"), ("spec", "vllm_ngram3_codeedit_c1")):
        shutil.copy(DATA / f"{source}.json", tmp_path / f"{name}.json")
    words = ("plain.json", "spec.json", "smollm2-135m", "--gpu", "cpu-generic")
    shown = run("from_benchmark_to_flags.py", tmp_path, *words)
    assert "plain.json: 50.0 ms per token" in shown and "kernel_scale: 1 -> " in shown
    assert '--speculative-config \'{"method": "ngram"' in shown
    assert (tmp_path / "my-engine.toml").is_file()
    assert "holds no acceptance" in run(
        "from_benchmark_to_flags.py", tmp_path, "spec.json", "plain.json", *words[2:], fails=True
    )


def test_the_benchmark_results_beside_them_are_those_of_the_tests() -> None:
    """The pages name examples/; where the files are from stands in PROVENANCE.md of the tests."""
    for name, source in (("plain", "vllm_base_codeedit_c1"), ("spec", "vllm_ngram3_codeedit_c1")):
        shipped = ROOT / "examples" / f"{name}.json"
        assert shipped.read_bytes() == (DATA / f"{source}.json").read_bytes()


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[object]]:
    """The cells of a notebook in one namespace: what is printed, and the value that ends each cell,
    shown as a notebook shows it."""
    document = json.loads((ROOT / "examples" / name).read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    printed, values = io.StringIO(), []
    for cell in document["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None, "clear the outputs"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), names)
                values += [] if value is None else [value]
    return printed.getvalue(), values


def tables(values: list[object]) -> list[str]:
    """The results among them as HTML; units in it, no raw seconds, no exponents."""
    found = [value._repr_html_() for value in values if isinstance(value, Result)]
    for page in found:
        assert "<table" in page and "nan" not in page and not re.search(r">\d\.\d+e-\d+<", page)
    return found


def test_notebook_which_draft_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    printed, values = executed("which_draft_length.ipynb", tmp_path, monkeypatch)
    best = re.search(r"mtp, k = (\d): (\d\.\d\d) times", printed)
    assert best is not None and float(best[2]) > 1
    assert "vllm serve" in printed and "requests of 1024 + 460 tokens fit" in printed
    table: Any = values[-1]
    assert list(table.columns) == [1, 2, 3] and list(table.index) == [1, 4, 16, 64, 128]
    assert len(tables(values)) == 2


def test_notebook_did_speculation_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("plain", "vllm_base_codeedit_c1"), ("spec", "vllm_ngram3_codeedit_c1")):
        shutil.copy(DATA / f"{source}.json", tmp_path / f"{name}.json")
    printed, values = executed("did_speculation_help.ipynb", tmp_path, monkeypatch)
    before, after = (float(text) for text in re.findall(r"(\d+\.\d) ms", printed))
    ratio = re.search(r"speculation: (\d\.\d\d) times", printed)
    assert ratio is not None and float(ratio[1]) == pytest.approx(before / after, abs=0.01)
    verdict: Any = values[-2]
    assert verdict["decision"] in ("on", "off") and len(tables(values)) == 3


@pytest.mark.slow
def test_notebook_how_many_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    printed, values = executed("how_many_gpus.ipynb", tmp_path, monkeypatch)
    assert re.search(r"one GPU carries \d+\.\d requests/s; 50 need \d+ GPUs", printed)
    assert re.search(r"ms, \d\d% of it reading memory", printed)
    assert (tmp_path / "gpus.html").is_file() and len(tables(values)) == 2
    assert {"l40s", "h200-sxm"} <= set(values[0])  # type: ignore[call-overload]


def test_there_are_no_others() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        "should_i_turn_it_on.py", "compare_gpus.py", "from_benchmark_to_flags.py",
    }
    assert {path.name for path in (ROOT / "examples").glob("*.ipynb")} == {
        "which_draft_length.ipynb", "did_speculation_help.ipynb", "how_many_gpus.ipynb",
    }

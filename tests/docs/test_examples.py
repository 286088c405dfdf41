"""The scripts in examples/ do what their first lines say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_should_i_turn_it_on(tmp_path: Path) -> None:
    shown = run("should_i_turn_it_on.py", tmp_path, "qwen3.6-27b", "--weights", "fp8")
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["1", "4", "16", "64"]
    assert all(float(line.split()[1]) > 1 for line in lines[1:5])
    assert lines[-1].startswith("Leave it on")
    busy = run("should_i_turn_it_on.py", tmp_path, "qwen3.6-27b", "--busiest", "300")
    assert busy.splitlines()[-1].startswith("It depends: above")


def test_compare_gpus(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    shown = run("compare_gpus.py", tmp_path)
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


def test_there_are_no_others() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        "should_i_turn_it_on.py", "compare_gpus.py", "from_benchmark_to_flags.py",
    }

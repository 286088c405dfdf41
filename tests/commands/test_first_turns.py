"""Where newcomers took a wrong turn (docs/tasks.md): the help or the message leads on."""

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import specsim
from specsim.commands import app, main

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"


def file_of_the_help(command: str, folder: Path) -> Path:
    shown = CliRunner().invoke(app, [command, "--help"]).stdout
    lines = shown.partition("A file")[2].partition("\n\n")[0].splitlines()[1:]
    file = folder / f"{command}.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.slow
def test_the_file_in_the_help_of_fleet_is_a_fleet(tmp_path: Path) -> None:
    found = specsim.fleet(file=file_of_the_help("fleet", tmp_path), quick=True)
    assert found.fits and [endpoint.name for endpoint in found.endpoints] == ["chat"]


def test_the_files_in_the_help_of_compare_and_sweep_run(tmp_path: Path) -> None:
    found = specsim.compare(file=file_of_the_help("compare", tmp_path), concurrency=16)
    assert len(found.loads[0].ranked) == 3
    journal = str(tmp_path / "journal.jsonl")
    swept = specsim.sweep(file=file_of_the_help("sweep", tmp_path), journal=journal)
    assert swept.finished == 9 and not any(row.get("error") for row in swept.rows)


def test_a_length_in_thousands_is_told_as_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["specsim", "predict", "llama-3.1-8b", "--input-len", "8k"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert "--input-len is '8k'; it must be a whole number: --input-len 8192;" in (
        capsys.readouterr().err)


def test_two_results_lead_to_plain(tmp_path: Path) -> None:
    plain, spec = tmp_path / "plain.json", tmp_path / "spec.json"
    shutil.copy(DATA / "vllm_base_codeedit_c1.json", plain)
    shutil.copy(DATA / "vllm_ngram3_codeedit_c1.json", spec)
    done = CliRunner().invoke(app, ["diagnose", str(plain), str(spec)])
    words = str(done.exception)
    assert "second result, not a model" in words
    command = words.partition("e.g. specsim ")[2].split()
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0 and told.stdout.startswith("ON")


def test_a_second_word_that_is_a_model_stays_one(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}", encoding="utf-8")
    done = CliRunner().invoke(
        app, ["diagnose", str(DATA / "vllm_ngram3_codeedit_c1.json"), str(config)])
    assert "second result" not in str(done.exception) and "model_type" in str(done.exception)

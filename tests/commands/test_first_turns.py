"""Where newcomers took a wrong turn (docs/tasks.md): the help or the message leads on."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import specsim
from specsim.commands import app

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"


@pytest.mark.slow
def test_the_file_in_the_help_of_fleet_is_a_fleet(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["fleet", "--help"]).stdout
    lines = shown.partition("A file")[2].partition("\n\n")[0].splitlines()[1:]
    file = tmp_path / "fleet.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    found = specsim.fleet(file=file, quick=True)
    assert found.fits and [endpoint.name for endpoint in found.endpoints] == ["chat"]


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

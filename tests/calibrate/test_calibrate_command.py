"""`specsim calibrate RECORDS`: files, JSON, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrate_samples import SHAPES, decoder, header, kernel_shapes, machine, measured, step_shapes
from specsim.commands import app
from specsim.errors import (
    CalibrationError,
    FormatError,
    ProfileError,
    SpecSimError,
    UsageError,
)
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine

SMALL = {"small": SHAPES["small"]}
RUN = header(names=("small",))


def run(*args: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["calibrate", *map(str, args)])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = measured(machine(**{"gemm.bf16/mem_frac": 0.6}),
                    [*kernel_shapes(SMALL, (1, 8, 64)), *step_shapes(SMALL)], RUN, 0.01, 1,
                    decoder(step_s=1e-3))
    path = tmp_path_factory.mktemp("calibrate") / "records.jsonl"
    lines = [RUN.to_dict(), *(r.to_dict() for r in data.records)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"record": "poi')
    return path


@pytest.fixture(scope="module")
def written(records: Path) -> dict[str, Any]:
    """The JSON of a calibration; the files that it names stand beside the records."""
    out = records.with_name("mine.toml")
    done = run(records, "-o", out, "--report", records.with_name("report.json"), "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_and_files(records: Path, written: dict[str, Any]) -> None:
    result, folder = written, records.parent
    out, report = folder / "mine.toml", folder / "report.json"
    assert next(iter(result)) == "kind" and result["kind"] == "calibration"
    assert result["base"] == "cpu-generic" and result["profile"] == "mine"
    assert result["files"] == [str(out), str(folder / "mine-engine.toml"), str(report)]
    assert result["truncated_files"] == [str(records)]
    assert result["held_out_steps"]["median_abs_error"] < 0.05
    assert "ledger" not in result
    ledger = json.loads(report.read_text())["ledger"]
    fitted = {item["point"] for item in ledger["fitted"]} | set(ledger["fitted_host_time"])
    held = {item["point"] for item in ledger["held_out"]}
    assert fitted and held and not fitted & held
    assert all(key.startswith("step ") for key in held)
    assert load_profile(str(out)).kernel("gemm.bf16")["mem_frac"] == pytest.approx(0.6, rel=0.05)
    assert find_engine(str(folder / "mine-engine.toml")).separate_passes


def test_a_calibrated_profile_prices_a_prediction(written: dict[str, Any]) -> None:
    profile, engine, _ = written["files"]
    args = ["predict", "SmolLM2-135M", "--gpu", profile, "--engine", engine, "--method", "none",
            "--json"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    assert not [w for w in json.loads(done.stdout)["warnings"] if "assumed" in w]


@pytest.mark.slow
def test_the_text_has_every_part_of_the_report(records: Path) -> None:
    done = run(records)
    assert done.exit_code == 0
    for words in ("Calibrated on made-up machine", "gemm.bf16: mem_frac", "fitted: attention",
                  "whole steps, not fitted", "shapes left out of the fit",
                  "the last line was cut short"):
        assert words in done.output


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [((), UsageError, "no records are given"),
     (("nowhere.jsonl",), FormatError, "nowhere.jsonl cannot be read"),
     (("RECORDS", "-o", "mine.json"), UsageError, "must end in .toml"),
     (("RECORDS", "--base", "h200-sxm"), CalibrationError, "the base h200-sxm is a GPU"),
     (("RECORDS", "--base", "h201-sxm"), ProfileError, "near matches"),
     (("RECORDS", "--statistic", "mean"), UsageError, "must be median, p10 or min"),
     (("RECORDS", "-o", "/proc/nowhere/mine.toml"), SpecSimError, "/proc/nowhere/mine.toml")],
)
def test_misuse_is_said(records: Path, args: tuple[str, ...], error: type, message: str) -> None:
    done = run(*(records if arg == "RECORDS" else arg for arg in args))
    assert done.exit_code != 0
    assert isinstance(done.exception, error)
    assert message in str(done.exception)


@pytest.mark.parametrize("text", ["", "{}\n", "[1, 2]\n", '{"record": "point"}\n', "\0\xff\n"])
def test_foreign_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.jsonl"
    path.write_text(text)
    done = run(path)
    assert isinstance(done.exception, FormatError)
    assert "\n" not in str(done.exception)


def test_a_model_that_the_header_lacks_is_named(tmp_path: Path) -> None:
    data = measured(machine(), kernel_shapes(SMALL, (1, 8)), RUN, 0.01, 1)
    path = tmp_path / "records.jsonl"
    bare = {**RUN.to_dict(), "models": {}}
    path.write_text("".join(json.dumps(line) + "\n"
                            for line in (bare, *(r.to_dict() for r in data.records))))
    done = run(path)
    assert isinstance(done.exception, FormatError)
    assert "speak of model 'small'" in str(done.exception)

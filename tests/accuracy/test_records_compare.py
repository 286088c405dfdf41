"""`specsim validate records`: what the profile has seen is kept apart, and serving is simulated."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "calibrate"))

from calibrate_samples import SHAPES, decoder, header, kernel_shapes, machine, measured, step_shapes
from specsim.accuracy.records import compare_records, load_of, rate_of
from specsim.accuracy.run_serving import ServingLoad, predict_serving, serving_system
from specsim.calibrate.price import Models
from specsim.calibrate.records import Measurement, Timing
from specsim.calibrate.records_fit import calibrate
from specsim.calibrate.write import report, write_outcome
from specsim.commands import app
from specsim.errors import UsageError
from specsim.hardware.store import load_profile

RUN = header(names=("small",))
SMALL = {"small": SHAPES["small"]}
ENGINE = decoder(step_s=1e-3)
ARRIVALS = tuple(3.0 * i for i in range(6))  # so far apart that all fare alike


def serving_record(profile, seed: int = 0) -> Measurement:  # type: ignore[no-untyped-def]
    """A serving run as the simulation of this profile has it."""
    load = ServingLoad("none", 0, 0.0, 4, 64, 16, ARRIVALS)
    spec = Models().spec(RUN, "small", "bf16")
    found = predict_serving(serving_system(spec, profile, ENGINE, load), load, [seed])
    count = len(load.arrivals)
    ttft, tpot = found["ttft_s_p50"], found["tpot_s_p50"]
    series = {
        "arrival_s": list(load.arrivals), "ttft_s": [ttft] * count, "tpot_s": [tpot] * count,
        "e2el_s": [ttft + 15 * tpot] * count,
    }
    shape = {"model": "small", "method": "none", "k": 0, "max_num_seqs": 4, "prompt_len": 64,
             "output_len": 16, "load": 0.5, "acceptance": 0.0, "dtype": "bf16"}
    timing = Timing(1.0, 0.9, 1.1, 0.9, count)
    return Measurement("H", "serving", shape, timing, 1.9, 30e9, run=RUN, series=series,
                       values={"tokens_per_step": 1.0})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """(folder, profile file, records file): a machine calibrated on its own records."""
    folder = tmp_path_factory.mktemp("records")
    true = machine(**{"gemm.bf16/mem_frac": 0.7, "elementwise/floor_s": 12e-6})
    data = measured(true, [*kernel_shapes(SMALL), *step_shapes(SMALL)], RUN, 0.01, 1, ENGINE)
    records = [*data.records, serving_record(true)]
    path = folder / "records.jsonl"
    with path.open("w") as file:
        file.write(json.dumps(RUN.to_dict()) + "\n")
        for record in records:
            file.write(json.dumps(record.to_dict()) + "\n")
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False)
    write_outcome(outcome, folder / "mine.toml")
    (folder / "report.json").write_text(json.dumps(report(outcome)))
    return folder, folder / "mine.toml", path


def run(*args: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["validate", "records", *map(str, args)])


@pytest.mark.slow
def test_points_that_were_fitted_judge_nothing(made) -> None:  # type: ignore[no-untyped-def]
    folder, profile, records = made
    done = run(records, "--gpu", profile, "--report", folder / "report.json", "--json",
               "--max-error", "0.1")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["kind"] == "validation" and result["what"] == "records"
    assert set(result["fitted_summary"]) == {"gemm_s", "attention_s", "prefill_s", "sample_s",
                                             "step_s"}
    assert {"step_s", "output_tok_s", "ttft_s_p95", "tpot_s_p50"} <= set(result["summary"])
    assert not {"gemm_s", "attention_s"} & set(result["summary"])
    host = json.loads((folder / "report.json").read_text())["ledger"]["fitted_host_time"]
    assert result["fitted_summary"]["step_s"]["count"] == len(host)
    assert result["summary"]["step_s"]["median_abs_error"] < 0.05


def test_an_unfitted_profile_is_judged_on_everything_and_fails_the_limit(made, tmp_path) -> None:  # type: ignore[no-untyped-def]
    _, _, records = made
    out = tmp_path / "comparison.json"
    done = run(records, "--gpu", "cpu-generic", "--engine", "specsim", "--max-error", "0.05",
               "--out", out)
    assert done.exit_code == 1
    assert "median error above 0.05" in done.output
    written = json.loads(out.read_text())
    assert written["fitted_summary"] == {}
    assert written["provenance"]["device"]["name"] == "made-up machine"


@pytest.mark.parametrize(
    ("args", "message"),
    [((), "no profile is given"), (("--gpu", "cpu-generic", "--max-error", "0"), "--max-error"),
     (("--gpu", "cpu-generic", "--statistic", "mode"), "--statistic is 'mode'"),
     (("--gpu", "cpu-generic", "--report", "nowhere.json"), "nowhere.json cannot be read")],
)
def test_misuse_is_said(made, args, message) -> None:  # type: ignore[no-untyped-def]
    done = run(made[2], *args)
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_nothing_that_can_be_predicted_is_said() -> None:
    with pytest.raises(UsageError, match="no record can be predicted"):
        compare_records([], load_profile("cpu-generic"), ENGINE)


@pytest.mark.parametrize(("length", "k", "rate"), [(1.0, 3, 0.0), (4.0, 3, 1.0), (1.75, 2, 0.5)])
def test_acceptance_rate_of_a_mean_length(length: float, k: int, rate: float) -> None:
    assert rate_of(length, k) == pytest.approx(rate, abs=1e-9)


def test_a_serving_record_is_its_load() -> None:
    load = load_of(serving_record(machine()))
    assert load.arrivals == ARRIVALS
    assert (load.prompt_len, load.output_len, load.max_num_seqs) == (64, 16, 4)

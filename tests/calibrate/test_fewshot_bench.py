"""Benchmark files to points: sides, loads, acceptance of lookups; the command end to end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.api.deployment import build_request
from specsim.calibrate.fewshot_bench import (
    drafts_of,
    measured_acceptance,
    point_of,
    side_of,
    timed,
    workload_of,
)
from specsim.commands import app
from specsim.errors import CalibrationError
from specsim.formats.bench import (
    BenchAcceptance,
    BenchLoad,
    BenchRun,
    ServerArgs,
    Stat,
    read_bench,
)
from specsim.latency.engine import find_engine
from specsim.options.groups import DeploymentOptions as Options

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"
BASE1 = DATA / "vllm_base_codeedit_c1.json"
NGRAM1 = DATA / "vllm_ngram3_codeedit_c1.json"
NGRAM4 = DATA / "vllm_ngram3_codeedit_c4.json"
DRAFT1 = DATA / "vllm_draftself_k2_c1.json"
OPEN = DATA / "vllm_ngram3_openloop_crate.json"
SMOL = build_request(Options(model="smollm2-135m", gpu="cpu-generic", method="none")).system


def one(path: Path) -> BenchRun:
    (run,) = read_bench(path)
    return run


def made(**changes: Any) -> BenchRun:
    base = BenchRun(
        "made.json", "made", tpot_s=Stat(0.01), output_tok_s=350.0,
        load=BenchLoad(max_concurrency=4), input_tokens_mean=100.0, output_tokens_mean=50.0,
    )
    return replace(base, **changes)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


def calibrated(*arguments: object) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


# --- sides ----------------------------------------------------------------------------------------


def test_files_tell_their_side() -> None:
    assert side_of(one(BASE1)) == "plain"
    for path in (NGRAM1, NGRAM4, DRAFT1, OPEN):
        assert side_of(one(path)) == "speculative"
    assert side_of(made(server_args=ServerArgs(method="none"))) == "plain"
    assert side_of(made(server_args=ServerArgs(method="EAGLE3"))) == "speculative"
    assert side_of(made(tokens_per_step=1.01)) == "plain"
    assert side_of(made(tokens_per_step=2.4)) == "speculative"


def test_what_a_file_does_not_tell_is_asked_for() -> None:
    with pytest.raises(CalibrationError, match="give it with --plain or --spec"):
        side_of(made())
    assert side_of(made(), "plain") == "plain"
    with pytest.raises(CalibrationError, match="given as plain, but it holds an acceptance"):
        side_of(one(NGRAM1), "plain")


# --- loads ----------------------------------------------------------------------------------------


def test_the_load_is_what_was_in_flight() -> None:
    assert point_of(made(), SMOL).concurrency == 4
    assert point_of(made(concurrency_mean=3.9), SMOL).concurrency == 4
    assert point_of(made(concurrency_mean=2.5), SMOL).concurrency == 2.5
    open_loop = made(load=BenchLoad(request_rate=3.0))
    assert point_of(open_loop, SMOL).concurrency == pytest.approx(3.5)
    assert not timed(made(load=BenchLoad(), output_tok_s=None))
    with pytest.raises(CalibrationError, match="how many requests were in flight"):
        point_of(made(load=BenchLoad(), output_tok_s=None), SMOL)


def test_an_open_loop_file_is_a_point_too() -> None:
    run = one(OPEN)
    point = point_of(run, SMOL)
    assert run.load.kind == "open"
    assert 1 <= point.concurrency < 12
    assert point.measured["tpot_s"] == run.tpot_s.mean  # type: ignore[union-attr]


def test_medians_are_fitted_where_a_file_has_no_means() -> None:
    """Scripts that turn vLLM's milliseconds into seconds often keep medians alone."""
    run = made(tpot_s=Stat(None, 0.02), ttft_s=Stat(None, 0.4))
    assert point_of(run, SMOL).measured == {"tpot_s": 0.02, "ttft_s": 0.4}


def test_lengths_are_needed() -> None:
    assert workload_of(made()).input_len == 100
    with pytest.raises(CalibrationError, match="mean prompt and output length"):
        workload_of(made(output_tokens_mean=None))


# --- acceptance -----------------------------------------------------------------------------------


def test_tokens_per_step_of_a_lookup_are_not_its_acceptance_length() -> None:
    run = one(NGRAM1)
    assert run.acceptance is not None and run.acceptance.acceptance_length is not None
    found = measured_acceptance(run, 3, "ngram")
    assert found is not None and found.draft_probability == run.draft_share
    assert 0.3 < found.draft_probability < 0.95
    assert found.expected_tokens(3) == pytest.approx(run.acceptance.acceptance_length)
    assert found.tokens_per_step(3) == pytest.approx(run.tokens_per_step, rel=0.03)


def test_chunks_stand_in_for_counters() -> None:
    # Length 3 in half of the steps: 2 tokens per step on average.
    run = made(tokens_per_step=2.0, acceptance=BenchAcceptance(acceptance_length=3.0))
    found = measured_acceptance(run, 3, "ngram")
    assert found is not None and found.draft_probability == pytest.approx(0.5)
    assert found.tokens_per_step(3) == pytest.approx(2.0)
    only = measured_acceptance(made(tokens_per_step=2.0), 3, "eagle3")
    assert only is not None and only.tokens_per_step(3) == pytest.approx(2.0)
    assert measured_acceptance(made(), 3, "eagle3") is None


def test_draft_lengths_must_agree() -> None:
    assert drafts_of([one(NGRAM1), one(NGRAM4)]) == 3
    assert drafts_of([made()]) is None
    with pytest.raises(CalibrationError, match="several draft lengths"):
        drafts_of([one(NGRAM1), one(DRAFT1)])


# --- the command ----------------------------------------------------------------------------------


def test_calibrate_from_files_writes_an_engine(tmp_path: Path) -> None:
    out, report = tmp_path / "mine.toml", tmp_path / "report.json"
    found = calibrated(
        "--from", BASE1, "--from", NGRAM1, "--holdout", NGRAM4, "smollm2-135m", "--gpu",
        "cpu-generic", "--method", "ngram", "-o", out, "--report", report,
    )
    assert found["kind"] == "calibration" and found["written"] == str(out)
    rows = found["points"]
    assert {row["split"] for row in rows} == {"fitted", "held-out"}
    fitted = [r for r in rows if r["split"] == "fitted" and r["metric"] == "tpot_s"]
    assert len(fitted) == 2
    assert all(abs(r["error_after"]) < abs(r["error_before"]) for r in fitted)
    assert json.loads(report.read_text(encoding="utf-8")) == found
    engine = find_engine(str(out))
    assert engine.name == "vllm" and "calibration" in engine.sources
    flags = found["acceptance_flags"]
    assert flags.startswith("--method ngram --k 3 --acceptance ") and "--draft-share" in flags
    # The profile and the flags it prints give the time per token that was fitted.
    load = found["loads"][1]
    command = [*found["command"].split()[1:], "--concurrency", "1", "--input-len",
               str(load["input_len"]), "--output-len", str(load["output_len"]), "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    after = next(r for r in fitted if r["side"] == "speculative")["after"]
    assert json.loads(result.stdout)["points"][0]["tpot_s"] == pytest.approx(after, rel=0.02)


def test_a_table_says_what_moved(tmp_path: Path) -> None:
    result = invoke("--from", BASE1, "--from", NGRAM1, "smollm2-135m", "--gpu", "cpu-generic",
                    "--method", "ngram")
    assert result.exit_code == 0, result.output
    for text in ("kernel_scale", "error before", "median error of", "acceptance of these runs",
                 "not written"):
        assert text in result.stdout


def test_acceptance_of_a_metrics_dump_serves_the_points_without_one(tmp_path: Path) -> None:
    bare = json.loads(NGRAM1.read_text(encoding="utf-8"))
    bare = {k: v for k, v in bare.items() if not k.startswith("spec_decode") and k != "itls"}
    file = tmp_path / "bare.json"
    file.write_text(json.dumps(bare), encoding="utf-8")
    found = calibrated("--plain", BASE1, "--spec", file, "--from", DATA / "spec_log.txt",
                       "smollm2-135m", "--gpu", "cpu-generic", "--method", "ngram", "--k", "3")
    assert "--acceptance" in found["acceptance_flags"]


def test_what_a_file_leaves_out_can_be_stated(tmp_path: Path) -> None:
    bare = json.loads(NGRAM1.read_text(encoding="utf-8"))
    bare = {k: v for k, v in bare.items() if not k.startswith("spec_decode") and "itl" not in k}
    file = tmp_path / "bare.json"
    file.write_text(json.dumps(bare), encoding="utf-8")
    smol = ("smollm2-135m", "--gpu", "cpu-generic", "--method", "ngram", "--k", "3")
    found = calibrated("--plain", f"{BASE1}@cached_share=0.5", "--from",
                       f"{file}@acceptance-length=3.2,draft_share=0.55", *smol)
    assert found["acceptance_flags"].endswith("--draft-share 0.55")
    assert [load["cached_share"] for load in found["loads"]] == [0.5, 0.0]
    assert not any("acceptance" in row["name"] for row in found["parameters"])
    # Of two speculative files one states it: the other's is near it, and not known.
    found = calibrated("--plain", BASE1, "--from", NGRAM1, "--spec", file, *smol)
    assert any(row["name"] == "acceptance:unknown" for row in found["parameters"])
    assert any("FILE@acceptance_length" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("words", "rule"),
    [("acceptance=2", "cannot be stated of"), ("cached_share=1.5", "from 0 to 0.999"),
     ("acceptance_length=x", "from 1 to 1000"), ("draft_share=nan", "from 0 to 1")],
)
def test_statements_are_checked(words: str, rule: str) -> None:
    assert rule in refused("--from", f"{BASE1}@{words}", "smollm2-135m", "--gpu", "cpu-generic")


def refused(*arguments: object) -> str:
    from specsim.errors import SpecSimError

    result = invoke(*arguments)
    assert isinstance(result.exception, SpecSimError), result.output
    return str(result.exception)


def test_mistakes_are_named(tmp_path: Path) -> None:
    smol = ("smollm2-135m", "--gpu", "cpu-generic")
    assert "a .toml file" in refused("--from", BASE1, *smol, "-o", "x.json")
    assert "only acceptance" in refused("--from", DATA / "spec_log.txt", *smol, "--method", "ngram",
                                        "--k", "3")
    assert "several draft lengths" in refused("--from", NGRAM1, "--from", DRAFT1, *smol,
                                              "--method", "ngram")
    assert "none of the fitted files was" in refused("--from", BASE1, "--holdout", NGRAM1, *smol)
    assert "--method is 'none'" in refused("--from", NGRAM1, *smol, "--method", "none")
    file = tmp_path / "x.json"
    file.write_text("{}", encoding="utf-8")
    assert "no result that specsim reads" in refused("--from", file, *smol)

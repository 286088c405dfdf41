"""The plan and the work folder of `specsim validate run`, and the run itself in short."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsim.accuracy.run_plan import (
    WorkFolder,
    full_plan,
    load_for,
    load_key,
    run_comparison,
    serving_rows,
    short_plan,
    situation,
    verdicts,
)
from specsim.commands import app
from specsim.errors import UsageError

FIGURES = {"output_tok_s": 100.0, "ttft_s_p50": 0.1, "ttft_s_p95": 0.2, "tpot_s_p50": 0.01,
           "tpot_s_p95": 0.02, "tokens_per_step": 2.0}


def test_poisson_arrivals_come_at_their_share_of_the_capacity() -> None:
    plan = full_plan(1200, ("a", "b"))
    load = load_for(plan, ("eagle", 3), share=0.6, capacity_req_s=50.0, repeat=1)
    assert len(load.arrivals) == round(0.6 * 50 * plan.seconds)
    assert load.arrivals[0] == 0.0 and list(load.arrivals) == sorted(load.arrivals)
    assert load.arrivals[-1] == pytest.approx(plan.seconds, rel=0.2)
    again = load_for(plan, ("eagle", 3), share=0.6, capacity_req_s=50.0, repeat=1)
    other = load_for(plan, ("eagle", 3), share=0.6, capacity_req_s=50.0, repeat=2)
    assert again == load and other != load


def test_a_budget_too_short_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--budget of 60 s leaves .* at least 4m"):
        full_plan(60, ("a",))
    assert full_plan(240, ("a",)).seconds >= 3


def test_a_work_folder_keeps_what_is_done(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path / "work")
    work.open(short_plan())
    key = load_key(("eagle", 3), "Poisson at 60%", 1)
    assert key == "eagle k=3, Poisson at 60%, run 2"
    assert situation(key) == "eagle k=3, Poisson at 60%"
    work.add({"what": "predicted", "load": key, "figures": FIGURES})
    with work.serving.open("ab") as file:  # a killed run
        file.write(b'\n{"what": "measured", "load": "eagle k=3')
    predicted, measured = work.done()
    assert set(predicted) == {key} and not measured
    work.add({"what": "measured", "load": key, "figures": FIGURES})
    assert set(work.done()[1]) == {key}
    work.open(short_plan())
    with pytest.raises(UsageError, match="another plan"):
        work.open(short_plan(seed=1))


def test_repeats_are_put_together_with_their_spread() -> None:
    keys = [load_key(("none", 0), "4 clients", i) for i in range(3)]
    measured = {key: {"figures": {**FIGURES, "output_tok_s": v}}
                for key, v in zip(keys, (90.0, 100.0, 110.0), strict=True)}
    predicted = {key: {"figures": {**FIGURES, "output_tok_s": 105.0}} for key in keys}
    rows = {row.metric: row for row in serving_rows(predicted, measured)}
    assert rows["output_tok_s"].measured == pytest.approx(100)
    assert rows["output_tok_s"].error == pytest.approx(0.05)
    assert rows["output_tok_s"].spread == pytest.approx(0.1)
    found = run_comparison([], list(rows.values()), {})
    bars = verdicts(found)
    assert bars["output_tok_s"]["inside"] and bars["tpot_s_p50"]["inside"]
    assert "step_s" not in bars
    wrong = {key: {"figures": {**FIGURES, "output_tok_s": 130.0}} for key in keys}
    found = run_comparison([], serving_rows(wrong, measured), {})
    assert not verdicts(found)["output_tok_s"]["inside"]
    assert verdicts(found, scale=10)["output_tok_s"]["inside"]


@pytest.mark.parametrize(
    ("args", "message"),
    [(("--short", "--model", "smollm2-135m"), "--short brings its own tiny models"),
     (("--repeats", "0"), "--repeats is 0"), (("--grid", "big"), "--grid is 'big'"),
     (("--budget", "soon"), "--budget is 'soon'")],
)
def test_misuse_is_said(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = CliRunner().invoke(app, ["validate", "run", *args, "--work", str(tmp_path / "w")])
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_a_short_run_predicts_before_it_serves(tmp_path: Path) -> None:
    """Wide limits: a shared machine of two cores, tiny models, seconds of serving."""
    pytest.importorskip("torch")
    out, work = tmp_path / "out.json", tmp_path / "work"
    args = ["validate", "run", "--short", "--work", str(work), "--out", str(out), "--json",
            "--max-error", "3"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    # A busy machine spends its seconds on kernels and reaches no whole step.
    assert set(result["bars"]) - {"step_s"} == {"output_tok_s", "tpot_s_p50", "ttft_s_p95"}
    if "step_s" in result["bars"]:
        assert result["summary"]["step_s"]["median_abs_error"] < 1.0
    assert result["summary"]["output_tok_s"]["median_abs_error"] < 1.0
    assert 0 < result["summary"]["tokens_per_step"]["median_abs_error"] < 0.25
    assert json.loads(out.read_text())["rows"]
    provenance = result["provenance"]
    for key, before in provenance["predicted_before_serving"].items():
        assert before <= provenance["served"][key]["date"]
    lines = (work / "serving.jsonl").read_text().count("\n")
    again = CliRunner().invoke(app, args)  # everything is done: nothing is served again
    assert again.exit_code == 0
    assert (work / "serving.jsonl").read_text().count("\n") == lines
    assert json.loads(again.stdout)["summary"] == result["summary"]


def test_records_of_another_machine_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    header = {"record": "header", "format": 1, "date": "2026-01-01", "git_sha": "", "seed": 0,
              "threads": 1, "grid": "small", "device": {"kind": "cpu", "name": "elsewhere"},
              "software": {}, "models": {}}
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(header) + "\n")
    args = ["validate", "run", "--records", str(path), "--work", str(tmp_path / "w"),
            "--threads", "1"]
    done = CliRunner().invoke(app, args)
    assert isinstance(done.exception, UsageError)
    assert "was measured on elsewhere" in str(done.exception)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from specsim.commands import validate_run

    def interrupted(*_: object) -> bool:
        return True

    monkeypatch.setattr(validate_run, "_measure", interrupted)
    done = CliRunner().invoke(app, ["validate", "run", "--short", "--work", str(tmp_path / "w")])
    assert done.exit_code == 130
    assert "run the same command again" in done.output
    assert (tmp_path / "w" / "plan.json").exists()

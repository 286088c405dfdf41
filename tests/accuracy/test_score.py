"""Scores: percentiles, errors, signs, coverage, and files that are not what they should be."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from accuracy_samples import PUBLISHED, ROW, SILICON
from specsim.accuracy.lookups import source_of
from specsim.accuracy.rows import published_case
from specsim.accuracy.score import read_rows, score_case, score_rows
from specsim.accuracy.scored import KINDS, Scored, ScoreReport, by_source, coverage, signs
from specsim.errors import FormatError
from specsim.latency.shape import StepShape
from specsim.summary import quantile

NAMES = ",".join(ROW)


def test_percentiles_between_order_statistics() -> None:
    # numpy's default: position 0.9 x (n - 1)
    assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.9) == pytest.approx(4.6)
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([1.0, 3.0], 0.5) == 2.0


def test_errors_of_a_row_are_predicted_over_measured() -> None:
    case = published_case(ROW)
    scores = score_case(case)
    by = {(s.quantity, s.side): s for s in scores}
    assert set(by) == {("tpot", "plain"), ("tpot", "speculative"), ("ttft", "speculative"),
                       ("speedup", "speculative"), ("step_cost_ratio", "speculative")}
    plain = by["tpot", "plain"]
    assert plain.measured == pytest.approx(7e-3)
    assert plain.error == pytest.approx(plain.predicted / 7e-3 - 1)
    # r = AL / speedup, so that acceptance cannot hide an error of the roofline
    assert by["step_cost_ratio", "speculative"].measured == pytest.approx(2.5 / 1.75)
    gain = by["speedup", "speculative"]
    assert gain.predicted == pytest.approx(
        plain.predicted / by["tpot", "speculative"].predicted
    )
    assert gain.sign_right is (gain.predicted > 1)
    assert [s.sign_right for s in scores if s.quantity != "speedup"] == [None] * 4


def test_gains_near_one_are_not_judged() -> None:
    near = published_case({**ROW, "speedup": "1.02", "baseline_tpot_ms": "", "spec_tpot_ms": ""})
    assert {s.sign_right for s in score_case(near)} == {None}
    lost = published_case({**ROW, "speedup": "0.6", "baseline_tpot_ms": "", "spec_tpot_ms": ""})
    gain = next(s for s in score_case(lost) if s.quantity == "speedup")
    assert gain.sign_right is (gain.predicted < 1)


def test_without_an_acceptance_length_only_the_plain_side_is_judged() -> None:
    case = published_case({**ROW, "mean_accepted_length": ""})
    assert {s.side for s in score_case(case)} == {"plain"}


def test_a_report_has_every_promised_key() -> None:
    report = score_rows([ROW, {**ROW, "set_id": "Y", "engine": "llama.cpp"}, SILICON])
    shown = report.to_dict()
    assert shown["rows"] == 3
    assert shown["skipped"] == {"engine not modelled: llama.cpp": 1}
    assert set(shown["sets"]) == {"X", "Qwen3-32B|vllm"}
    for scores in (shown["overall"], *shown["sets"].values()):
        assert set(scores) >= {"n", "step_cost_ratio", "speedup", "tpot", "ttft", "sign_right",
                               "interval_coverage"}
        for quantity in ("step_cost_ratio", "speedup", "tpot", "ttft"):
            assert set(scores[quantity]) == {"median_abs_error", "p90_abs_error", "bias", "n"}
    assert shown["overall"]["n"] == 2
    assert shown["overall"]["tpot"]["n"] == 3
    assert shown["sets"]["Qwen3-32B|vllm"]["speedup"] == {
        "median_abs_error": None, "p90_abs_error": None, "bias": None, "n": 0,
    }


def scored(
    set_id: str, predicted: float, quantity: str = "tpot", measured: float = 1.0
) -> Scored:
    side = "plain" if quantity == "tpot" else "speculative"
    return Scored("r", set_id, quantity, side, f"{side}|dense|vllm|measured|one", predicted,
                  measured)


def test_sources_are_named_in_the_table_or_are_their_set() -> None:
    assert source_of("CKBK") == source_of("GLM52") == "sglang-cookbook"
    assert source_of("never heard of") == "never heard of"


def test_each_source_weighs_alike_whatever_its_rows() -> None:
    many = [scored("MR27", 1.5)] * 3 + [scored("MR122", 1.5)] * 3  # one source
    found = by_source([*many, scored("X", 1.1), scored("Y", 1.2)])
    assert set(found) == set(KINDS)
    tpot = found["tpot_plain"]
    assert tpot["median_of_medians"] == pytest.approx(0.2) and tpot["sources"] == 3
    # the worst is looked for among sources of five values or more
    assert tpot["worst_source"] == "mindrouter" and tpot["worst_median"] == pytest.approx(0.5)
    assert found["ttft"]["worst_source"] is None and found["ttft"]["median_of_medians"] is None


def test_gains_and_losses_beyond_five_percent_are_counted_apart() -> None:
    found = signs([
        scored("A", predicted, "speedup", measured) for predicted, measured in
        [(1.2, 1.5), (0.9, 1.5), (0.9, 1.04), (0.8, 0.9), (1.1, 0.97)]
    ])
    assert found == {"gains": {"right": 0.5, "n": 2}, "losses": {"right": 1.0, "n": 1}}


def test_coverage_counts_values_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsim.accuracy.scored.interval_for",
                        lambda quantity, klass, value: (value / 1.2, value * 1.2))
    values = [scored("A", 1.1), scored("A", 1.0), scored("A", 0.9), scored("B", 1.5)]
    assert values[0].to_dict()["high_90"] == pytest.approx(1.32)
    found = coverage(values)["tpot_plain"]
    assert set(found) == {"all", "plain", "dense", "vllm", "measured", "one"}
    assert found["all"] == {"inside": 0.75, "n": 4, "inside_by_source": 0.5, "sources": 2}


def test_summary_by_hand() -> None:
    report = ScoreReport(scores=[scored("A", 1.1), scored("A", 0.8), scored("A", 1.4)])
    tpot = report.to_dict()["overall"]["tpot"]
    assert tpot["median_abs_error"] == pytest.approx(0.2)
    assert tpot["bias"] == pytest.approx(0.1)
    assert tpot["p90_abs_error"] == pytest.approx(0.2 + 0.8 * 0.2)
    gains = [scored("A", p, "speedup", 1.5) for p in (1.2, 0.9, 1.9)]
    shown = ScoreReport(scores=gains).to_dict()["overall"]
    assert shown["sign_right"] == pytest.approx(2 / 3) and shown["sign_n"] == 3


def test_predictions_do_not_depend_on_the_order_of_rows() -> None:
    other = {**ROW, "id": "X-2", "batch_or_concurrency": "16"}
    forth, back = score_rows([ROW, other]).scores, score_rows([other, ROW]).scores
    key = {(s.row_id, s.quantity, s.side): s.predicted for s in forth}
    assert key == {(s.row_id, s.quantity, s.side): s.predicted for s in back}


def test_a_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{NAMES}\n" + ",".join(f'"{v}"' for v in ROW.values()) + "\n")
    report = score_rows(read_rows(path))
    assert report.predicted == 1
    assert report.scores == score_rows([ROW]).scores
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a spreadsheet's byte-order mark
    assert score_rows(read_rows(path)).predicted == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "expected those of"), (b"a,b\n1,2\n", "columns a, b"), (b"\xff\xfe", "UTF-8"),
     (b"x" * 20_000_001, "larger than 20 MB"),
     (f"{NAMES}\n\"".encode() + b"x" * 200_000, "not CSV")],
)
def test_files_that_are_not_measurements(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_rows(path)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv", Path("/dev/null")):
        with pytest.raises(FormatError, match="not a file"):
            read_rows(path)


def test_ragged_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{NAMES}\nX-1,X\nX-2,X,A,extra,,,,,,,,,,,,,,,,,,,,,,,,,\n\n")
    rows = read_rows(path)
    assert [r["id"] for r in rows] == ["X-1", "X-2"]
    assert sum(score_rows(rows).skipped.values()) == 2


def test_every_shipped_measurement_is_judged_or_counted() -> None:
    rows = [r for number, r in enumerate(read_rows(PUBLISHED)) if number % 7 == 0]
    report = score_rows(rows)
    assert report.predicted + sum(report.skipped.values()) == report.rows == len(rows)
    assert report.predicted > 0.25 * len(rows)
    assert all(math.isfinite(s.predicted) and s.predicted > 0 for s in report.scores)


def test_a_sparse_model_is_judged_on_what_was_measured_of_it() -> None:
    """DeepSeek-V4-Pro-0813 on 8 x B300 without drafts, 1 to 256 clients: nothing was fitted."""
    rows = [r for r in read_rows(PUBLISHED) if r["set_id"] == "DSPARK" and r["k"] == "1"]
    ratios = [s.predicted / s.measured for s in score_rows(rows).scores if s.quantity == "tpot"]
    assert len(ratios) == 6
    assert all(0.8 < ratio < 1.25 for ratio in ratios)


def test_a_forward_pass_alone_is_judged_without_the_host_and_at_its_context() -> None:
    """What vLLM times on the device for its table of costs (DSPARK-COST, 8192 cached tokens)."""
    rows = {r["batch_or_concurrency"]: r for r in read_rows(PUBLISHED)
            if r["set_id"] == "DSPARK-COST" and r["method"] == "none"}
    case = published_case(rows["256"])
    (score,) = score_case(case)
    step = case.system.latency.step(StepShape(256, 1, 256 * 8192.0))
    assert score.measured == pytest.approx(12.52e-3)
    assert score.predicted == step.target_s < step.total_s - 256 * 5e-6


def test_one_output_token_gives_no_time_per_token() -> None:
    case = published_case({**ROW, "osl": "1"})
    scores = score_case(replace(case, measured={"baseline_tpot_s": 1.0, "spec_tpot_s": 1.0}))
    assert scores and all(s.quantity != "tpot" and s.predicted > 0 for s in scores)


def test_a_long_file_looks_a_name_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from specsim.accuracy import lookups

    asked: list[str] = []
    real = lookups.load_profile

    def counting(name: str) -> object:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(lookups, "load_profile", counting)
    report = score_rows([ROW] * 20, keep_cases=False)
    assert report.predicted == 20 and report.cases == []
    assert len(asked) == 1
    score_rows([ROW])  # another file asks again: profiles may have changed
    assert len(asked) == 2


def test_every_set_of_a_report_is_its_own() -> None:
    rows = [{**ROW, "set_id": f"s{i % 3}", "id": f"r{i}"} for i in range(9)]
    report = score_rows(rows).to_dict()
    assert list(report["sets"]) == ["s0", "s1", "s2"]
    assert [part["n"] for part in report["sets"].values()] == [3, 3, 3]
    assert report["sets"]["s0"]["speedup"]["n"] == 3 and report["overall"]["n"] == 9

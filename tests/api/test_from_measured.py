"""`specsim predict --from-measured`: from files to what they say of another system."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import specsim
from specsim.api.from_measured import changes_of
from specsim.commands import app
from specsim.errors import SpecSimError, UsageError
from specsim.report.doc import Doc
from specsim.report.kinds import SECTIONS
from specsim.report.text import section_text

MODEL = "llama-3.1-8b"
THERE = {"gpu": "h200-sxm", "method": "none"}
DRAFTING = {"gpu": "h200-sxm", "method": "eagle3", "k": 3}
RATES = (0.7, 0.5, 0.35)


def bench(folder: Path, name: str, clients: int, tpot_s: float, **more: Any) -> Path:
    """A result as `vllm bench serve` writes it: 1000 + 200 tokens, a TTFT of 100 ms."""
    count = 4 * clients
    rate = clients * 200 / (0.1 + 199 * tpot_s)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({
        "date": "20260101-000000", "backend": "vllm", "endpoint_type": "vllm", "label": name,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "t",
        "num_prompts": count, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": clients, "duration": count * 200 / rate, "completed": count,
        "total_input_tokens": count * 1000, "total_output_tokens": count * 200,
        "request_throughput": rate / 200, "output_throughput": rate,
        "total_token_throughput": rate * 6, "mean_ttft_ms": 100.0, "median_ttft_ms": 100.0,
        "mean_tpot_ms": tpot_s * 1e3, "median_tpot_ms": tpot_s * 1e3, "std_ttft_ms": 1.0,
        "std_tpot_ms": 0.1, "p99_ttft_ms": 110.0, "p99_tpot_ms": tpot_s * 1.1e3,
        "mean_itl_ms": tpot_s * 1e3, "median_itl_ms": tpot_s * 1e3, **more,
    }), encoding="utf-8")
    return path


def plain(folder: Path, clients: int = 8, tpot_s: float = 0.006) -> Path:
    return bench(folder, f"plain{clients}", clients, tpot_s)


def drafted(folder: Path, clients: int = 8, tpot_s: float = 0.004) -> Path:
    return bench(
        folder, f"spec{clients}", clients, tpot_s, spec_decode_acceptance_rate=51.67,
        spec_decode_acceptance_length=1 + sum(RATES), spec_decode_num_drafts=1000,
        spec_decode_draft_tokens=3000, spec_decode_accepted_tokens=1550,
        spec_decode_per_position_acceptance_rates=list(RATES),
    )


def asked(*files: Path, to: Any, **options: Any) -> Any:
    return specsim.predict(MODEL, from_measured=[str(file) for file in files], to=to,
                           **{**THERE, **options})


def figure(found: Any, metric: str, side: str = "plain") -> dict[str, Any]:
    (row,) = (row for row in found.from_measured["figures"]
              if (row["metric"], row["side"]) == (metric, side))
    return dict(row)


def test_both_systems_are_predicted_and_the_miss_is_carried_over(tmp_path: Path) -> None:
    found = asked(plain(tmp_path), to="gpu=b200,tp=2")
    there = specsim.predict(MODEL, **THERE, concurrency=8, input_len=1000, output_len=200)
    here = specsim.predict(MODEL, gpu="b200", tp=2, method="none", concurrency=8, input_len=1000,
                           output_len=200)
    row = figure(found, "tpot_s")
    assert row["measured"] == pytest.approx(0.006)
    assert row["predicted_there"] == pytest.approx(there.points[0].tpot_s)
    assert row["predicted"] == pytest.approx(here.points[0].tpot_s)
    miss = math.log(row["measured"] / row["predicted_there"])
    assert math.log(row["value"] / row["predicted"]) == pytest.approx(row["share"] * miss)
    assert row["moved"] == pytest.approx(row["value"] / row["predicted"] - 1)
    assert row["interval_90"][0] < row["value"] < row["interval_90"][1]
    assert found.points[0].tpot_s == pytest.approx(here.points[0].tpot_s)
    assert (found.gpu, found.tp, found.method) == ("b200", 2, "none")
    assert {r["metric"] for r in found.from_measured["figures"]} == {
        "tpot_s", "ttft_s", "output_tok_s"}
    assert found.to_frame().shape[0] == 3


def test_another_load_keeps_nearly_all_of_a_miss_and_another_gpu_little(tmp_path: Path) -> None:
    file = plain(tmp_path)
    load = figure(asked(file, to="concurrency=16"), "tpot_s")
    gpu = figure(asked(file, to="gpu=b200"), "tpot_s")
    assert load["concurrency"] == 16
    assert load["share"] > 0.85
    assert gpu["share"] < 0.6


def test_a_load_far_from_what_was_measured_is_said(tmp_path: Path) -> None:
    file = plain(tmp_path, 2)
    far, near = asked(file, to="concurrency=128"), asked(file, to="concurrency=16")
    assert any("more than 16 times" in text for text in far.warnings)
    assert not any("more than 16 times" in text for text in near.warnings)


def test_the_model_is_that_of_the_file(tmp_path: Path) -> None:
    found = specsim.predict(from_measured=str(plain(tmp_path)), to="tp=2", **THERE)
    assert "8B" in found.model.upper()


def test_acceptance_by_position_is_carried_to_the_other_draft_length(tmp_path: Path) -> None:
    files = plain(tmp_path), drafted(tmp_path)
    found = asked(*files, to="k=2", **DRAFTING)
    assert found.k == 2
    assert found.acceptance["unconditional"] == pytest.approx(RATES[:2])
    gain = figure(found, "speedup", "speculative")
    rates = [json.loads(file.read_text())["output_throughput"] for file in files]
    assert gain["measured"] == pytest.approx(rates[1] / rates[0])
    longer = asked(*files, to="k=5", **DRAFTING)
    assert longer.acceptance["unconditional"][:3] == pytest.approx(RATES)
    assert any("extrapolated" in text for text in longer.warnings)


def test_no_speedup_is_measured_where_the_loads_differ(tmp_path: Path) -> None:
    found = asked(plain(tmp_path, 2), drafted(tmp_path, 8), to="tp=2", **DRAFTING)
    assert "speedup" not in {row["metric"] for row in found.from_measured["figures"]}


def test_several_results_together(tmp_path: Path) -> None:
    """Both were missed alike: together they carry over more; each load asked about once."""
    base = specsim.predict(MODEL, **THERE, concurrency=[4, 16], input_len=1000, output_len=200)
    files = [plain(tmp_path, int(p.concurrency), 1.3 * p.tpot_s) for p in base.points]
    one, both = asked(files[0], to="gpu=b200"), asked(*files, to="gpu=b200")
    rows = [r for r in both.from_measured["figures"] if r["metric"] == "tpot_s"]
    assert [r["concurrency"] for r in rows] == [4, 16]
    assert rows[0]["share"] > figure(one, "tpot_s")["share"]
    middle = asked(*files, to="concurrency=8").from_measured["figures"]
    assert [r["metric"] for r in middle].count("tpot_s") == 1


def test_text_json_csv_and_page(tmp_path: Path) -> None:
    files = plain(tmp_path), drafted(tmp_path)
    words = ["predict", MODEL, "--gpu", "h200-sxm", "--method", "eagle3", "--k", "3",
             "--from-measured", str(files[0]), "--from-measured", str(files[1]),
             "--to", "gpu=b200,tp=2"]
    run = CliRunner()
    shown = run.invoke(app, words, env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    own = shown.output.partition("The prediction alone")[0].splitlines()
    assert max(map(len, own)) <= 80
    head = next(line for line in own if line.startswith("clients"))
    assert head.split()[1:] == ["measured", "there", "here", "carried", "90%", "moved"]
    document = json.loads(run.invoke(app, [*words, "--json"]).stdout)
    assert document["from_measured"]["changes"] == {"gpu": "b200", "tp": 2}
    assert document["command"].endswith("--to gpu=b200,tp=2")
    assert section_text(SECTIONS["prediction"](Doc(document))).startswith("From a measurement of")
    table = run.invoke(app, [*words, "--csv"]).stdout.splitlines()
    assert table[0].startswith("side,metric,concurrency")
    assert len(table) == 1 + len(document["from_measured"]["figures"]) == 8


@pytest.mark.parametrize(("to", "rule"), [
    (None, "needs --to"),
    ("", "NAME=VALUE"),
    ("gpu", "NAME=VALUE"),
    ("foo=3", "foo=3"),
    ("method=none", "method=none"),
    ("weights=fp8", "only of these"),
    ("gpu=h200-sxm", "as it was measured"),
    ("gpu=nothing", "nothing"),
    ("tp=x", "whole number"),
    ("tp=0", "tp"),
    ("tp=3", "3"),
    ("concurrency=-3", "from 1 to"),
    ("concurrency=1.5", "whole number"),
    ("input_len=0", "input_len"),
    ("output_len=99999999999", "output_len"),
    ("k=5", "without speculation"),
    ("engine=abacus", "abacus"),
])
def test_what_cannot_be_asked(tmp_path: Path, to: str | None, rule: str) -> None:
    with pytest.raises(SpecSimError, match=rule):
        asked(plain(tmp_path), to=to)


def test_a_target_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(SpecSimError, match="needs 144 GB per GPU"):
        specsim.predict("llama-3.3-70b", weights="bf16", tp=4, method="none", to="tp=1",
                        from_measured=[str(plain(tmp_path))])


def test_plain_is_no_change_of_a_speculative_result(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"k=0.*with speculation"):
        asked(drafted(tmp_path), to="k=0", **DRAFTING)
    with pytest.raises(SpecSimError, match="given as plain, but it holds an acceptance"):
        asked(drafted(tmp_path), to="tp=2")


def test_files_without_what_is_needed(tmp_path: Path) -> None:
    silent = bench(tmp_path, "silent", 8, 0.004)
    told = json.loads(silent.read_text())
    silent.write_text(json.dumps({key: v for key, v in told.items() if "itl" not in key}))
    with pytest.raises(SpecSimError, match="does not tell whether speculation was on"):
        asked(silent, to="tp=2", method=None)
    assert asked(silent, to="tp=2").from_measured["figures"][0]["side"] == "plain"
    empty = json.loads(silent.read_text())
    empty = {key: value for key, value in empty.items()
             if not key.endswith("_ms") and "throughput" not in key}
    silent.write_text(json.dumps(empty))
    with pytest.raises(SpecSimError):
        asked(silent, to="tp=2")
    with pytest.raises(SpecSimError, match=r"nothing\.json"):
        asked(tmp_path / "nothing.json", to="tp=2")


@pytest.mark.parametrize("option", [
    {"concurrency": 4}, {"rate": 1.0}, {"input_len": 5}, {"acceptance_length": 2.0},
    {"workload": "chat"},
])
def test_load_and_acceptance_are_the_files(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="those of the file"):
        asked(drafted(tmp_path), to="tp=2", **DRAFTING | option)


def test_bounds_are_not_moved_and_to_needs_a_measurement(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="datasheet"):
        asked(plain(tmp_path), to="tp=2", fidelity="datasheet")
    with pytest.raises(UsageError, match="--from-measured"):
        specsim.predict(MODEL, to="tp=2")


def test_changes_are_read_by_any_spelling_of_an_option() -> None:
    wanted = {"tp": 4, "k": 2, "input_len": 8000}
    assert changes_of("tensor-parallel-size=4,num_speculative_tokens=2,isl=8000") == wanted

"""`specsim compare`: ranks by hand, reasons, loads, odd files."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import specsim
from specsim.analytic.paired import TPOT, Side, figure_interval, ratio_interval
from specsim.commands import app
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.planning import ranking as planning
from specsim.planning.ranking import Contender, Served, ranking

PLAIN, DRAFTED = {"name": "plain", "method": "none"}, {"name": "e3", "method": "eagle3", "k": 3}
FILE: dict[str, Any] = {"model": "llama-3.1-8b", "deployment": [PLAIN, DRAFTED]}


def compared(*entries: dict[str, Any], **options: Any) -> Any:
    top = options.pop("top", {})
    return specsim.compare(file={**FILE, **top, "deployment": [*entries]},
                           **{"concurrency": 8, **options})


def order(found: Any, place: int = 0) -> list[tuple[str, int]]:
    return [(row.name, row.rank) for row in found.loads[place].ranked]


# --- ranks --------------------------------------------------------------------------------


@pytest.fixture
def contenders() -> list[Contender]:
    system = compared(PLAIN).deployments[0].system
    return [Contender(name, system, gpus, 100, (Served(value, 0.1, 0.01, 1, 1),), price)
            for name, gpus, value, price in (
                ("a", 1, 100.0, 1.0), ("b", 2, 110.0, 2.0), ("c", 1, 50.0, 0.2))]


def test_ranks_count_who_is_surely_better(
    contenders: list[Contender], monkeypatch: pytest.MonkeyPatch
) -> None:
    # every ratio is known to within 1.2 either way
    monkeypatch.setattr(planning, "ratio_interval", lambda *_: (-math.log(1.2), math.log(1.2)))
    found = ranking(8, 0, contenders, "throughput", closed=True)
    assert [(row.name, row.rank) for row in found.ranked] == [("b", 1), ("a", 1), ("c", 3)]
    best, second, last = found.ranked
    assert best.alike == ("a",) and second.alike == ("b",) and last.alike == ()
    assert (best.of_best, best.of_best_90) == (1.0, None)
    assert second.of_best == pytest.approx(100 / 110)
    assert second.of_best_90 == pytest.approx((100 / 110 / 1.2, 100 / 110 * 1.2))


def test_less_is_better_of_times_and_money(
    contenders: list[Contender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "ratio_interval", lambda *_: (-math.log(1.1), math.log(1.5)))
    found = ranking(8, 0, contenders, "cost", closed=True)
    # price x GPUs / (tok/s x 3600) x 1e6: 1.11, 2.78 and 10.1
    assert [row.name for row in found.ranked] == ["c", "a", "b"]
    assert found.ranked[0].value == pytest.approx(0.2 / (50 * 3600) * 1e6)
    low, high = found.ranked[1].of_best_90 or (0, 0)
    share = (0.2 / 50) / (1 / 100)
    # the ratio of costs may be 1.5 times as large, so the second one that much worse
    assert (low, high) == pytest.approx((share / 1.5, share * 1.1))


def test_without_intervals_nobody_is_told_apart(contenders: list[Contender]) -> None:
    found = compared({**PLAIN, "fidelity": "datasheet"}, {**DRAFTED, "acceptance_rate": 0.9})
    assert {rank for _, rank in order(found)} == {1}
    assert found.loads[0].ranked[1].of_best_90 is None


def test_intervals_are_those_of_the_ratio_and_narrower_than_of_both() -> None:
    found = compared(DRAFTED, {"name": "k5", "method": "eagle3", "k": 5})
    one, two = (found.deployments[i].system for i in (0, 1))
    row = next(r for r in found.loads[0].ranked if r.of_best_90)
    pair, shown = ratio_interval(Side.of(one, TPOT), Side.of(two, TPOT)), row.of_best_90
    assert pair is not None and shown is not None
    assert math.log(shown[1] / shown[0]) == pytest.approx(pair[1] - pair[0])
    alone = [figure_interval(s, TPOT) for s in (one, two)]
    assert pair[1] - pair[0] < math.hypot(*(ends[1] - ends[0] for ends in alone if ends))


def test_speculation_on_one_server_has_the_speedup_of_predict() -> None:
    row = compared(PLAIN, DRAFTED).loads[0].ranked[1]
    point = specsim.predict("llama-3.1-8b", method="eagle3", k=3, concurrency=8).points[0]
    low, high = point.interval_90["speedup"] or (0, 0)
    assert row.name == "plain" and row.rank == 2
    assert row.of_best_90 == pytest.approx((1 / high, 1 / low))
    assert row.of_best == pytest.approx(1 / point.speedup)


def test_at_a_rate_what_is_served_has_no_error() -> None:
    found = compared(
        {**PLAIN, "price_per_gpu_hour": 2}, {**DRAFTED, "price_per_gpu_hour": 1},
        concurrency=None, rate=2, objective="cost")
    assert order(found) == [("e3", 1), ("plain", 2)]
    assert found.loads[0].ranked[1].of_best_90 == pytest.approx((0.5, 0.5))
    assert found.loads[0].ranked[0].interval_90 is None


def test_any_objective_puts_the_same_figures_in_its_order() -> None:
    for objective in planning.OBJECTIVES:
        found = compared(PLAIN, DRAFTED, {"name": "two", "tp": 2}, objective=objective,
                         top={"price_per_gpu_hour": 2})
        values = [row.value for row in found.loads[0].ranked]
        assert values == sorted(values, reverse=found.more_is_better), objective
        assert all(0 < row.of_best <= 1 for row in found.loads[0].ranked)


# --- what is left out ------------------------------------------------------------------------


def test_one_bad_entry_never_stops_the_rest() -> None:
    bad = [
        {"name": "large", "model": "llama-3.3-70b"}, {"name": "gpu", "gpu": "h300"},
        {"name": "model", "model": "lama-9"}, {"name": "option", "gppu": "h200"},
        {"name": "value", "tp": "two"}, {"name": "range", "max_num_seqs": 0},
        {"name": "load", "concurrency": 4}, {"name": "old", "engine": "vllm==0.10", "method":
            "dflash"}, {"name": "acceptance", "method": "medusa"},
        {"name": "command", "command": "vllm serve"}, {"name": "code", "policy": "x.py:Y"},
    ]
    found = compared(PLAIN, *bad)
    assert order(found) == [("plain", 1)]
    reasons = {item.name: item for item in found.rejected}
    assert list(reasons) == [entry["name"] for entry in bad]
    assert reasons["large"].kind == "memory" and "GB per GPU" in reasons["large"].reason
    assert reasons["gpu"].kind == "profile" and reasons["model"].kind == "model"
    assert "did you mean 'gpu'" in reasons["option"].reason
    assert "one for all deployments" in reasons["load"].reason
    assert all("\n" not in item.reason for item in found.rejected)


def test_objectives_leave_out_what_misses_them_and_mark_what_may() -> None:
    free = compared(PLAIN, DRAFTED).loads[0].ranked
    fast, slow = (row.served.tpot_s for row in free)
    found = compared(PLAIN, DRAFTED, slo={"tpot_mean": (fast + slow) / 2})
    assert order(found) == [("e3", 1)]
    [missed] = found.loads[0].rejected
    assert (missed.name, missed.kind) == ("plain", "slo") and "tpot_mean" in missed.reason
    near = compared(PLAIN, slo={"tpot_mean": slow * 1.05, "ttft_mean": 100})
    assert near.loads[0].ranked[0].served.slo_open == ("tpot_mean",)


def test_beyond_the_capacity_it_is_overload() -> None:
    found = compared(PLAIN, concurrency=None, rate=[1, 500])
    assert order(found) == [("plain", 1)] and not order(found, 1)
    assert found.loads[1].rejected[0].kind == "overload"


# --- entries ---------------------------------------------------------------------------------


def test_a_command_is_taken_as_it_would_be_started() -> None:
    plain = {"name": "c", "command": "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2"}
    drafted = {"name": "d", "command": (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config "
        "'{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'"), "acceptance_length": 2}
    found = compared(plain, drafted, top={"model": "qwen3-8b", "tp": 4, "method": "eagle3"})
    first, second = found.deployments
    assert not found.rejected
    assert (first.system.spec.name, first.gpus) == ("Llama-3.1-8B", 2)
    assert not first.system.speculative
    assert (second.system.setup.method, second.system.setup.k) == ("ngram", 4)


def test_simulated_deployments_have_percentiles_and_policies() -> None:
    top = {"run": "simulate", "requests": 20, "slo": {"ttft_p95": 5}}
    found = compared(PLAIN, {**DRAFTED, "policy": "off-above,batch=2"}, DRAFTED | {"name": "n"},
                     {**PLAIN, "name": "two", "replicas": 2}, top=top, concurrency=4)
    assert not found.rejected and len(found.loads[0].ranked) == 4
    assert found.deployments[3].gpus == 2
    tight = compared(PLAIN, top={**top, "slo": {"ttft_p95": 1e-4}}, concurrency=4)
    assert "ttft_p95 is" in tight.loads[0].rejected[0].reason


# --- files -------------------------------------------------------------------------------------


def shown(*words: str) -> Any:
    return CliRunner().invoke(app, ["compare", *words], catch_exceptions=False)


def test_toml_json_and_python_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "d.toml"
    toml.write_text('model = "llama-3.1-8b"\n[[deployment]]\nname = "plain"\nmethod = "none"\n'
                    '[[deployment]]\nname = "e3"\nmethod = "eagle3"\nk = 3\n')
    as_json = tmp_path / "d.json"
    as_json.write_text(json.dumps(FILE))
    documents = [json.loads(shown(str(path), "--concurrency", "8", "--json").stdout)
                 for path in (toml, as_json)]
    documents.append(json.loads(json.dumps(specsim.compare(file=FILE, concurrency=8).to_dict())))
    for document in documents:
        assert document.pop("command").startswith("specsim compare ")
    assert documents[0] == documents[1] == documents[2]


@pytest.mark.parametrize(("text", "said"), [
    ("", "is empty"), ("[[deployment]", "not valid TOML"), ("{", "not valid JSON"),
    ("model = 'x'", "no [[deployment]]"), ("deployment = []", "written as"),
    ("deployment = 3", "[[deployment]]"), ("[[deployment]]\n[[deployment]]", "both called"),
    ("[[deployment]]\nname = 'a'\n[[deployment]]\nname = 'a'", "both called 'a'"),
    ("slo = 'ttft=2'\n[[deployment]]", "SLO 'ttft' is not known"),
    ("objective = 'speed'\n[[deployment]]", "objective is 'speed'"),
    ("concurrency = 'many'\n[[deployment]]", "'many'"), ("rate = -1\n[[deployment]]", "above 0"),
    ("rate = 1\nconcurrency = 1\n[[deployment]]", "has one of them"),
    ("run = 'measure'\n[[deployment]]", "predict or simulate"),
    ("gppu = 'x'\n[[deployment]]", "did you mean 'gpu'"),
    ("[[deployment]]\nprice_per_gpu_hour = -1", "above 0"),
    ("[[deployment]]\nname = '" + "x" * 100 + "'", "60 characters"),
    ("[[deployment]]\n" * 10_000, "at most 500"),
])
def test_a_file_that_cannot_be_read_says_why(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(text)
    with pytest.raises(SpecSimError) as error:
        specsim.compare(file=str(path))
    assert said in str(error.value) and "\n" not in str(error.value)
    assert isinstance(error.value, FormatError | UsageError)


def test_nothing_left_ends_with_2_and_the_reasons() -> None:
    found = shown(json.dumps({**FILE, "gpu": "h300"}), "--no-plot")
    assert found.exit_code == 2 and "left out:" in found.stdout and "h300" in found.stdout


def test_both_loops_and_throughput_at_a_rate_are_refused() -> None:
    with pytest.raises(UsageError, match="one of them"):
        specsim.compare(file=FILE, concurrency=1, rate=1)
    with pytest.raises(UsageError, match="serve the same tokens"):
        specsim.compare(file=FILE, rate=1, objective="throughput")


@pytest.mark.slow
def test_it_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "c.svg"
    assert shown(json.dumps(FILE), "--concurrency", "1,8", "--plot", str(path)).exit_code == 0
    text = path.read_text()
    assert "1. e3" in text and "2. plain" in text


def test_answers_of_one_token_have_no_time_per_token() -> None:
    found = compared(PLAIN, {**PLAIN, "name": "more", "output_len": 9},
                     top={"output_len": 1}, objective="tpot")
    assert order(found) == [("more", 1)]
    assert found.loads[0].rejected[0].reason == "it has no tpot here"
    assert any("unlike length" in text for text in found.warnings)

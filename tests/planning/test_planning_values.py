"""Numbers of any size and kind in files, and mistakes that no GPU could make good."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.api.fleet import run
from specsim.api.sweep import build_sweep
from specsim.api.sweep_task import run_tasks
from specsim.errors import FormatError, SpecSimError, UsageError, shown
from specsim.options.sizing import FleetOptions, SweepOptions
from specsim.options.tables import real
from specsim.planning.capacity_demand import read_demand
from specsim.planning.fleet_file import fleet_from, read_fleet
from specsim.planning.fleet_pack import Piece, devices_of, pack
from specsim.planning.sweep import read_definition, written
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import row_of
from specsim.report.tables import to_csv

HUGE = 10**400


def model(**more: Any) -> dict[str, Any]:
    return {
        "gpus": [{"type": "h200-sxm", "count": 2}],
        "models": [{"model": "llama-3.1-8b", "slo": {"ttft_p95": 2}, "rate": 1, **more}],
    }


def plan(tmp_path: Path, **more: Any) -> Any:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(model(**more)))
    return run(FleetOptions(file=path, quick=True, jobs=1))


def test_values() -> None:
    assert real(HUGE) == float("inf") and real(-HUGE) == float("-inf")
    assert real(2) == 2.0 and real(True) is None and real("2") is None
    assert shown(HUGE) == "an integer of more than 30 digits" and shown("a") == "'a'"
    assert shown([10**5000]) == "a list too large to print"
    assert written(float("inf")) == "inf" and written(1.5) == 1.5 and written("x") == "x"


@pytest.mark.parametrize(
    "key", ["rate", "stream_floor", "burstiness", "duration_s", "tp", "num_speculative_tokens",
            "input_len", "max_model_len", "min_replicas"],
)
def test_huge_numbers_of_a_fleet_are_one_short_error(tmp_path: Path, key: str) -> None:
    if key == "burstiness":  # even arrivals
        assert plan(tmp_path, burstiness=HUGE).fits
        return
    with pytest.raises(SpecSimError, match=key) as caught:
        plan(tmp_path, **{key: HUGE})
    assert "must be" in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("where", "key"), [("top", "operating_share"), ("top", "price_per_gpu_hour"), ("slo", "x")]
)
def test_huge_shares_prices_and_limits(where: str, key: str) -> None:
    raw = model(slo={"ttft_p95": HUGE}) if where == "slo" else {**model(), key: HUGE}
    with pytest.raises(UsageError, match=r"inf|an integer of more"):
        fleet_from(raw, "f")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tp": 0}, "tp is 0; it must be a whole number from 1"),
        ({"tp": 3}, "cannot be split"),
        ({"num_speculative_tokens": 0}, "k is 0"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"name": "a\nb\x1b[31m"}, "text on one line"),
        ({"acceptance": [0.5, 7]}, "acceptance"),
        ({"method": "mtp"}, "ships no MTP head"),
        ({"slo": {"ttft_p95": 2, "ttft_s_p95": 3}}, "twice"),
    ],
)
def test_what_no_gpu_could_make_good_is_an_error(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecSimError, match=words.replace("(", r"\(")):
        plan(tmp_path, **more)


def test_what_a_larger_gpu_would_hold_is_a_misfit(tmp_path: Path) -> None:
    found = plan(tmp_path, model="llama-3.1-405b", tp=1)
    assert not found.fits and "GB per GPU" in found.misfits[0].reason


@pytest.mark.parametrize("amount", [HUGE, -1, "x", True])
def test_bad_demands_are_short(tmp_path: Path, amount: Any) -> None:
    path = tmp_path / "day.json"
    path.write_text(json.dumps({"rate": [1, amount]}))
    with pytest.raises(FormatError, match="entry 2: rate is") as caught:
        read_demand(str(path))
    assert "from 0 to 1e8" in str(caught.value) and len(str(caught.value)) < 150


def test_a_cell_beyond_the_reader_is_no_csv(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text('users\n"' + "1" * 200_000 + '"\n')
    with pytest.raises(FormatError, match="is not CSV"):
        read_demand(str(path))


def test_an_even_pace_is_a_value_of_a_sweep(tmp_path: Path) -> None:
    words = ["model=llama-3.1-8b", "rate=2", "duration=5"]
    sweep = build_sweep(SweepOptions(set_=words, grid=["burstiness=1,inf"]))
    with Journal.open(str(tmp_path / "j"), sweep, restart=False) as kept:
        kept.add([(1, {"result": {}})])
    with Journal.open(str(tmp_path / "j"), sweep, restart=False) as kept:
        assert list(kept.offsets) == [1]
    params = [row_of(task, {})["params"] for task in sweep.tasks()]
    assert params == [{"burstiness": 1.0}, {"burstiness": "inf"}]
    assert json.dumps([sweep.to_dict(), params], allow_nan=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["burstiness=nan"], "burstiness is 'nan'; it must be a number"),
        (["requests=" + "9" * 30], "requests is '9+'; it must be a whole number up to"),
        (["export=x.json"], "'export' says where one result goes"),
        (["export-vllm-bench=x.json"], "says where one result goes"),
        (["export_prometheus=x.txt"], "says where one result goes"),
    ],
)
def test_values_and_files_that_a_sweep_refuses(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_sweep(SweepOptions(set_=["model=llama-3.1-8b", "rate=2", *words]))


def test_a_sweep_of_predict_carries_over_no_measurement() -> None:
    words = ["model=llama-3.1-8b", "concurrency=8", "from_measured=run.json"]
    with pytest.raises(UsageError, match="'from_measured' is for one result"):
        build_sweep(SweepOptions(run="predict", set_=words))


def test_numbers_of_a_sweep_file_too(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    for line, message in ((f"requests = {HUGE}", "whole number up to"), ("rate = nan", "a number")):
        path.write_text(f'[fixed]\nmodel = "llama-3.1-8b"\n{line}\n')
        with pytest.raises(UsageError, match=message):
            build_sweep(SweepOptions(file=path))


def test_a_command_names_the_model_of_a_sweep() -> None:
    words = ["command=vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 1", "concurrency=8"]
    sweep = build_sweep(SweepOptions(run="predict", set_=words))
    task = next(iter(sweep.tasks()))
    [found] = run_tasks("predict", [{"options": dict(task.options), "seed": None}])
    result: Any = found["result"]
    assert result["running"] == 1
    with pytest.raises(UsageError, match="a model is needed"):
        build_sweep(SweepOptions(run="predict", set_=["concurrency=8"]))


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(FormatError, match="it is a named pipe, not a file"):
        read_definition(pipe)
    for read in (read_fleet, read_demand):
        with pytest.raises(UsageError, match="is not a file"):
            read(str(pipe))
        with pytest.raises(UsageError, match="does not exist"):
            read(str(tmp_path / "none"))
    sweep = build_sweep(SweepOptions(run="predict", set_=["model=llama-3.1-8b", "concurrency=1"]))
    with pytest.raises(UsageError, match="not seekable"):
        Journal.open(str(pipe), sweep, restart=False)


PIECES = st.builds(
    Piece, st.sampled_from("abc"), st.just("g"), st.integers(1, 3), st.booleans(),
    st.sampled_from([20.0, 60.0]), st.sampled_from([0.1, 0.4]), st.sampled_from([0.2, 1.0]),
)


@given(st.lists(PIECES, max_size=14), st.integers(1, 9))
@settings(deadline=None, max_examples=examples(60))
def test_packing_in_order_is_packing_one_by_one(pieces: list[Piece], count: int) -> None:
    pool = [("g", count, 4, 100.0)]
    at_once = pack(devices_of(pool), pieces, 0.8, in_order=True)
    devices = devices_of(pool)
    singly = [one for piece in pieces for one in pack(devices, [piece], 0.8).placed]
    assert list(at_once.placed) == singly
    assert len(at_once.left) == len(pieces) - len(singly)
    assert at_once.empty["g"] == sum(not device.pieces for device in devices)


def test_a_demand_beyond_all_pools_is_planned_at_once(tmp_path: Path) -> None:
    found = plan(tmp_path, rate=1e8)  # would not end, were each wanted replica tried
    end = found.endpoints[0]
    assert end.replicas == 2 and end.wanted > 100_000 and not found.fits


def test_endpoints_with_and_without_a_command_are_one_table(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    raw = model()
    raw["models"].append({"name": "b", "model": "qwen3-8b", "method": "medusa", "rate": 1,
                          "acceptance_length": 2.0, "slo": {"ttft_p95": 2}})
    path.write_text(json.dumps(raw))
    found = run(FleetOptions(file=path, quick=True, jobs=1))
    first, second = found.endpoints
    assert first.flags is not None and second.flags is None and "assumed" in second.no_flags
    rows = list(csv.DictReader(io.StringIO(to_csv(e.row() for e in found.endpoints))))
    assert [row["name"] for row in rows] == ["llama-3.1-8b", "b"]
    assert rows[0]["command"].startswith("vllm serve") and rows[1]["command"] == ""

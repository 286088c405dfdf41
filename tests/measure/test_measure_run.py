"""The loop: budget, resume, interruption, failures, and files of other runs."""

import json
from dataclasses import replace
from functools import partial

import pytest
from small_disk import small_disk

from measure_helpers import tiny
from specsim.calibrate.records import Measurement, Timing, read_records
from specsim.errors import UsageError
from specsim.measure import run as run_module
from specsim.measure.run import MeasurePlan, measure
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured
from specsim.measure.timer import Timed

PLAN = MeasurePlan("cpu", "small", (tiny(),), None, "fp32", seed=1, threads=1)


@pytest.fixture(autouse=True)
def no_probe(monkeypatch):
    """Half a gigabyte would take the tests' time."""
    monkeypatch.setattr(Session, "probe", lambda self: 1e9)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def jobs(clock, seconds=(1.0, 1.0, 1.0), estimate=1.0, log=None, fail=None, stop=None):
    """Jobs of one point that take `seconds` and are expected to take `estimate`."""

    def work(number: int, took: float, session: Session) -> list[Measurement]:
        if log is not None:
            log.append(number)
        if number == fail:
            raise RuntimeError("out of\nmemory")
        if number == stop:
            raise KeyboardInterrupt
        clock.now += took
        return [measured(points[number], Timed(Timing.of([took]), 1.0))]

    points = [MeasurePoint("launch", {"nodes": n}) for n in range(len(seconds))]
    # calls at the session's default rate with its default slack of 2
    return [
        MeasureJob("A", (points[n],), JobCost(calls=0, extra_s=estimate - 2 * 0.5), (),
            partial(work, n, took))
        for n, took in enumerate(seconds)
    ]


def nodes(path) -> list[int]:
    return [p.shape["nodes"] for p in read_records(path).points]


def test_every_point_is_one_line_after_the_header(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "deep" / "m.jsonl"
    seen = []
    summary = measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock), on_progress=seen.append)
    assert (summary.points, summary.skipped, summary.failed) == (3, 0, [])
    found = read_records(path)
    assert nodes(path) == [0, 1, 2]
    assert [p.at_s for p in found.points] == [1.0, 2.0, 3.0]
    assert [s.done for s in seen] == [0, 1, 2] and seen[0].total == 3
    header = found.headers[0]
    assert header.device["kind"] == "cpu" and header.device["name"]
    assert header.software["torch"] and header.seed == 1 and header.grid == "small"
    assert header.models["tiny"]["weights"] == "random"
    assert header.models["tiny"]["config"]["hidden_size"] == 32
    assert found.ends[0]["measured"] == 3


def test_budget_passes_over_what_does_not_fit_and_takes_what_does(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    made = jobs(clock, (1.0, 1.0, 1.0, 1.0))
    made[1] = replace(made[1], work=JobCost(calls=0, extra_s=1000.0))
    summary = measure(PLAN, path, 60.0, clock=clock, jobs=made)
    assert nodes(path) == [0, 2, 3] and summary.skipped == 1


def test_budget_is_never_overrun_by_well_estimated_jobs(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    summary = measure(PLAN, path, 10.0, clock=clock, jobs=jobs(clock, (3.0,) * 9, estimate=3.0))
    assert summary.elapsed_s <= 10.0
    assert len(nodes(path)) == 3 and summary.skipped == 6


def test_budget_counts_from_the_start_it_is_told(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    clock.now += 9.5  # torch took its time to import
    summary = measure(PLAN, path, 10.0, clock=clock, started=100.0, jobs=jobs(clock))
    assert summary.skipped == 3 and summary.points == 0


def test_a_second_run_measures_only_what_is_missing(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    measure(PLAN, path, 2.5, clock=clock, jobs=jobs(clock, (1.0,) * 4))
    first = nodes(path)
    assert 0 < len(first) < 4
    log = []
    summary = measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock, (1.0,) * 4, log=log))
    assert nodes(path) == [0, 1, 2, 3]
    assert log == [n for n in range(4) if n not in first] and summary.known == len(first)
    assert len(read_records(path).headers) == 2


def test_a_cut_line_is_removed_and_measured_again(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])  # header, two points, a torn one
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    assert nodes(path) == [0, 1, 2] and not read_records(path).truncated


def test_interruption_keeps_everything_and_says_so(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    summary = measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock, stop=1))
    assert summary.interrupted and nodes(path) == [0]
    assert read_records(path).ends[0]["interrupted"] is True
    again = measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    assert nodes(path) == [0, 1, 2] and not again.interrupted


def test_a_full_disk_is_said_and_gone_on_from(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock, stop=1))
    with small_disk(path.stat().st_size + 300), pytest.raises(
        UsageError, match=r"cannot write '.*m\.jsonl': File too large"
    ):
        measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    assert nodes(path) == [0, 1, 2]


def test_a_failing_job_is_noted_and_the_rest_measured(tmp_path) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    summary = measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock, fail=1))
    assert nodes(path) == [0, 2]
    assert summary.failed == [("launch: nodes 1", "out of memory")]
    assert read_records(path).ends[0]["failed"] == [["launch: nodes 1", "out of memory"]]


@pytest.mark.parametrize("change,word", [
    ({"seed": 2}, "seed"), ({"threads": 2}, "threads"), ({"grid": "full"}, "grid"),
    ({"models": (tiny("other"),)}, "models"),
])
def test_another_plans_file_is_refused(tmp_path, change, word) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"measured with {word} .*choose another --out"):
        measure(replace(PLAN, **change), path, 100.0, clock=clock, jobs=jobs(clock))
    assert path.read_bytes() == before


def test_another_machines_file_is_refused(tmp_path, monkeypatch) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    monkeypatch.setattr(run_module, "device_facts", lambda device: {"kind": "cpu", "name": "Else"})
    with pytest.raises(UsageError, match="device_name"):
        measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))


def test_a_newer_commit_may_continue_and_each_point_knows_its_own(tmp_path, monkeypatch) -> None:
    clock, path = Clock(), tmp_path / "m.jsonl"
    monkeypatch.setenv("SPECSIM_GIT_SHA", "one")
    measure(PLAN, path, 1.5, clock=clock, jobs=jobs(clock))
    monkeypatch.setenv("SPECSIM_GIT_SHA", "two")
    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock))
    shas = [p.run.git_sha for p in read_records(path).points]
    assert shas[0] == "one" and shas[-1] == "two"


def test_a_foreign_file_is_not_touched(tmp_path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    with pytest.raises(UsageError, match="cannot continue"):
        measure(PLAN, path, 10.0, jobs=[])
    assert path.read_text() == "my notes\n"


def test_lines_are_on_disk_before_the_next_point_starts(tmp_path) -> None:
    """What a killed process leaves: all finished points."""
    clock, path = Clock(), tmp_path / "m.jsonl"
    lengths = []

    def watch(_):
        lengths.append(len([x for x in path.read_text().splitlines() if '"point"' in x]))

    measure(PLAN, path, 100.0, clock=clock, jobs=jobs(clock), on_progress=watch)
    assert lengths == [0, 1, 2]
    assert all(json.loads(line) for line in path.read_text().splitlines())

"""Sweeps: their definition, seeds, journal, resumption, refusals and output."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from command_line import typing
from small_disk import small_disk

from specsim.api.sweep import build_sweep
from specsim.api.sweep_task import run_tasks
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.options.sizing import SweepOptions
from specsim.planning.executors.base import Done, Job, TaskFunction
from specsim.planning.sweep import Sweep
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import SweepRun, run_sweep
from specsim.report.sweeps import sweep_blocks, sweep_csv, sweep_json, sweep_jsonl
from specsim.report.text import section_text

ROOT = Path(__file__).resolve().parents[2]
SMALL = Sweep("predict", {"model": "m"}, {"a": [1, 2, 3], "b": ["x", "y"]})


class Here:
    """An executor in this process, with an order and an end (after so many batches) of its own."""

    name = "here"
    workers = 1

    def __init__(self, backwards: bool = False, stop_after: int | None = None) -> None:
        self.backwards, self.stop_after = backwards, stop_after
        self.ran: list[Any] = []  # tasks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
        order = list(jobs)
        for number, job in enumerate(reversed(order) if self.backwards else order):
            if number == self.stop_after:
                raise KeyboardInterrupt
            tasks: Any = job.payload["tasks"]
            self.ran += [task["options"] for task in tasks]
            try:
                yield Done(job.key, function(job.payload))
            except ValueError as error:
                yield Done(job.key, None, str(error))

    def close(self) -> None:
        pass


def figures(run: str, tasks: list[dict[str, Any]]) -> list[dict[str, object]]:
    return [_figures(task["options"], task["seed"]) for task in tasks]


def _figures(options: dict[str, Any], seed: int | None) -> dict[str, object]:
    if options["a"] == 2 and options["b"] == "y":
        return {"error": "two does not fit"}
    return {"result": {"value": options["a"] / 3, "deep": {"seed": seed, "list": [1]}}}


# --- definitions ---------------------------------------------------------------------------


def test_grid_cases_and_repeats_are_crossed_in_order() -> None:
    sweep = Sweep(
        "simulate", {"model": "m"}, {"k": [1, 2]}, [{"gpu": "a", "tp": 1}, {"gpu": "b", "tp": 2}],
        repeats=2,
    )
    tasks = list(sweep.tasks())
    assert len(tasks) == sweep.count == 8
    assert [task.index for task in tasks] == list(range(8))
    assert dict(tasks[0].options) == {"model": "m", "gpu": "a", "tp": 1, "k": 1}
    assert dict(tasks[-1].varied) == {"gpu": "b", "tp": 2, "k": 2, "repeat": 1}
    assert len({task.key for task in tasks}) == 8


def test_seeds_come_from_the_task_and_nothing_else() -> None:
    sweep = Sweep("simulate", {"model": "m"}, {"k": [1, 2, 3]}, repeats=2)
    other = Sweep("simulate", {"model": "m"}, {"k": [3, 0, 1]}, repeats=2)
    seeds = {(t.options["k"], t.varied["repeat"]): t.seed for t in sweep.tasks()}
    again = {(t.options["k"], t.varied["repeat"]): t.seed for t in other.tasks()}
    assert len(set(seeds.values())) == 6
    assert all(0 <= seed < 1 << 32 for seed in seeds.values() if seed is not None)
    assert {key: seeds[key] for key in seeds if key in again} == {
        key: again[key] for key in seeds if key in again
    }


def test_a_given_seed_is_shared_by_all_combinations() -> None:
    sweep = Sweep("simulate", {"seed": 7}, {"k": [1, 2]}, repeats=3)
    assert [task.seed for task in sweep.tasks()] == [7, 8, 9, 7, 8, 9]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": "explain"}, "simulate or predict"),
        ({"repeats": 0}, "from 1 to"),
        ({"run": "predict", "repeats": 2}, "not random"),
        ({"grid": {"k": []}}, "grid.k is empty"),
        ({"grid": {"k": [1, 1]}}, "twice"),
        ({"grid": {"k": list(range(2000)), "a": list(range(2000))}}, "at most"),
        ({"fixed": {"k": 1}, "grid": {"k": [1]}}, "in fixed and in grid"),
        ({"cases": [{"k": 1}], "grid": {"k": [1]}}, "in grid and in case"),
        ({"cases": [{"k": 1}, {"k": 1}]}, "the same"),
    ],
)
def test_impossible_definitions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sweep(**{"run": "simulate", **changes})


# --- running and resuming ------------------------------------------------------------------


def outputs(run: SweepRun) -> tuple[str, str, str]:
    document = json.loads("".join(sweep_json(run)))
    return "".join(sweep_jsonl(run)), "".join(sweep_csv(run)), json.dumps(document["rows"])


def test_results_do_not_depend_on_the_order_of_the_tasks(tmp_path: Path) -> None:
    found = []
    for i, backwards in enumerate((False, True)):
        with Journal.open(tmp_path / f"{i}.jsonl", SMALL) as journal:
            found.append(outputs(run_sweep(SMALL, figures, journal, Here(backwards))))
    assert found[0] == found[1]
    rows = [json.loads(line) for line in found[0][0].splitlines()]
    assert [row["task"] for row in rows] == list(range(6))
    assert rows[3]["error"] == "two does not fit" and rows[3]["result"] is None
    lines = list(csv.DictReader(io.StringIO(found[0][1])))
    assert lines[0]["value"] == repr(1 / 3) and lines[0]["deep.list"] == "[1]"
    assert lines[3]["error"] == "two does not fit" and lines[3]["value"] == ""


def test_ctrl_c_keeps_what_is_finished_and_the_rest_follows(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL) as journal:
        first = run_sweep(SMALL, figures, journal, Here(stop_after=1))
    assert first.interrupted and first.finished == 2 and first.resumed == 0
    executor = Here()
    with Journal.open(path, SMALL) as journal:
        second = run_sweep(SMALL, figures, journal, executor)
        assert (second.resumed, second.finished, second.refused) == (2, 6, 1)
        assert len(executor.ran) == 4
        whole = outputs(second)
    with Journal.open(None, SMALL) as journal:
        assert outputs(run_sweep(SMALL, figures, journal, Here())) == whole


def test_a_full_disk_is_said_and_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL) as journal:
        run_sweep(SMALL, figures, journal, Here(stop_after=1))
    with small_disk(path.stat().st_size + 30), Journal.open(path, SMALL) as journal, pytest.raises(
        UsageError, match=r"cannot write '.*journal\.jsonl': File too large"
    ):
        run_sweep(SMALL, figures, journal, Here())
    executor = Here()
    with Journal.open(path, SMALL) as journal:
        assert run_sweep(SMALL, figures, journal, executor).resumed == 2
        assert len(executor.ran) == 4


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_last_line_that_was_cut_short_runs_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL) as journal:
        run_sweep(SMALL, figures, journal, Here())
        whole = outputs(run_sweep(SMALL, figures, journal, Here()))
    path.write_bytes(path.read_bytes()[:-cut])
    executor = Here()
    with Journal.open(path, SMALL) as journal:
        run = run_sweep(SMALL, figures, journal, executor)
        assert len(executor.ran) == 1 and run.resumed == 5
        assert outputs(run) == whole
    with Journal.open(path, SMALL) as journal:
        assert len(journal.offsets) == 6


@pytest.mark.parametrize("length", [0, 1, 10, 60])
def test_a_first_line_that_was_cut_short_starts_anew(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL):
        pass
    path.write_bytes(path.read_bytes()[:length])
    with Journal.open(path, SMALL) as journal:
        assert run_sweep(SMALL, figures, journal, Here()).finished == 6
    with Journal.open(path, SMALL) as journal:
        assert len(journal.offsets) == 6


def test_a_journal_of_another_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL):
        pass
    for other, message in (
        (Sweep("predict", {"model": "n"}, SMALL.grid), 'fixed.model was "m", now "n"'),
        (Sweep("predict", SMALL.fixed, {**SMALL.grid, "b": ["x"]}), "grid.b was"),
        (Sweep("simulate", SMALL.fixed, SMALL.grid), "run was"),
    ):
        with pytest.raises(UsageError, match="another sweep") as error:
            Journal.open(path, other)
        assert message in str(error.value) and "--restart" in str(error.value)
    with Journal.open(path, other, restart=True) as journal:
        assert not journal.offsets


def test_a_changed_input_file_is_noticed(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("a")
    path = tmp_path / "journal.jsonl"
    definition = {"trace": str(trace)}
    with Journal.open(path, Sweep("simulate", definition)):
        pass
    trace.write_text("b")
    with pytest.raises(UsageError, match="file that it names has changed"):
        Journal.open(path, Sweep("simulate", definition))


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL):
        pass
    monkeypatch.setattr("specsim.planning.sweep_journal.build_id", lambda: "99.0 (abc)")
    with pytest.raises(UsageError, match=r"this is 99\.0 \(abc\)"):
        Journal.open(path, SMALL)


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, restart: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\nmore\n")
    with pytest.raises(FormatError, match="not the journal"):
        Journal.open(path, SMALL, restart=restart)
    assert path.read_text() == "dear diary\nmore\n"


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL) as journal:
        run_sweep(SMALL, figures, journal, Here())
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:10]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(FormatError, match="damaged at line 3"):
        Journal.open(path, SMALL)


def test_one_journal_serves_one_run_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL), pytest.raises(UsageError, match="in use by another run"):
        Journal.open(path, SMALL)
    with Journal.open(path, SMALL):
        pass


def test_failed_tasks_are_not_kept_and_run_again(tmp_path: Path) -> None:
    def broken(run: str, tasks: list[dict[str, Any]]) -> list[dict[str, object]]:
        if any(task["options"]["a"] == 1 for task in tasks):
            raise ValueError("a bug")
        return figures(run, tasks)

    path = tmp_path / "journal.jsonl"
    with Journal.open(path, SMALL) as journal:
        first = run_sweep(SMALL, broken, journal, Here())
        assert (first.failed, first.finished) == (2, 4)
        assert set(first.failures.values()) == {"a bug"}
        assert "2 failed" in section_text(sweep_blocks(first))
    executor = Here()
    with Journal.open(path, SMALL) as journal:
        assert run_sweep(SMALL, figures, journal, executor).finished == 6
    assert len(executor.ran) == 2


def test_text_shows_rows_reasons_and_columns_that_nobody_has() -> None:
    sweep = Sweep(SMALL.run, SMALL.fixed, SMALL.grid, columns=("value", "valu"))
    with Journal.open(None, sweep) as journal:
        text = section_text(sweep_blocks(run_sweep(sweep, figures, journal, Here())))
    assert "0.3333" in text and "6 of 6 tasks finished; 1 refused" in text
    assert "refused (1): two does not fit" in text
    assert "no result has 'valu'; near matches: value" in text


# --- the command ---------------------------------------------------------------------------


def build(path: Path | None = None, **more: Any) -> Sweep:
    if "fixed" in more:
        more["set_"] = more.pop("fixed")
    return build_sweep(SweepOptions(file=path, **more))


FILE = """
[sweep]
run = "predict"
columns = ["speedup"]
[fixed]
model = "qwen3.6-27b"
[grid]
num-speculative-tokens = [1, 2]
concurrency = [1, 64]
[[case]]
gpu = "h200-sxm"
[[case]]
gpu = "h100-sxm"
"""


def test_a_file_and_the_command_line_together(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(FILE)
    found = build(path, fixed=["concurrency=8"], grid=["acceptance=0.8,0.5;0.9,0.7"])
    assert found.count == 8
    assert found.fixed == {"model": "qwen3.6-27b", "concurrency": 8}
    assert found.grid == {"k": [1, 2], "acceptance": ["0.8,0.5", "0.9,0.7"]}
    assert found.name == "s" and found.columns == ("speedup",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[grid]", "[gird]", "did you mean 'grid"),
        ("columns", "colums", "did you mean 'columns"),
        ('"predict"', "3", "must be text"),
        ('"predict"', '"predic"', "a sweep runs"),
        ('["speedup"]', '"speedup"', "list of names"),
        ("[1, 2]", "1", "must be a list of values"),
        ("[1, 2]", '[1, "x"]', "must be a whole number"),
        ("[1, 2]", "[1, true]", "must be a whole number"),
        ("[1, 64]", "[1.5]", "must be a whole number"),
        ("[1, 64]", "[0]", "from 1 to 1000000"),
        ("num-speculative-tokens", "num-spec", "is not an option of specsim predict"),
        ("num-speculative-tokens", "json", "a sweep has --out"),
        ('"h100-sxm"', '"h100-sx"', "near matches"),
        ('model = "qwen3.6-27b"', 'model = "qwen3.6-27"', "Qwen3.6-27B"),
        ('model = "qwen3.6-27b"', "", "a model is needed"),
        ("concurrency = [1, 64]", "", "needs concurrency or rate"),
        ("concurrency = [1, 64]", "concurrency = [1]\nrate = [1.0]", "needs concurrency or rate"),
        ("[[case]]", "[case]", "[[case]]"),
        ("[sweep]", "[sweep", "not valid TOML"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "s.toml"
    assert old in FILE
    text = FILE.replace(old, new)
    if old == "[[case]]":
        text = "case = 3\n" + FILE.partition("[[case]]")[0]
    path.write_text(text)
    with pytest.raises(SpecSimError) as error:
        build(path)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "nothing to run"),
        ({"fixed": ["model"]}, "NAME=VALUE"),
        ({"fixed": ["model=qwen3.6-27b"], "grid": ["k=1,x"]}, "whole number"),
        ({"fixed": ["model=qwen3.6-27b"], "grid": ["baseline=maybe"]}, "true or false"),
        ({"fixed": ["modle=qwen3.6-27b"]}, "did you mean"),
        ({"fixed": ["engine=vlm"]}, "vllm"),
        ({"run": "serve", "fixed": ["model=x"]}, "a sweep runs"),
    ],
)
def test_bad_options_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecSimError) as error:
        build(**more)
    assert message in str(error.value)


def test_a_task_is_what_the_commands_print(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = {"model": "llama-3.1-8b", "concurrency": 2, "requests": 6, "input_len": 50,
            "output_len": 20, "method": "none"}
    found: Any = run_tasks("simulate", [{"options": load, "seed": 5}])[0]["result"]
    words = ["--requests", "6", "--concurrency", "2", "--input-len", "50", "--output-len", "20",
             "--method", "none", "--seed", "5"]
    printed = json.loads(command(capsys, monkeypatch, "simulate", "llama-3.1-8b", *words, "--json"))
    for name in ("output_tok_s", "ttft_s", "requests", "steps"):
        assert found[name] == printed[name]
    point: Any = run_tasks(
        "predict", [{"options": {"model": "qwen3.6-27b", "concurrency": 8}, "seed": None}]
    )[0]["result"]
    words = ["qwen3.6-27b", "--concurrency", "8", "--json"]
    printed = json.loads(command(capsys, monkeypatch, "predict", *words))
    assert {**printed["points"][0]} == {name: point[name] for name in printed["points"][0]}


def test_refused_options_are_a_result() -> None:
    options = {"model": "llama-3.1-405b", "concurrency": 1}
    [found] = run_tasks("predict", [{"options": options, "seed": None}])
    assert list(found) == ["error"] and "the smallest tp that fits" in str(found["error"])


command = typing()


SET = ("--set", "model=llama-3.1-8b", "--set", "method=none", "--set", "input_len=50", "--set",
       "output_len=20", "--set", "requests=6")


def test_all_outputs_and_a_second_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    journal, out = str(tmp_path / "j.jsonl"), tmp_path / "rows.jsonl"
    words = ("sweep", *SET, "--grid", "concurrency=1,2,3", "--journal", journal, "--workers", "2")
    text = command(capsys, monkeypatch, *words, "--out", str(out))
    assert "3 of 3 tasks finished" in text and out.read_text().count("\n") == 3
    journal_lines = Path(journal).read_bytes()
    again = json.loads(command(capsys, monkeypatch, *words, "--json"))
    assert again["kind"] == "sweep" and again["resumed"] == 3 and len(again["rows"]) == 3
    assert again["rows"] == [json.loads(line) for line in out.read_text().splitlines()]
    lines = list(csv.DictReader(io.StringIO(command(capsys, monkeypatch, *words, "--csv"))))
    assert [line["concurrency"] for line in lines] == ["1", "2", "3"]
    error = command(
        capsys, monkeypatch, "sweep", *SET, "--grid", "concurrency=1,2", "--journal", journal,
        code=2,
    )
    assert "grid.concurrency was [1, 2, 3], now [1, 2]" in error
    error = command(capsys, monkeypatch, *words, "--out", journal, code=2)
    assert "give each its own file" in error and journal_lines == Path(journal).read_bytes()
    new = tmp_path / "new.jsonl"
    error = command(capsys, monkeypatch, "sweep", *SET, "--grid", "concurrency=1,2", "--journal",
                    str(new), "--executor", "dask://127.0.0.1:x", code=2)
    assert "an address is HOST:PORT" in error and not new.exists()
    error = command(capsys, monkeypatch, *words, "--out", "x.xml", code=2)
    assert "must end in .csv, .jsonl or .parquet" in error


def test_nothing_but_refusals_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--run", "predict", "--set", "model=llama-3.1-405b", "--grid", "concurrency=1,2")
    journal = tmp_path / "journal.jsonl"
    error = command(
        capsys, monkeypatch, "sweep", *words, "--workers", "1", "--journal", str(journal), code=2)
    assert "every task was refused" in error and not journal.exists()


def computed(grid: str, **options: Any) -> list[object]:
    """Results of such a sweep, as JSON has them, from this process."""
    sweep = build_sweep(SweepOptions(set_=SET[1::2], grid=[grid], **options))
    tasks = [{"options": dict(task.options), "seed": task.seed} for task in sweep.tasks()]
    found = json.loads(json.dumps(run_tasks(sweep.run, tasks)))
    return [one["result"] for one in found]


@pytest.mark.slow
def test_kill_9_and_resume(tmp_path: Path) -> None:
    """The process is killed while it works; the next run finishes what is left."""
    journal, out = tmp_path / "j.jsonl", tmp_path / "rows.jsonl"
    words = [sys.executable, "-m", "specsim", "sweep", *SET, "--grid",
             f"concurrency={','.join(map(str, range(1, 61)))}", "--workers", "2", "--journal",
             str(journal), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b"\n") < 6:
        assert time.monotonic() < end and first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = journal.read_bytes().count(b"\n") - 1
    assert 5 <= kept < 60
    second = subprocess.run(
        [*words, "--json"], env=environment, capture_output=True, text=True, timeout=120,
        check=True,
    )
    found = json.loads(second.stdout)
    assert found["finished"] == 60 and found["resumed"] in (kept, kept - 1)
    few = computed("concurrency=1,30,60")
    assert few == [found["rows"][at]["result"] for at in (0, 29, 59)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "package"),
    [("local", None), ("dask://local", "distributed"), ("ray://local", "ray")],
)
def test_ctrl_c_on_the_whole_process_group(
    executor: str, package: str | None, tmp_path: Path
) -> None:
    """As a terminal sends it: to the sweep and its workers. What is finished stays, whole, and is
    what this process computes."""
    if package is not None:
        pytest.importorskip(package)
    journal = tmp_path / "j.jsonl"
    words = [sys.executable, "-m", "specsim", "sweep", *SET, "--repeats", "2", "--grid",
             f"concurrency={','.join(map(str, range(1, 201)))}", "--workers", "2", "--journal",
             str(journal), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    sweep = subprocess.Popen(
        [*words, "--executor", executor], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )
    try:
        end = time.monotonic() + 120
        while not journal.exists() or journal.read_bytes().count(b"\n") < 10:
            assert time.monotonic() < end
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.02)
        os.killpg(sweep.pid, signal.SIGINT)
        out, err = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
    assert sweep.returncode == 130, err
    found = json.loads(out)
    assert found["interrupted"] and 9 <= found["finished"] < 400
    assert journal.read_bytes().count(b"\n") == found["finished"] + 1
    assert "Traceback" not in err and "specsim: interrupted with" in err
    rows: dict[int, list[object]] = {}
    for row in found["rows"]:
        rows.setdefault(row["params"]["concurrency"], []).append(row["result"])
    load = next(load for load, both in rows.items() if len(both) == 2)
    assert rows[load] == computed(f"concurrency={load}", repeats=2)

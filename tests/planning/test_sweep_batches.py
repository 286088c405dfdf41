"""Sweeps of many tasks: batches and their size, what shares work, rows while it runs, a summary."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from specsim.api.sweep_task import run_tasks
from specsim.planning import sweep_run
from specsim.planning.executors.base import Done, Job, TaskFunction
from specsim.planning.sweep import Sweep
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import MOST_BATCHED, run_batch, run_sweep
from specsim.report import export_rows, sweep_pages
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Panel
from specsim.report.sweep_pages import Pages
from specsim.report.sweep_summary import summary_charts, summary_of, summary_picture
from specsim.report.sweeps import sweep_blocks, sweep_csv, sweep_json, write_rows
from specsim.report.text import section_text

WIDE = Sweep("simulate", {"model": "m"}, {"a": list(range(40)), "b": list(range(25))})
SMALL = Sweep("predict", {"model": "m"}, {"a": [1, 2, 3], "name": ["x", "y"]})


class Drawn:
    """An executor that takes each batch when the one before it has ended. seconds: what a task is
    told to take; dies: after so many batches as a killed process does."""

    name = "drawn"
    workers = 1

    def __init__(self, seconds: float = 0.0, dies: int | None = None) -> None:
        self.seconds, self.dies = seconds, dies
        self.batches: list[tuple[int, int]] = []  # first task, how many

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
        for job in jobs:
            if len(self.batches) == self.dies:
                raise SystemExit
            tasks: Any = job.payload["tasks"]
            self.batches.append((int(job.key), len(tasks)))
            try:
                found = {**function(job.payload), "took_s": self.seconds * len(tasks)}
            except ValueError as error:
                yield Done(job.key, None, str(error))
            else:
                yield Done(job.key, found)

    def close(self) -> None:
        pass


def figures(run: str, tasks: list[dict[str, Any]]) -> list[dict[str, object]]:
    return [{"error": "too large"} if task["options"]["a"] == 3 else
            {"result": {"speedup": task["options"]["a"] / 4, "notes": ["n"], "deep": {"whole": 7}}}
            for task in tasks]


def ran(sweep: Sweep, executor: Drawn, function: Callable[..., Any] = figures) -> Any:
    with Journal.open(None, sweep) as journal:
        return run_sweep(sweep, function, journal, executor)


# --- batches -------------------------------------------------------------------------------


def test_batches_grow_to_the_time_that_one_may_take() -> None:
    executor = Drawn(seconds=0.005)
    assert ran(WIDE, executor).finished == 1000
    sizes = [count for _, count in executor.batches]
    assert sizes[:4] == [1, 2, 4, 8] and sum(sizes) == 1000
    # 1 s at 5 ms each is 200; the last may be short.
    assert set(sizes[-3:-1]) == {200}


def test_long_tasks_go_alone_and_short_ones_have_a_limit() -> None:
    slow, fast = Drawn(seconds=0.8), Drawn()
    assert ran(WIDE, slow).busy_s == pytest.approx(800)
    assert {count for _, count in slow.batches} == {1}
    ran(Sweep("predict", {}, {"a": list(range(2000))}), fast)
    assert max(count for _, count in fast.batches) == MOST_BATCHED


def test_predictions_that_differ_in_the_last_option_alone_stay_together() -> None:
    """However long they take: alone they would take longer."""
    executor = Drawn(seconds=0.1)
    ran(Sweep("predict", WIDE.fixed, WIDE.grid), executor)
    assert executor.batches == [(first, 25) for first in range(0, 1000, 25)]
    executor = Drawn(seconds=0.007)
    ran(Sweep("predict", WIDE.fixed, WIDE.grid), executor)
    assert all((first + count) % 25 == 0 for first, count in executor.batches)
    assert 150 in [count for _, count in executor.batches]  # 142 fit: up to the next whole group


def test_of_a_batch_with_a_bug_only_the_task_at_fault_fails() -> None:
    def broken(run: str, tasks: list[dict[str, Any]]) -> list[dict[str, object]]:
        if any(task["options"] == {"model": "m", "a": 20, "b": 7} for task in tasks):
            raise ValueError("a bug")
        return figures(run, tasks)

    executor = Drawn(seconds=0.004)
    run = ran(WIDE, executor, broken)
    bad = next(task for task in WIDE.tasks() if task.varied == {"a": 20, "b": 7})
    assert (run.finished, run.failed, run.failures) == (999, 1, {bad.key: "a bug"})
    assert sum(count for _, count in executor.batches) > 1000  # its neighbours again, alone


def test_a_batch_says_how_long_it_took() -> None:
    found = run_batch({"function": figures, "run": "predict", "tasks": [{"options": {"a": 1}}]})
    assert found["entries"] == figures("predict", [{"options": {"a": 1}}])
    assert 0 <= float(str(found["took_s"])) < 5


def test_a_task_is_found_by_its_index() -> None:
    sweep = Sweep(
        "simulate", {"model": "m"}, {"k": [1, 2, 3], "tp": [1, 2]}, [{"gpu": "a"}, {"gpu": "b"}],
        repeats=2,
    )
    expected = [
        {"gpu": gpu, "k": k, "tp": tp, "repeat": repeat}
        for gpu, k, tp, repeat in itertools.product("ab", (1, 2, 3), (1, 2), (0, 1))
    ]
    assert [task.varied for task in sweep.tasks()] == expected
    assert [sweep.task(index).varied for index in (23, 0, 7)] == [
        expected[index] for index in (23, 0, 7)
    ]


# --- predictions that share work -----------------------------------------------------------

LOADS = (64, 1, 8)


def tasks_of(**more: Any) -> list[dict[str, Any]]:
    return [{"options": {"model": "llama-3.1-8b", "concurrency": load, **more}, "seed": None}
            for load in LOADS]


@pytest.mark.parametrize(("more", "calls"), [
    ({"method": "eagle3", "k": 2, "acceptance_rate": 0.7}, 1),
    ({}, 3),  # the method is chosen by the load
    ({"method": "eagle3", "k": 2, "tp": 3}, 4),  # refused: together, then each by itself
])
def test_loads_together_are_what_they_are_alone(
    more: dict[str, Any], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specsim.api import predict

    alone = [run_tasks("predict", [task])[0] for task in tasks_of(**more)]
    seen: list[Any] = []
    real = predict.predicted
    monkeypatch.setattr(predict, "predicted", lambda o, **w: seen.append(o) or real(o, **w))
    assert run_tasks("predict", tasks_of(**more)) == alone
    assert len(seen) == calls
    assert [list(entry) for entry in alone] == [["error" if "tp" in more else "result"]] * 3


def test_the_best_k_is_looked_for_where_the_sweep_names_none() -> None:
    named, free = (
        run_tasks("predict", tasks_of(method="eagle3", **more)[:1])[0]["result"]
        for more in ({"k": 2}, {})
    )
    assert isinstance(named, dict) and isinstance(free, dict)
    assert named["best_k"] is None and free["best_k"] >= 0


# --- Parquet -------------------------------------------------------------------------------


def test_parquet_holds_what_csv_does_in_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export_rows, "GROUP_ROWS", 4)
    path = tmp_path / "rows.parquet"
    with Journal.open(None, SMALL) as journal:
        run = run_sweep(SMALL, figures, journal, Drawn())
        write_rows(run, str(path))
        header = next(sweep_csv(run))
    file = parquet.ParquetFile(path)
    assert file.num_row_groups == 2 and file.schema_arrow.names == header.strip().split(",")
    rows = file.read().to_pylist()
    assert [row["speedup"] for row in rows] == [0.25, 0.25, 0.5, 0.5, None, None]
    assert [row["a"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert rows[0]["notes"] == '["n"]' and rows[0]["deep.whole"] == 7 and rows[0]["seed"] is None
    assert [row["error"] for row in rows] == [None] * 4 + ["too large"] * 2


@pytest.mark.parametrize(("values", "kind", "kept"), [
    ([1, 2.5, None], "double", [1.0, 2.5, None]),
    ([True, None], "bool", [True, None]),
    ([1.5, "inf"], "string", ["1.5", "inf"]),
    ([None, 2**40], "int64", [None, 2**40]),
    ([[1], [2, 3]], "string", ["[1]", "[2, 3]"]),
])
def test_a_column_of_parquet_has_one_type(
    values: list[Any], kind: str, kept: list[Any], tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    export_rows.write_parquet([{"v": value} for value in values], path)
    assert str(parquet.read_schema(path).field("v").type) == kind
    assert [row["v"] for row in parquet.read_table(path).to_pylist()] == kept


def test_a_killed_sweep_leaves_readable_pages_and_the_next_run_puts_one_file_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(sweep_pages, "PAGE_ROWS", 100)
    monkeypatch.setattr(sweep_run, "MOST_BATCHED", 16)
    place, out = tmp_path / "j.jsonl", tmp_path / "rows.parquet"
    folder = tmp_path / "rows.parquet.parts"

    def go(executor: Drawn) -> Any:
        with Journal.open(place, WIDE) as journal:
            pages = Pages(WIDE, journal, out)
            run = run_sweep(WIDE, figures, journal, executor, kept=pages.more)
            write_rows(run, str(out))
            pages.end()
            return run

    with pytest.raises(SystemExit):
        go(Drawn(dies=20))
    before = sorted(folder.iterdir())
    kept = (place.read_bytes().count(b"\n") - 1) // 100
    assert len(before) == kept >= 2 and not out.exists()
    tables = [parquet.read_table(path).to_pylist() for path in before]
    assert [len(rows) for rows in tables] == [100] * kept
    assert [row["task"] for row in tables[0]] == list(range(100))
    (folder / "rows-99999.parquet").write_bytes(b"of an older run")
    run = go(Drawn())
    assert run.finished == 1000 and run.resumed // 100 == kept
    assert [row["task"] for row in parquet.read_table(out).to_pylist()] == list(range(1000))
    assert sorted(tmp_path.iterdir()) == [place, out]


# --- what all rows say ---------------------------------------------------------------------


def test_a_summary_by_hand() -> None:
    run = summed(SMALL)
    assert run["across"] == {"setting": "a", "values": [1, 2, 3]}
    groups = {(g["setting"], g["value"]): g for g in run["by_setting"]}
    assert list(groups) == [("a", 1), ("a", 2), ("a", 3), ("name", "x"), ("name", "y")]
    assert groups["a", 2]["tasks"] == 2 and groups["a", 3]["refused"] == 2
    assert groups["a", 2]["figures"]["speedup"] == {"p10": 0.5, "median": 0.5, "p90": 0.5}
    assert groups["a", 3]["figures"]["speedup"] is None
    # x has 1/4 and 2/4: the quantiles lie on the line between them.
    found = groups["name", "x"]["figures"]["speedup"]
    assert [found[key] for key in ("p10", "median", "p90")] == pytest.approx([0.275, 0.375, 0.475])
    assert groups["name", "x"]["medians"] == [0.25, 0.5, None]
    assert groups["name", "y"]["figures"]["output_tok_s"] is None


def summed(sweep: Sweep) -> Any:
    with Journal.open(None, sweep) as journal:
        return summary_of(run_sweep(sweep, figures, journal, Drawn()))


def test_the_charts_of_a_summary() -> None:
    summary = summed(SMALL)
    across, by_name = summary_charts(Doc(summary))
    assert isinstance(across, Panel) and isinstance(by_name, Panel)
    assert list(across.series[0].y) == [0.25, 0.5, None] and across.series[0].band[2] is None
    assert [series.label for series in by_name.series] == ["name x", "name y"]
    many = Sweep("predict", {}, {"name": [f"n{i}" for i in range(9)], "a": [1, 2, 5]})
    bars, _ = summary_charts(Doc(summed(many)))
    assert isinstance(bars, Bars) and len(bars.categories) == 9
    words = Sweep("predict", {"a": 1}, {"name": ["x", "y"]})
    (only,) = summary_charts(Doc(summed(words)))
    assert isinstance(only, Bars) and list(only.groups[0][1]) == [0.25, 0.25]
    document = {**summary, "tasks": 6, "run": "predict", "finished": 6, "refused": 2}
    assert len(summary_picture(Doc(document)).panels) == 2
    assert summary_charts(Doc({})) == []


def test_many_rows_are_summed_up_and_a_few_shown() -> None:
    with Journal.open(None, WIDE) as journal:
        run = run_sweep(WIDE, figures, journal, Drawn())
        text = section_text(sweep_blocks(run, "x.parquet"))
        whole, brief = ("".join(sweep_json(run, rows)) for rows in (True, False))
    assert "a        0" in text and "990 more rows in x.parquet" in text
    assert len(whole) > 3 * len(brief) and brief.endswith('"rows": [\n  ]\n}\n')


def test_nothing_finished_is_a_summary_of_nothing() -> None:
    class Stopped(Drawn):
        def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
            raise KeyboardInterrupt

    with Journal.open(None, SMALL) as journal:
        run = run_sweep(SMALL, figures, journal, Stopped())
        assert (run.finished, run.interrupted) == (0, True)
        assert summary_of(run) == {"across": None, "by_setting": []}
        assert "0 of 6 tasks finished" in section_text(sweep_blocks(run))

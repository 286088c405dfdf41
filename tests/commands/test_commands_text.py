"""What people read: the tables of predict and explain, and the helpers that lay them out."""

import csv
import io
import re
import shlex

import pytest
from command_line import answer as run

from specsim.report.layout import command_lines, table_lines, wrapped
from specsim.report.tables import Table, bar, in_unit, interval, number, one_unit, to_csv, to_json
from specsim.units import BYTES, TIME, counted, seconds, size, work

QWEN = ("qwen3.6-27b", "--weights", "fp8", "--acceptance-length", "3.18")


def test_predict_states_its_assumptions_and_answers() -> None:
    text = run("predict", *QWEN, "--concurrency", "1,16")
    assert "fp8 weights" in text or "fp8_block weights" in text
    assert "mtp, k = 3" in text and "acceptance length 3.18" in text
    assert "fidelity: calibrated" in text
    assert text.startswith("ON: mtp k = 3, ") and "; pays " in text
    assert "best k:" in text and "memory per GPU: weights" in text
    lines = [line for line in text.splitlines() if line.startswith(("1 ", "16 "))]
    assert len(lines) == 6 and all("x " in line for line in lines[:2])
    assert [line.split()[1] for line in lines[2:4]] == ["yes", "yes"]  # of the column 'pays'
    assert all(line.count("-") == 6 for line in lines[2:4])  # intervals, of plain times too
    assert all(line.count("-") == 2 for line in lines[4:])  # of joules, and of their ratio
    assert "plain TTFT" in text


def test_predict_by_rate_shows_what_has_no_end() -> None:
    text = run("predict", *QWEN, "--rate", "0.5,500")
    assert "0.5/s" in text and "500/s" in text
    assert "the queue grows without end" in text


def test_plain_decoding_is_said() -> None:
    text = run("predict", "llama-3.1-8b", "--method", "none", "--concurrency", "1")
    assert "no speculation" in text
    assert "best k" not in text and "pays" not in text


def test_csv_has_the_points_as_rows() -> None:
    rows = list(csv.DictReader(io.StringIO(run("predict", *QWEN, "--concurrency", "1,4", "--csv"))))
    assert [r["concurrency"] for r in rows] == ["1", "4"]
    assert float(rows[0]["speedup"]) > 1
    table_rows = list(csv.DictReader(io.StringIO(run("predict", "--csv"))))
    assert len(table_rows) == 6


def test_the_clusters_table_shows_both_numbers_and_every_assumption() -> None:
    text = run("predict")
    for name in ("qwen3.6-27b", "gemma-4-31b", "nemotron-3-super"):
        assert text.count(name) >= 2  # in the table and in the notes
    assert "reported" in text and "2.3x" in text
    assert "* acceptance assumed" in text


def test_explain_adds_up() -> None:
    text = run("explain", *QWEN, "--concurrency", "4")
    assert text.count("lm_head") >= 2
    assert "plain decode step" in text and "verify step, k = 3" in text
    shares = [
        float(word[:-1])
        for block in text.split("verify step")[1:]
        for line in block.splitlines()
        for word in line.split()
        if word.endswith("%")
    ]
    assert sum(shares) == pytest.approx(100, abs=3)  # rounded to 0.1 % each


def test_listings() -> None:
    assert "h200-sxm" in run("gpus")
    shown = run("gpus", "h200-sxm")
    assert "4.8 TB/s" in shown and "measured" in shown
    assert "Qwen3.6-27B" in run("models", "--search", "qwen3.6")
    assert "EAGLE3-Llama-3.1-8B" in run("models", "--drafters")
    assert "MTP head" in run("models", "qwen3.6-27b")
    assert "up to 1024 tokens" in run("models", "gemma-4-31b")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (float("inf"), "-"), (float("nan"), "-"), (1.5e-6, "2 us"), (999e-6, "999 us"),
     (1.234e-3, "1.23 ms"), (0.1234, "123 ms"), (12.345, "12.3 s")],
)
def test_times_for_people(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_other_units_for_people() -> None:
    assert [size(v) for v in (12, 1500, 2.5e6, 3.21e9, 4e12)] == [
        "12 B", "1.5 kB", "2.5 MB", "3.21 GB", "4 TB"
    ]
    assert [work(v) for v in (10, 2e6, 3e9, 4e12, 5e15)] == [
        "10 FLOP", "2 MFLOP", "3 GFLOP", "4 TFLOP", "5 PFLOP"
    ]
    assert interval(None) == "-" and interval([1.234, 2.0]) == "1.23-2.00"
    assert bar(0.5, 10) == "#####" and bar(7.0, 10) == "#" * 10 and bar(-1.0) == ""


def test_tables_align() -> None:
    shown = Table(["name", "n", "bound"], [["a", "1", "memory"], ["long name", "100", "-"]],
                  units=["", "ms", ""])
    assert table_lines(shown, None) == [
        "name         n  bound", "            ms", "---------  ---  ------",
        "a            1  memory", "long name  100  -",
    ]


def test_a_narrow_table_drops_detail_then_wraps_words_then_goes_on_below() -> None:
    rows = [["a", "some words that are long", "1", "2"], ["b", "short", "10", "20"]]
    shown = Table(["key", "text", "first", "second"], rows, detail=1)
    assert table_lines(shown, 40)[-1] == "not shown: second (--wide shows all columns)"
    assert table_lines(shown, 30)[2:5] == [
        "a    some words that         1", "     are long", "b    short                  10"]
    figures = Table(["key", "first", "second"], [["a", "1000000", "2000000"]])
    assert table_lines(figures, 14) == [
        "key    first", "---  -------", "a    1000000", "", "key   second", "---  -------",
        "a    2000000"]


def test_a_table_that_goes_on_below_leaves_no_column_alone() -> None:
    """Parts are about equally wide; what is said of a column stays with it."""
    shown = Table(["load", *"abcde", "90%", "with"], [["1", *["10"] * 7]])
    assert [line for line in table_lines(shown, 24) if "load" in line] == [
        "load   a   b   c   d", "load   e  90%  with"]
    for width in range(8, 41):
        parts = [line.split() for line in table_lines(shown, width) if "load" in line]
        assert [name for part in parts for name in part[1:]] == list(shown.headers[1:]), width
        counts = [len(part) for part in parts]
        assert width < 18 or max(counts) - min(counts) <= 2, (width, parts)


def test_a_sentence_beside_figures_is_wrapped_and_a_path_breaks_after_a_slash() -> None:
    source = "read on one machine (validation/data/some_long_folder/some_long_file.csv.gz)"
    shown = Table(["field", "value", "source"], [
        ["bytes", "150 GB " + "as it is shown " * 5, source]])
    found = table_lines(shown, 60)
    assert max(map(len, found)) <= 60
    assert "".join("".join(found).split()).count("some_long_file.csv.gz)") == 1
    assert any(line.endswith("validation/data/") for line in found)


@pytest.mark.parametrize(("value", "shown"), [
    (4533.2, "4,533"), (999.96, "1,000"), (150.75, "150.8"), (12736.4, "12,736"),
    (0.05496, "0.05496"), (7.0, "7"), (1234.0, "1,234"), (-4533.2, "-4,533"),
])
def test_thousands_are_separated_in_every_figure(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_column_has_one_unit_and_no_exponent() -> None:
    assert one_unit([0.004, 2.2], TIME) == ("ms", 1e-3) and one_unit([0.004, 22], TIME)[0] == "s"
    assert [in_unit(v, 1e-3) for v in (None, 2e-7, 2.34e-5, 0.00464, 0.0697, 1.5044)] == [
        "-", "<0.001", "0.023", "4.64", "69.7", "1,504"]
    assert one_unit([20e3, 11.4e9], BYTES)[0] == "GB" and one_unit([], TIME)[0] == "us"
    assert (size(999.6e6), size(6.97e15), seconds(0.9996)) == ("1 GB", "6,970 TB", "1 s")
    assert counted(1, "replica") == "1 replica" and counted(2000, "run") == "2,000 runs"


def test_sentences_break_at_words_and_commands_before_options() -> None:
    assert wrapped("note: one two three", 14) == "note: one two\n      three"
    command = """vllm serve m --max-num-seqs 8 --speculative-config '{"a": 1, "b -c": 2}'"""
    broken = command_lines(command, 34, 2, 2)
    assert broken.split(" \\\n") == [
        "vllm serve m --max-num-seqs 8", """    --speculative-config '{"a": 1, "b -c": 2}'"""]
    assert shlex.split(broken.replace("\\\n", "")) == shlex.split(command)


def test_json_has_no_infinity() -> None:
    assert to_json({"x": float("inf")}) == '{\n  "x": null\n}'
    assert to_csv([]) == ""
    assert to_csv([{"a": 1, "b": {"c": 2}}]) == 'a,b\n1,"{""c"": 2}"\n'


def test_a_best_k_behind_the_known_positions_is_marked() -> None:
    given = ("predict", "qwen3.6-27b", "--k", "2", "--concurrency", "1")
    said = "(acceptance beyond position 2 is extrapolated)"
    assert said in run(*given, "--acceptance", "0.93,0.75")
    assert "extrapolated" not in run(*given, "--acceptance", "0.3,0.05")  # best k is 1
    assert "extrapolated" not in run(*given, "--acceptance-rate", "0.9")  # says it for all k


def test_an_engine_without_drafters_is_the_reason_not_the_catalogue() -> None:
    text = run("predict", "qwen3.6-27b", "--engine", "transformers", "--concurrency", "1")
    assert "neither Qwen3.6-27B nor the catalogue has a drafter that transformers" in text


def test_lists_say_what_their_columns_mean() -> None:
    assert "kernels: whether efficiencies were measured" in run("gpus")
    assert "- T" not in run("gpus")
    assert "and of what a token passes through" in run("models", "--search", "qwen3")
    assert "input table counted" in run("models", "qwen3.6-27b")
    told = run("explain", "qwen3.5-122b-a10b", "--weights", "fp8")
    assert "latency-bound, 1 token per pass, " in told and " W per GPU\n" in told


def test_a_break_even_above_the_largest_batch_is_explained() -> None:
    text = run("predict", "qwen3.6-27b", "--acceptance-length", "3.18", "--concurrency", "1")
    assert "pays below" in text  # recurrent slots per draft position: half the batch is lost
    found = re.search(r"queueing from (\d+) clients instead\s+of\s+(\d+)", text)
    assert found and int(found[1]) < int(found[2])
    small = run("predict", "qwen3-8b", "--method", "draft-model", "--draft", "qwen3-0.6b", "--k",
                "4", "--acceptance-length", "3.1", "--concurrency", "1")
    assert "pays below" in small

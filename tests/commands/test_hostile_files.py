"""Commands that read files: pipes, devices, links to themselves, impossible counts, names with
control characters, outputs that would replace inputs. One line, exit code 2, nothing lost."""

import json
import os
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from command_line import outcome

from specsim.errors import FormatError
from specsim.formats.bench import read_bench
from specsim.formats.traces import read_trace
from specsim.report.tables import to_csv
from specsim.rows import printable

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"
PLAIN = DATA / "vllm_base_codeedit_c1.json"
METRICS = DATA / "vllm_metrics_ngram3.prom"


@pytest.fixture
def call(capsys, monkeypatch):
    """(exit code, stdout, stderr) of a command line."""
    return partial(outcome, capsys, monkeypatch)


def refused(found, *words):
    code, out, err = found
    assert (code, out) == (2, ""), err
    assert err.startswith("specsim: ") and err.count("\n") == 1, err
    for word in words:
        assert word in err, err


@pytest.mark.parametrize("command", [
    ("calibrate", "{}"), ("report", "{}", "-o", "page.html"),
    ("validate", "records", "{}", "--gpu", "cpu-generic"), ("import", "{}"),
    ("validate", "published", "{}"), ("validate", "bench", "{}"), ("diagnose", "{}"),
])
def test_pipes_devices_and_loops_end_at_once(call, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    for name in ("pipe", "/dev/zero", "loop"):
        refused(call(*(word.format(name) for word in command)), name)


def test_a_report_of_a_calibration_that_is_a_pipe(call, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "records.jsonl").write_text("")
    # the records are empty: whichever is looked at first, nothing waits
    refused(call("validate", "records", tmp_path / "records.jsonl", "--gpu", "cpu-generic",
                 "--report", tmp_path / "pipe"))


def test_an_empty_name_is_not_the_current_folder(call):
    for command in (("import", ""), ("validate", "bench", ""), ("diagnose", ""),
                    ("calibrate", "qwen3-8b", "--from", ""), ("import", PLAIN, "--before", " ")):
        refused(call(*command), "names no file")


def test_csv_with_a_line_beyond_all_limits(call, tmp_path):
    place = tmp_path / "long.csv"
    place.write_text("[" * 200_000)
    refused(call("validate", "published", place), "long.csv", "not CSV")


def test_counters_with_more_accepted_than_drafted(call, tmp_path):
    place = tmp_path / "impossible.prom"
    place.write_text(
        "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_accepted_tokens_total 500\n"
        "vllm:spec_decode_num_draft_tokens_total 15\n"
    )
    for command in ("import", "diagnose"):
        refused(call(command, place), "impossible.prom: 500 tokens accepted of 15 drafted")


def test_grammars_make_drafts_without_counted_tokens(tmp_path):
    """vLLM counts a draft whose tokens a grammar ruled out, but not the tokens."""
    place = tmp_path / "grammar.prom"
    place.write_text(
        "vllm:spec_decode_num_drafts_total 50\nvllm:spec_decode_num_accepted_tokens_total 10\n"
        "vllm:spec_decode_num_draft_tokens_total 30\n"
    )
    (run,) = read_bench(place)
    assert run.acceptance.acceptance_length == pytest.approx(1 + 10 / 50)
    assert run.acceptance.acceptance_rate == pytest.approx(10 / 30)


def test_names_in_files_do_not_command_the_terminal(call, tmp_path):
    evil = "\x1b[2J\x07\u202emodel"
    result = json.loads(PLAIN.read_text()) | {"model_id": evil, "label": evil}
    (tmp_path / "evil.json").write_text(json.dumps(result))
    (tmp_path / "evil.prom").write_text(
        METRICS.read_text().replace('model_name="', 'model_name="\x1b[2J')
    )
    for words in (("import", "evil.json"), ("import", "evil.prom"), ("diagnose", "evil.prom"),
                  ("validate", "bench", "evil.json", "--model", "llama-3.1-8b", "--no-explain")):
        code, out, err = call(*(tmp_path / w if w.startswith("evil") else w for w in words))
        assert code == 0, err
        assert all(ch.isprintable() or ch == "\n" for ch in out + err)
    assert "\\x1b[2J" in call("import", tmp_path / "evil.json")[1]


def test_printable_keeps_text_and_lines():
    assert printable("größer\n  2 µs → 3\n") == "größer\n  2 µs → 3\n"
    assert printable("a\x1b[0m\tb\r\u202e") == "a\\x1b[0m\\tb\\r\\u202e"


def test_no_output_replaces_what_was_measured(call, tmp_path):
    result = tmp_path / "run.json"
    result.write_bytes(PLAIN.read_bytes())
    fit = ("calibrate", "llama-3.1-8b", "--from", result)
    for command in (
        ("import", result, "--export", result),
        ("validate", "bench", result, "--model", "llama-3.1-8b", "--out", result),
        (*fit, "--report", result),
        (*fit, "--out", tmp_path / "e.toml", "--report", tmp_path / "e.toml"),
        ("calibrate", result, "--report", result),
        ("validate", "records", result, "--gpu", "cpu-generic", "--out", result),
    ):
        refused(call(*command), "would replace")
    assert result.read_bytes() == PLAIN.read_bytes()


def test_holdout_without_a_fit_of_benchmarks(call):
    refused(call("calibrate", PLAIN, "--holdout", PLAIN), "--holdout", "--from")


def test_figures_are_shown_even_if_the_file_cannot_be_written(call, tmp_path, monkeypatch):
    """The folder goes away while the work is done."""
    from specsim.accuracy.compare import AccuracyReport
    from specsim.errors import FormatError

    def full(self, path):
        raise FormatError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(AccuracyReport, "write", full)
    code, out, err = call("validate", "bench", PLAIN, "--model", "llama-3.1-8b", "--no-explain",
                          "--out", tmp_path / "out.json")
    assert code == 2 and "No space left" in err and "output tok/s" in out


@pytest.mark.parametrize("text", ["x = 1" + "0" * 5000, "x = " + "[" * 20000])
def test_toml_that_the_parser_chokes_on(call, text, tmp_path, monkeypatch):
    (tmp_path / "specsim.toml").write_text(text + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECSIM_CONFIG", raising=False)
    refused(call("config"), "specsim.toml is not TOML")
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    (tmp_path / "scenario.toml").write_text(text + "\n")
    refused(call("simulate", "--scenario", tmp_path / "scenario.toml"), "not valid TOML")


def test_an_error_of_a_file_is_not_blamed_on_the_output(call, monkeypatch):
    import specsim.formats.bench

    def broken(*_):
        raise PermissionError(13, "Permission denied", "/there/run.json")

    monkeypatch.setattr(specsim.formats.bench, "scan", broken)
    code, out, err = call("import", PLAIN)
    assert (code, out) == (1, "")
    assert err == "specsim: cannot read or write /there/run.json: Permission denied\n"


def test_csv_for_a_spreadsheet_holds_no_formula():
    rows = [{"=a": "=1+1", "b": "@x", "c": "-0.5", "d": -0.5, "e": "+inf", "f": "\x1b[31m",
             "g": "-x"}]
    table = to_csv(rows).splitlines()
    assert table == ["'=a,b,c,d,e,f,g", "'=1+1,'@x,-0.5,-0.5,+inf,\\x1b[31m,'-x"]


def test_a_model_folder_with_a_hostile_name(call, tmp_path):
    folder = tmp_path / "=cmd\x1b[31m\x07"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "vocab_size": 1000,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    }))
    for command in (("models", folder), ("predict", folder, "--method", "none", "--csv"),
                    ("predict", folder, "--method", "none"), ("explain", folder)):
        code, out, err = call(*command)
        assert code == 0, err
        assert all(ch.isprintable() or ch == "\n" for ch in out + err)
        if "--csv" in command:
            assert not any(line.startswith("=") or ",=" in line for line in out.splitlines())


def test_a_name_and_a_search_are_not_both_taken(call):
    refused(call("models", "qwen3-8b", "--search", "llama"), "--search", "leave one out")
    refused(call("models", "qwen3-8b", "--drafters"), "--drafters", "leave one out")


@pytest.mark.parametrize("head", [
    '{"timestamp": 0, "input_length": 5, "output_length": 5, "x": "',
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,5,",
])
def test_a_line_without_end_takes_bounded_memory(head, tmp_path):
    """Of 100 MB no more is read than a line may have."""
    place = tmp_path / "trace.jsonl"
    with place.open("w") as file:
        file.write(head)
        for _ in range(100):
            file.write("5" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="longer than 10000000 characters"):
            list(read_trace(place))
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()

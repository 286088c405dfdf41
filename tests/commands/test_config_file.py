"""specsim.toml: found upwards, checked, beaten by what is typed, part of what repeats a result."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.commands import app, main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory below the one with the file."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("SPECSIM_CONFIG", raising=False)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "specsim.toml"
    path.write_text(text, encoding="utf-8")
    return path


def invoke(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["specsim", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    return err


def test_defaults_hold_and_the_command_line_beats_them(here: Path) -> None:
    write(here, """
        [defaults]
        model = "llama-3.1-8b"
        gpu = "h100-sxm"
        tp = 2
        [predict]
        tp = 4
        concurrency = [1, 8]
    """)
    found = invoke("predict", "--json")
    assert (found["gpu"], found["tp"], found["model"]) == ("h100-sxm", 4, "Llama-3.1-8B")
    assert [p["concurrency"] for p in found["points"]] == [1, 8]
    assert shlex.split(found["command"])[:3] == ["specsim", "predict", "llama-3.1-8b"]
    assert {"--gpu", "--tp", "--concurrency"} <= set(shlex.split(found["command"]))
    assert invoke("explain", "--json")["gpu"] == "h100-sxm"
    found = invoke("predict", "qwen3.6-27b", "--gpu=h200-sxm", "--tp", "1", "--json")
    assert (found["gpu"], found["tp"], found["model"]) == ("h200-sxm", 1, "Qwen3.6-27B")


def test_the_command_that_is_printed_repeats_the_result_without_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, '[defaults]\nmodel = "qwen3.6-27b"\nweights = "fp8"\n'
                '[tune]\nconcurrency = [1, 8]\n')
    found = invoke("tune", "--json")
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    again = invoke(*shlex.split(found["command"])[1:], "--json")
    assert again == found and len(found["answers"]) == 2


@pytest.mark.parametrize(("lines", "words"), [
    ("rate = 2", ("--concurrency", "4")),
    ("concurrency = 4", ("--rate", "2")),
    ("acceptance_rate = 0.7", ("--acceptance-length", "2.5")),
    ("acceptance_length = 3.9", ("--k", "2", "--acceptance", "0.8,0.6")),
    ("acceptance_length = 3.9", ("--k", "2")),
    ("k = 2", ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}')),
    ("speculative_config = '{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'", ("--k", "2")),
    ("csv = true", ("--json",)),
    ('engine = "sglang"', ("--command", "vllm serve Qwen/Qwen3.6-27B")),
])
def test_a_typed_option_puts_aside_the_default_it_excludes(
    here: Path, lines: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, f"[predict]\n{lines}\n")
    words = tuple(dict.fromkeys(("predict", "qwen3.6-27b", *words, "--json")))
    found = invoke(*words)
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    assert invoke(*words) == found


def test_a_scenario_says_what_is_served(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("simulate", "--scenario", "mindrouter-chat", "--users", "4", "--duration", "60",
             "--no-baseline", "--json")
    write(here, '[defaults]\ngpu = "h100-sxm"\nk = 1\nmax_num_seqs = 2\nslo = "ttft_p95=1"\n')
    found = invoke(*words)
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    plain = invoke(*words)
    for document in (found, plain):
        document.pop("wall_s", None)
    assert found == plain


@pytest.mark.parametrize("words", [
    ("--rate", "2"),
    ("--concurrency", "2"),
    ("--users", "3", "--duration", "60"),
])
def test_defaults_count_as_given_where_they_hold(
    here: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, "[defaults]\ninput_len = 300\nburstiness = 0.5\n[simulate]\nbaseline = false\n")
    counted = () if "--users" in words else ("--requests", "20")
    found = invoke("simulate", "llama-3.1-8b", *words, *counted, "--json")
    assert ("--input-len 300" in found["command"]) == ("--users" not in words)
    assert ("--burstiness 0.5" in found["command"]) == ("--rate" in words)
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    again = invoke(*shlex.split(found["command"])[1:], "--json")
    for document in (found, again):
        document.pop("wall_s", None)
    assert found == again


def test_the_file_is_the_one_of_the_variable_or_the_nearest(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, '[defaults]\ngpu = "h100-sxm"\n')
    write(here / "a", '[defaults]\ngpu = "b200"\n')
    assert invoke("predict", "qwen3.6-27b", "--json")["gpu"] == "b200"
    monkeypatch.setenv("SPECSIM_CONFIG", str(here / "specsim.toml"))
    assert invoke("predict", "qwen3.6-27b", "--json")["gpu"] == "h100-sxm"
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    assert invoke("predict", "qwen3.6-27b", "--json")["gpu"] == "h200-sxm"


def test_the_cluster_table_stays_what_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, '[defaults]\ngpu = "l4"\nweights = "fp8"\nk = 7\n')
    found = invoke("predict", "--json")
    monkeypatch.setenv("SPECSIM_CONFIG", "")
    assert invoke("predict", "--json") == found


def test_the_bundled_decoder_has_defaults_of_its_own(here: Path) -> None:
    write(here, '[defaults]\nmodel = "llama-3.1-8b"\nk = 3\n[generate]\nk = 4\n')
    rows = invoke("config", "--json")["options"]
    assert {row["command"] for row in rows if row["value"] == "llama-3.1-8b"} & {
        "generate", "serve", "measure"} == set()
    assert [r["value"] for r in rows if r["command"] == "generate"] == [4]


@pytest.mark.parametrize(("text", "words"), [
    ("[defaults]\ngppu = 1", "[defaults] 'gppu' is no option of any command; did you mean 'gpu"),
    ("[predict]\nconcurency = 1", "no option of specsim predict; did you mean 'con"),
    ("[predikt]\nk = 1", "'predikt' is no section; did you mean 'predict"),
    ("[predict]\nk = 'three'", "[predict] k is 'three'; it must be a whole number"),
    ("[predict]\nk = true", "[predict] k is True; it must be a whole number"),
    ("[predict]\ngpu = {a = 1}", "it must be text"),
    ("[predict]\nconcurrency = []", "it must be text"),
    ("[defaults]\ntp = 1.5", "[defaults] tp is 1.5; it must be a whole number"),
    ("predict = 3", "it must be a section [predict]"),
    ("[validate.liv]\nk = 3", "did you mean 'validate live"),
    ("[predict", "is not TOML"),
    ("[predict]\nmax_num_seqs = 0", "--max-num-seqs is 0"),
])
def test_what_is_wrong_is_one_line_with_the_place(
    here: Path, text: str, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(here, text)
    line = error(monkeypatch, capsys, "predict", "qwen3.6-27b")
    assert words in line
    assert str(path) in line or "--max-num-seqs" in line


def test_files_that_are_none(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(here, "")
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in error(monkeypatch, capsys, "predict")
    path.write_text("# " + "x" * 1_000_001, encoding="utf-8")
    assert "larger than 1 MB" in error(monkeypatch, capsys, "predict")
    monkeypatch.setenv("SPECSIM_CONFIG", str(here / "none.toml"))
    assert "SPECSIM_CONFIG is" in error(monkeypatch, capsys, "predict")
    # Help and version must be there whatever a file says.
    for words in (["predict", "--help"], ["--version"]):
        assert CliRunner().invoke(app, words).exit_code == 0


def test_config_shows_where_each_default_comes_from(here: Path) -> None:
    path = write(here, '[defaults]\nweights = "fp8"\n[validate.live]\nmax-error = 0.3\n')
    found = invoke("config", "--json")
    assert found["kind"] == "config" and found["file"] == str(path)
    rows = {(row["command"], row["option"]): row for row in found["options"]}
    assert rows["predict", "--weights"]["from"] == "[defaults]"
    assert rows["validate live", "--max-error"]["value"] == 0.3
    text = CliRunner().invoke(app, ["config"]).stdout
    assert str(path) in text and "validate live" in text and "fp8" in text
    whole = invoke("config", "predict", "--json")["options"]
    sources = {row["option"]: row["from"] for row in whole}
    assert sources["--weights"] == "[defaults]" and sources["--gpu"] == "built in"
    assert {row["value"] for row in whole if row["option"] == "--gpu"} == {"h200-sxm"}
    assert CliRunner().invoke(app, ["config", "predikt"]).exit_code == 1
    path.unlink()
    assert "built-in defaults" in CliRunner().invoke(app, ["config"]).stdout

"""Every bad input: one line on stderr with the value and the way out, exit code 2, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import outcome as run
from thinned import slow

from specsim.commands import one_line

ROOT = Path(__file__).resolve().parents[2]
QWEN, LLAMA = "qwen3.6-27b", "llama-3.1-8b"
SC = "--speculative-config"


def refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    *arguments: str,
) -> None:
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert code == 2, (out[:200], err)
    assert out == ""
    assert err.startswith("specsim: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert len(err) < 1100
    assert message in err


BAD: list[tuple[str, tuple[str, ...]]] = [
    # names, with near matches
    ("near: Qwen3.6-27B", ("qwen3.6-27",)),
    ("is not in the catalogue", ("nosuchmodel",)),
    ("name is empty", ("",)),
    ("name is empty", ("  ",)),
    ("is not in the catalogue", ("~nobody/x",)),
    ("is not in the catalogue", ("模型",)),
    ("is not in the catalogue", ("a\nb",)),
    ("is not in the catalogue", ("x" * 5000,)),
    ("near matches: h200-sxm", (QWEN, "--gpu", "h2000")),
    ("unknown GPU", (QWEN, "--gpu", "")),
    ("unknown GPU", (QWEN, "--gpu", "g" * 100_000)),
    ("did you mean 'vllm'", (QWEN, "--engine", "vlm")),
    ("is not known", (QWEN, "--engine", "")),
    ("is not a version", (QWEN, "--engine", "vllm==abc")),
    ("did you mean 'eagle'", (QWEN, "--method", "egle")),
    ("is not known", (QWEN, "--method", "")),
    ("did you mean 'fp8", (QWEN, "--weights", "fp9")),
    ("is not known", (QWEN, "--weights", "")),
    ("KV cache dtype 'fp9'", (QWEN, "--kv", "fp9")),
    ("KV cache dtype ''", (QWEN, "--kv", "")),
    ("must be calibrated or datasheet", (QWEN, "--fidelity", "high")),
    ("must be uniform, softmax, gated-shared", ("mixtral-8x7b", "--routing", "zipf")),
    ("has no experts; leave it out", (QWEN, "--routing", "uniform")),
    ("use one of chat", (QWEN, "--workload", "chatt")),
    ("use one of chat", (QWEN, "--workload", "")),
    ("is not a folder", (QWEN, "--profiles", "/nonexistent")),
    ("--profiles is empty", (QWEN, "--profiles", "")),
    ("--profiles is empty", ("--profiles", "")),
    # what does not fit
    ("the smallest tp that fits is 8", ("deepseek-v3",)),
    ("the smallest tp that fits is 2", (QWEN, "--gpu-memory-utilization", "0.3")),
    ("the smallest tp that fits is 4", (QWEN, "--gpu", "l4", "--tp", "2")),
    ("use shorter requests", (QWEN, "--input-len", "20000000")),
    # methods and draft lengths
    ("ships no MTP head", (LLAMA, "--method", "mtp")),
    ("has no method 'early-exit'", (QWEN, "--method", "early-exit")),
    ("has no method 'medusa'", (QWEN, "--method", "medusa", "--engine", "sglang")),
    ("k is 0", (QWEN, "--k", "0")),
    ("k is -1", (QWEN, "--k", "-1")),
    ("k is 65", (QWEN, "--k", "65")),
    ("a whole number 1 to 64", (QWEN, "--k", "9" * 30)),
    ("is '1.5'; it must be a whole number", (QWEN, "--k", "1.5")),
    ("is 'nan'; it must be a whole number", (QWEN, "--k", "nan")),
    ("k is 3 but the method is 'none'", (QWEN, "--method", "none", "--k", "3")),
    ("the drafter is Qwen3-8B", (QWEN, "--method", "none", "--draft", "qwen3-8b")),
    ("the tree is 8", (QWEN, "--method", "none", "--tree", "4,8")),
    ("uses no draft network", (QWEN, "--method", "ngram", "--draft", "qwen3-8b")),
    ("another vocabulary", (QWEN, "--method", "draft-model", "--draft", "qwen3-0.6b")),
    ("another width", ("llama-3.1-70b", "--tp", "4", "--method", "eagle3", "--draft",
                       "EAGLE3-Llama-3.1-8B")),
    ("is of kind 'eagle3'", ("qwen3-8b", "--method", "eagle", "--draft", "EAGLE3-Qwen3-8B")),
    ("name one with --draft", ("qwen3-8b", "--method", "draft-model")),
    ("specsim models --drafters", ("qwen3-8b", "--method", "draft-model", "--draft", "nosuch")),
    ("blocks of 16 tokens", (QWEN, "--method", "dflash", "--k", "20")),
    ("has 5 heads", ("vicuna-7b-v1.3", "--method", "medusa", "--k", "6")),
    ("exit layers are 4, but method 'mtp'", (QWEN, "--exit-layers", "4")),
    ("so from 1 to 31", (LLAMA, "--engine", "transformers", "--method", "early-exit",
                         "--exit-layers", "100")),
    ("TOPK,TOKENS", (LLAMA, "--tree", "4")),
    ("from 4 to 37 tokens", (LLAMA, "--method", "eagle3", "--tree", "4,800")),
    ("from 1 (a chain) to 64", (LLAMA, "--method", "eagle3", "--tree", "0,8")),
    ("a chain of 3 drafts verifies 4 tokens", (LLAMA, "--method", "eagle3", "--tree", "1,8")),
    ("--tree has 'nan'", (LLAMA, "--tree", "nan,8")),
    # acceptance
    ("cannot rise", (QWEN, "--acceptance", "0.5,0.7")),
    ("write 0.015", (QWEN, "--acceptance", "1.5,0.7")),
    ("is -0.1", (QWEN, "--acceptance", "0.9,-0.1")),
    ("--acceptance has 'nan'", (QWEN, "--acceptance", "nan")),
    ("--acceptance has 'inf'", (QWEN, "--acceptance", "inf")),
    ("--acceptance-conditional has 'x'", (QWEN, "--acceptance-conditional", "0.9,x")),
    ("--acceptance has ''", (QWEN, "--acceptance", "")),
    ("--acceptance has ''", (QWEN, "--acceptance", ",")),
    ("at most 1000", (QWEN, "--acceptance", "0.5," * 20_000)),
    ("2 acceptance rates for k = 3", (QWEN, "--acceptance", "0.9,0.8", "--k", "3")),
    ("2 acceptance rates for k = 3", (QWEN, "--acceptance-conditional", "0.9,0.8", "--k", "3")),
    ("k + 1 = 4", (QWEN, "--acceptance-length", "5", "--k", "3")),
    ("at least 1", (QWEN, "--acceptance-length", "0.5")),
    ("is inf", (QWEN, "--acceptance-length", "inf")),
    ("1e+308", (QWEN, "--acceptance-length", "1e308")),
    ("write 0.73", (QWEN, "--acceptance-rate", "73")),
    ("NaN", (QWEN, "--acceptance-rate", "nan")),
    ("is 2", (QWEN, "--acceptance-mean", "2")),
    ("both say what is accepted", (QWEN, "--acceptance-rate", ".7", "--acceptance-length", "3")),
    ("the method is 'none'", (QWEN, "--method", "none", "--acceptance-rate", ".7")),
    ("--thinking is 'maybe'", (QWEN, "--thinking", "maybe")),
    ("works: chat", (QWEN, "--work", "poetry")),
    ("--draft-share is 0", (QWEN, "--draft-share", "0")),
    ("--draft-share is nan", (QWEN, "--draft-share", "nan")),
    ("drafts in every step", (QWEN, "--draft-share", "0.5")),
    # parallelism
    ("tp is 0", (QWEN, "--tp", "0")),
    ("tp is -2", (QWEN, "--tp", "-2")),
    ("do not divide by 3", (QWEN, "--tp", "3")),
    ("tp is 1000000", (QWEN, "--tp", "1000000")),
    ("is 'abc'; it must be a whole number", (QWEN, "--tp", "abc")),
    ("has no experts", (QWEN, "--tp", "2", "--ep", "2")),
    ("ep 3 does not divide", ("qwen3-30b-a3b", "--tp", "2", "--ep", "3")),
    ("states no link", ("qwen3-8b", "--gpu", "strix-halo", "--tp", "2")),
    # load
    ("input_len is 0", (QWEN, "--input-len", "0")),
    ("input_len is -5", (QWEN, "--input-len", "-5")),
    ("is '1e308'; it must be a whole number", (QWEN, "--input-len", "1e308")),
    ("input_len is 99999999999", (QWEN, "--input-len", "99999999999")),
    ("output_len is 0", (QWEN, "--output-len", "0")),
    ("cached_share is 1.0", (QWEN, "--cached-share", "1")),
    ("cached_share is nan", (QWEN, "--cached-share", "nan")),
    ("--concurrency has 0", (QWEN, "--concurrency", "0")),
    ("--concurrency has -1", (QWEN, "--concurrency", "-1")),
    ("must be whole numbers", (QWEN, "--concurrency", "1.5")),
    ("--concurrency has 'abc'", (QWEN, "--concurrency", "abc")),
    ("--concurrency has ''", (QWEN, "--concurrency", "")),
    ("--concurrency has 1e+308", (QWEN, "--concurrency", "1e308")),
    ("--concurrency has 'nan'", (QWEN, "--concurrency", "nan")),
    ("--concurrency has 'xxxx", (QWEN, "--concurrency", "x" * 50_000)),
    ("--rate has 0", (QWEN, "--rate", "0")),
    ("--rate has -1", (QWEN, "--rate=-1",)),
    ("--rate has 'nan'", (QWEN, "--rate", "nan")),
    ("closed loop", (QWEN, "--rate", "1", "--concurrency", "4")),
    ("--max-num-seqs is 0", (QWEN, "--max-num-seqs", "0")),
    ("--max-num-batched-tokens is -1", (QWEN, "--max-num-batched-tokens", "-1")),
    ("verifies 4 tokens in a step", (QWEN, "--max-num-batched-tokens", "2")),
    ("--gpu-memory-utilization is 2", (QWEN, "--gpu-memory-utilization", "2")),
    ("--gpu-memory-utilization is nan", (QWEN, "--gpu-memory-utilization", "nan")),
    # flags together
    ("--json and --csv", (QWEN, "--json", "--csv")),
    ("--tp needs a MODEL", ("--tp", "2")),
    ("--concurrency needs a MODEL", ("--concurrency", "4")),
    ("--rate needs a MODEL", ("--rate", "1")),
    ("--concurrency has 1000001;", (QWEN, "--concurrency", "1000001")),
    ("give tokens per verify step", (QWEN, "--acceptance-length", "-0.1")),
    ("predict has no option --nosuchoption", (QWEN, "--nosuchoption")),
    ("unexpected extra argument", (QWEN, "extra")),
    ("--tp needs a value: Tensor parallelism", (QWEN, "--tp")),
    ("--tp needs a value: Tensor parallelism", (QWEN, "--tp", "--json")),
    ("--gpu needs a value: GPU: a name from `specsim gpus`", (QWEN, "--gpu", "--help")),
    # vLLM's JSON
    ("is not JSON", (QWEN, SC, "{")),
    ("is not JSON", (QWEN, SC, "")),
    ("must be an object", (QWEN, SC, "[]")),
    ("neither a method nor a model", (QWEN, SC, "{}")),
    ("did you mean 'num_speculative_tokens'",
     (QWEN, SC, '{"method":"mtp","num_speculative_token":3}')),
    ("is 0; it must be", (QWEN, SC, '{"method":"mtp","num_speculative_tokens":0}')),
    ("did you mean 'mtp'", (QWEN, SC, '{"method":"mtpp"}')),
    ("1 acceptance rates for k = 2",
     (QWEN, SC, '{"method":"mtp","num_speculative_tokens":2,"synthetic_acceptance_rates":[0.9]}')),
    ("NaN", (QWEN, SC, '{"method":"mtp","synthetic_acceptance_rates":[0.9,NaN]}')),
    ("is inf", (QWEN, SC, '{"method":"mtp","synthetic_acceptance_length":1e999}')),
    ("another one is given", (QWEN, SC, '{"method":"mtp","synthetic_acceptance_length":2}',
                              "--acceptance-length", "2")),
    ("--speculative-config and --k", (QWEN, SC, '{"method":"mtp"}', "--k", "3")),
    ("must be 1 or the target's tp",
     (QWEN, SC, '{"method":"mtp","draft_tensor_parallel_size":4}')),
    ("no parallel drafting", (QWEN, SC, '{"method":"mtp","parallel_drafting":true}')),
    ("is not in the catalogue", (QWEN, SC, '{"method":"draft_model","model":"\\u0000"}')),
]


@pytest.mark.parametrize(("message", "arguments"), BAD, ids=lambda v: None)
def test_predict_refuses(
    message: str,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused(capsys, monkeypatch, message, "predict", *arguments)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("name --method eagle3 with --acceptance-length", ("crossover", "qwen2.5-7b")),
        ("no speculation to compare", ("crossover", "qwen2.5-7b", "--method", "none")),
        ("a MODEL is needed", ("explain",)),
        ("is not in the catalogue", ("explain", "nosuch")),
        ("--concurrency has 'x'", ("explain", QWEN, "--concurrency", "x")),
        ("unknown GPU 'nosuch'", ("gpus", "nosuch")),
        ("must end in .toml", ("gpus", "/dev/zero")),
        ("cannot be read", ("gpus", "nosuch.toml")),
        ("--profiles is empty", ("gpus", "--profiles", "")),
        ("is not in the catalogue", ("models", "nosuch")),
        ("not from this file", ("models", "/dev/zero")),
        ("is not a file", ("validate", "published", "/nosuch.csv")),
        ("is not a file", ("validate", "published", "/dev/zero")),
        ("see `specsim validate published --help`", ("validate", "published")),
        ("import needs FILES; for example: specsim import result.json;", ("import",)),
        ("train-head needs --out; for example: specsim train-head --out", ("train-head",)),
        ("matrix needs --models; did you mean --models foo?", ("matrix", "foo")),
        ("is nan", ("validate", "published", "x.csv", "--max-error", "nan")),
        ("No such command 'nosuch'", ("nosuch",)),
        ("No such command", ("validate", "nosuch")),
        ("No such option", ("--nosuch",)),
    ],
)
def test_other_commands_refuse(
    message: str,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused(capsys, monkeypatch, message, *arguments)


CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "not valid JSON"),
        ("config.json", b"", "not valid JSON"),
        ("config.json", b"\xff\xfe\x00", "not UTF-8 text"),
        ("config.json", b"[]", "JSON object"),
        ("config.json", b"[" * 100_000, "not valid JSON"),
        ("config.json", json.dumps({**CONFIG, "hidden_size": -1}).encode(), "hidden_size = -1"),
        ("config.json", json.dumps({**CONFIG, "num_attention_heads": 0}).encode(), "= 0"),
        ("config.json", json.dumps({**CONFIG, "vocab_size": 1e308}).encode(), "vocab_size"),
        ("config.json", json.dumps({**CONFIG, "model_type": "foo"}).encode(), "'foo' is not a"),
        ("model.safetensors", b"x", "is read from a config.json"),
        ("gpu.toml", b"[x", "not valid TOML"),
        ("gpu.toml", b"", "is missing"),
        ("gpu.toml", b"\xff\xfe", "UTF-8"),
        ("engine.toml", b"[x", "not valid TOML"),
        ("engine.toml", b"[engine]\nname = 1\nversion = '1'", "must be text"),
        ("rows.csv", b"a,b\n1,2", "expected those of"),
        ("rows.csv", b"", "expected those of"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    name: str,
    content: bytes,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    commands = {
        "config.json": [("predict", str(path)), ("predict", str(tmp_path)), ("models", str(path)),
                        ("predict", LLAMA, "--method", "draft-model", "--draft", str(path))],
        "model.safetensors": [("predict", str(path))],
        "gpu.toml": [("predict", LLAMA, "--gpu", str(path)), ("gpus", str(path))],
        "engine.toml": [("predict", LLAMA, "--engine", str(path))],
        "rows.csv": [("validate", "published", str(path))],
    }[name]
    for command in commands:
        refused(capsys, monkeypatch, message, *command)


def test_huge_and_odd_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ending in ("json", "toml", "csv"):
        with (tmp_path / f"big.{ending}").open("wb") as stream:
            stream.truncate(100_000_000)  # 100 MB without filling the disk
        (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
        (tmp_path / f"folder.{ending}").mkdir()
        os.mkfifo(tmp_path / f"pipe.{ending}")
    for name in ("big", "zero", "folder", "pipe"):
        path = str(tmp_path / name)
        refused(capsys, monkeypatch, name, "predict", f"{path}.json")
        refused(capsys, monkeypatch, name, "models", f"{path}.json")
        refused(capsys, monkeypatch, name, "predict", LLAMA, "--draft", f"{path}.json",
                "--method", "draft-model")
        refused(capsys, monkeypatch, name, "predict", LLAMA, "--gpu", f"{path}.toml")
        refused(capsys, monkeypatch, name, "predict", LLAMA, "--engine", f"{path}.toml")
        refused(capsys, monkeypatch, name, "gpus", f"{path}.toml")
        refused(capsys, monkeypatch, name, "validate", "published", f"{path}.csv")
    refused(capsys, monkeypatch, "config.json", "predict", str(tmp_path))  # a folder without one


def test_nothing_asked_shows_the_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch)
    assert code in (0, 2)
    assert "predict" in out + err
    code, out, _ = run(capsys, monkeypatch, "--help")
    assert code == 0 and "predict" in out
    code, out, _ = run(capsys, monkeypatch, "--version")
    assert code == 0 and out.startswith("specsim ")


def test_messages_are_one_printable_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("bell \x07 and \x1b[31m red") == "bell \\x07 and \\x1b[31m red"
    assert len(one_line("x" * 5000)) == 1000
    assert one_line("Größe 模型") == "Größe 模型"


# --- in a process of its own --------------------------------------------------------------------


def shell(command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", command.replace("specsim", f"{sys.executable} cli.py")], cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = shell("set -o pipefail; specsim models | head -1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("streams", "arguments", "code"),
    [slow(">&-", "gpus", 1), slow(">&-", "gpus nosuch", 1), slow("2>&-", "gpus nosuch", 2),
     slow("2>&-", "gpus", 0), (">&- 2>&-", "gpus", 1)],
)
def test_closed_streams_end_without_a_traceback(
    streams: str, arguments: str, code: int
) -> None:
    done = shell(f"specsim {arguments} {streams}")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if streams == ">&-":
        assert done.stderr == "specsim: cannot write the output: standard output is closed\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_in_one_line() -> None:
    done = shell("specsim gpus > /dev/full")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "cannot write the output" in done.stderr


@pytest.mark.slow
def test_names_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    folder = tmp_path / "größe-模型"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    done = shell(f"specsim models '{folder}'", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout
    done = shell("specsim predict $'\\xff\\xfe'")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    ["specsim predict", *map(slow, (
        "specsim predict qwen3.6-27b --concurrency 1,4", "specsim explain qwen3.6-27b",
        "specsim models --search qwen", "specsim gpus",
    ))],
)
def test_the_main_commands_run(command: str) -> None:
    done = shell(command)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 200

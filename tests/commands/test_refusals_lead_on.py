"""Messages that people got stuck at: each names the flag or file, the value, and what to type."""

from pathlib import Path

import pytest

from test_commands_errors import refused

COMMAND = ("predict", "--gpu", "h100", "--command")
WAYS_ON: list[tuple[str, tuple[str, ...]]] = [
    ("--rates needs a value: Requests per second in the place of clients, e.g. 1,2,4; auto: up to "
     "the capacity; see `specsim crossover --help`", ("crossover", "qwen3-8b", "--rates")),
    ("'x'; it must be numbers separated by commas, or auto",
     ("crossover", "qwen3-8b", "--rates", "x")),
    ("name the folder '.' if its config.json lies there", ("predict", "model.safetensors")),
    ("or a name of `specsim models`", ("predict", "empty")),
    ("`specsim gpus` lists all", ("predict", "qwen3-8b", "--gpu", "h900")),
    ("name the checkpoint's folder or .gguf as MODEL",
     ("predict", "qwen3-8b", "--weights", "q4_k_m")),
    ("such as --engine vllm, and fit it to your server with `specsim calibrate --from",
     ("predict", "qwen3-8b", "--engine", "tgi")),
    ("--acceptance-length is given, but the method is 'none'; leave it out or name what drafts",
     ("predict", "qwen3-8b", "--method", "none", "--acceptance-length", "2")),
    ("multiply conditional rates up: --acceptance 0.8,0.56,0.42",
     ("predict", "qwen3-8b", "--method", "eagle3", "--acceptance", "0.8,0.7,0.75")),
    ("`specsim diagnose --url http://HOST:PORT` measures it",
     ("simulate", "qwen3-8b", "--method", "ngram", "--rate", "1")),
    ("is 2: --tp 2, or choose smaller weights with --weights fp8",
     ("predict", "llama-3.3-70b-instruct", "--gpu", "h100")),
    ("use --tp 1 or 2 or 4 or 8 or 16", ("predict", "qwen3-8b", "--tp", "3")),
    ("raise --tp or --attention-dp to it", ("predict", "qwen3-8b", "--ep", "2")),
    ("leave out --tree 4,8",
     ("predict", "qwen3-8b", "--method", "ngram", "--tree", "4,8", "--acceptance-length", "2")),
    ("raise it to 4 or more, or draft less with --k",
     ("predict", "qwen3-8b", "--max-num-batched-tokens", "2", "--method", "eagle3", "--k", "3")),
    ("other engines and versions others (--engine sglang, specsim",
     ("predict", "qwen3-8b", "--method", "early-exit")),
    ("--speculative-config is '{method:mtp}', which is not JSON",
     (*COMMAND, 'vllm serve qwen3-8b --speculative-config {"method":"mtp"}')),
    ("specsim predict qwen3-8b --command '...'", (*COMMAND, "vllm serve --port 1")),
    ("the variable $MODEL, which it does not set; name the model as MODEL in front of it",
     (*COMMAND, "vllm serve $MODEL")),
    ("'/models/mine', which is not here; name the model as MODEL",
     (*COMMAND, "vllm serve /models/mine")),
    ("'$TP'; it must be a whole number from 1; the command does not set this variable",
     (*COMMAND, "vllm serve qwen3-8b --tensor-parallel-size $TP")),
    ("'95%'; it must be above 0 and at most 1; write 0.95",
     (*COMMAND, "vllm serve qwen3-8b --gpu-memory-utilization 95%")),
    ('give what stands in it: --command "$(cat run.sh)"', (*COMMAND, "run.sh")),
    ("--command names the file no.yml", (*COMMAND, "no.yml")),
    ("--config no.yaml in --command cannot be used", (*COMMAND, "vllm serve --config no.yaml")),
    ("--engine vllm, the nearest", (*COMMAND, "lmdeploy serve api_server org/m --tp 2")),
    ("`specsim calibrate --from FILE MODEL`", ("calibrate", "x.json")),
    ("give the result file itself", ("import", "empty")),
    ("a line per request with timestamp, input_length, output_length",
     ("simulate", "qwen3-8b", "--trace", "x.json")),
]


@pytest.mark.parametrize(("words", "arguments"), WAYS_ON, ids=[words for words, _ in WAYS_ON])
def test_the_way_on_is_said(
    words: str, arguments: tuple[str, ...], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.safetensors").write_text("x", encoding="utf-8")
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    refused(capsys, monkeypatch, words, *arguments)

"""Fleet files and what a live server tells of its flags, changed at random: a result or one line of
refusal with exit code 2, never a traceback."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mutated import ODD, mutated

pytest.importorskip("aiohttp", reason="the client needs aiohttp")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client"))

from fake_server import FakeServer
from specsim.api import quick as quick_run
from specsim.commands import main

FLEET = {
    "operating_share": 0.8, "n_minus_1": True, "engine": "vllm",
    "gpus": [{"type": "h200-sxm", "count": 4}],
    "models": [
        {"name": "chat", "model": "qwen3-8b", "rate": 1, "workload": "chat",
         "slo": {"ttft_p95": 3}, "max_num_seqs": 64},
        {"name": "b", "model": "llama-3.1-8b", "tokens_per_s": 300, "input_len": 1000,
         "output_len": 100, "slo": {"ttft_p95": 5}, "share_gpu": True, "profile": "office"},
    ],
}
TOLD = {
    "model_path": "qwen3-8b", "tp_size": 2, "dp_size": 1, "ep_size": 1, "pp_size": 1,
    "enable_dp_attention": False, "max_running_requests": 48, "chunked_prefill_size": 8192,
    "mem_fraction_static": 0.88, "kv_cache_dtype": "fp8_e4m3", "quantization": "fp8",
    "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4, "context_length": 4096, "disable_cuda_graph": False,
    "cuda_graph_max_bs": 64, "disable_overlap_schedule": True, "version": "0.5.9",
}
COUNTS = [8, pytest.param(300, marks=pytest.mark.slow)]
Call = Callable[..., int]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The exit code of a command line whose output is checked."""

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["specsim", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        code = stop.value.code or 0
        assert code in (0, 1, 2), err
        if code == 2:
            assert (out, err.count("\n"), err.startswith("specsim: ")) == ("", 1, True), err
            return 2
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        return int(code)

    return run


@pytest.mark.parametrize("count", COUNTS)
def test_fleet_files(
    count: int, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, codes = random.Random(count), set()
    for _ in range(count):
        Path("fleet.json").write_text(json.dumps(mutated(FLEET, draw)), encoding="utf-8")
        codes.add(call("fleet", "fleet.json", "--quick", "--jobs=1", "--json"))
    assert 2 in codes


@pytest.mark.parametrize("count", COUNTS)
def test_what_a_server_tells_of_its_flags(
    count: int, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_run, "local_gpu", lambda: "")
    draw, codes = random.Random(count), set()
    server = FakeServer(k=0, max_tokens=4, metrics=False)
    with server.running():
        for _ in range(count):
            server.server_info = draw.choice(ODD) if draw.random() < 0.1 else mutated(TOLD, draw)
            words = draw.choice([(), (), ("--engine", "vllm"), ("--tp", "1"), (
                "--command", "trtllm-serve qwen3-8b --tp_size 2")])
            codes.add(call("quick", server.url, "--seconds", "0.2", "--json", *words))
    assert 0 in codes


@pytest.mark.parametrize("name", [[1], None, 3, {"a": 1}])
def test_a_server_whose_models_have_no_names(name: object, call: Call) -> None:
    server = FakeServer(metrics=False)
    server.model = {"id": name}
    with server.running():
        assert call("quick", server.url, "--seconds", "0.2", "--json") == 2


def test_a_fault_of_a_model_in_a_fleet_names_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for key, value, said in (
        ("workload", "null", "model chat: workload 'null' is not known"),
        ("engine", "fp8", "model chat: engine 'fp8' is not known"),
        ("max_num_seqs", -1, "model chat: --max-num-seqs"),
        ("model", 3, "model is 3; it must be a name from `specsim models`"),
    ):
        file = {**FLEET, "models": [{**FLEET["models"][0], key: value}]}  # type: ignore[index]
        Path("fleet.json").write_text(json.dumps(file), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["specsim", "fleet", "fleet.json", "--quick"])
        with pytest.raises(SystemExit):
            main()
        assert said in capsys.readouterr().err

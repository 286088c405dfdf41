"""`specsim tune` from the command line, and --command wherever a MODEL can stand."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from specsim.api.command_line import expand_command
from specsim.api.deployment import build_request
from specsim.api.tune import tune
from specsim.api.tune_setup import build_offer
from specsim.commands import main
from specsim.errors import SpecSimError, UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.tuning import TuneOptions

SERVE = (
    "vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 64 --speculative-config "
    """'{"method": "mtp", "num_speculative_tokens": 3}'"""
)


def run(*words: str, code: int = 0) -> Any:
    """What a command prints, in this process: stderr if it ends with `code`, JSON if so wanted."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        patch.setattr(sys, "argv", ["specsim", *words])
        main()
    assert (stop.value.code or 0) == code, err.getvalue()
    if code:
        assert len(err.getvalue().splitlines()) == 1
        return err.getvalue()
    return json.loads(out.getvalue()) if "--json" in words else out.getvalue()


def setup(model: str = "qwen3.6-27b", **given: Any) -> Any:
    return build_offer(TuneOptions(model=model, **given))


def test_json_of_one_and_of_several_loads() -> None:
    one = run("tune", "qwen3.6-27b", "--weights", "fp8", "--concurrency", "64", "--json")
    assert next(iter(one)) == "kind"
    assert one["kind"] == "tune"
    assert one["best_k"] == 2
    assert {c["k"] for c in one["candidates"] if c["method"] in ("none", "mtp")} == set(range(9))
    assert {"mtp", "dflash", "dspark"} <= {c["method"] for c in one["candidates"]}
    several = run("tune", "qwen3.6-27b", "--weights", "fp8", "--concurrency", "1,64", "--json")
    assert several["best_k"]["64"] == 2
    assert several["best_k"]["1"] > 2


def test_text_says_what_to_type() -> None:
    shown = run("tune", "--command", SERVE)
    assert "to type" in shown
    assert "vllm serve Qwen/Qwen3.6-27B-FP8 --max-num-seqs 64" in shown
    assert "staying on at k = 0" in shown
    assert "one more draft at 1" in shown


@pytest.mark.parametrize("name", ["predict", "explain"])
def test_command_is_the_options_it_stands_for(name: str) -> None:
    given = run(name, "--command", SERVE, "--concurrency", "4", "--json")
    same = run(name, "qwen3.6-27b-fp8", "--max-num-seqs", "64", "--method", "mtp", "--k", "3",
               "--concurrency", "4", "--json")
    for shown in (given, same):
        shown.pop("command", None)
        shown.pop("warnings")
    assert given == same


def test_simulate_follows_the_command() -> None:
    table = SERVE.replace(": 3}", ': 3, "num_speculative_tokens_per_batch_size": [[1, 99, 2]]}')
    shown = run("simulate", "--command", table, "--concurrency", "2", "--requests", "20",
                "--no-baseline", "--json")
    assert not any("per_batch_size" in text for text in shown["warnings"])


def test_errors_are_one_line() -> None:
    assert "starts no server" in run("tune", "--command", "ls -l", code=2)
    assert "contradicts --command" in run("tune", "--command", SERVE, "--max-num-seqs", "32",
                                          code=2)
    assert "a MODEL is needed, or a --command" in run("tune", code=2)
    assert "--slo is empty" in run("tune", "qwen3.6-27b", "--slo", ",", code=2)


# --- --command ----------------------------------------------------------------------------------


def test_what_the_command_leaves_open_stays_open() -> None:
    options, notes = expand_command(Options(model="", command="vllm serve Qwen/Qwen3-8B --port 1"))
    assert options.method is None
    assert options.speculative_config is None
    assert any("starts no speculation" in text for text in notes)
    assert any("--port" in text for text in notes)


def test_a_model_beside_names_the_path() -> None:
    options, _ = expand_command(Options(model="qwen3-8b", command="vllm serve /models/mine"))
    assert options.model == "qwen3-8b"
    with pytest.raises(UsageError, match="names no model"):
        expand_command(Options(model="", command="vllm serve --port 1"))


def test_a_version_beside_the_command_is_kept() -> None:
    options, _ = expand_command(Options(model="", engine="vllm==0.33.0", command="vllm serve a"))
    assert options.engine == "vllm==0.33.0"
    with pytest.raises(UsageError, match="--engine 'sglang' contradicts"):
        expand_command(Options(model="", engine="sglang", command="vllm serve a"))


def test_what_is_typed_contradicts_a_command_though_it_is_the_built_in_value() -> None:
    sglang = "python -m sglang.launch_server --model-path a --tp 4"
    for typed in ({"engine": "vllm"}, {"tp": 1}):
        with pytest.raises(UsageError, match="contradicts --command"):
            expand_command(Options(model="", command=sglang, **typed))
    image = "docker run vllm/vllm-openai:v0.8.5 --model a"
    assert expand_command(Options(model="", command=image))[0].engine == "vllm==0.8.5"
    assert expand_command(Options(model="", engine="vllm", command=image))[0].engine == (
        "vllm==0.8.5")
    options, notes = expand_command(Options(model="", engine="vllm==0.33.0", command=image))
    assert options.engine == "vllm==0.33.0"
    assert "though the server is of version 0.8.5" in notes[0]


def test_sglang_command_builds_its_tree() -> None:
    request = build_request(Options(
        model="", acceptance_length=3.0,
        command="python -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct "
        "--speculative-algorithm EAGLE3",
    ))
    made = request.system.setup
    assert (made.method, made.k, made.tree_topk, made.tree_tokens) == ("eagle3", 5, 4, 8)
    assert request.system.seqs_limit == 48


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_tree_asked_for_is_judged(engine: str) -> None:
    found = tune("qwen3-8b", tree="4,16", engine=engine, concurrency="1,64")
    best = found.answers[0].best
    assert best is not None and best.tree == (4, 16)
    assert found.verdict is not None and found.verdict.method == best.method
    assert found.verdict.decision == "on" and found.verdict.k == best.k


def test_bad_words_for_work_are_refused_not_skipped() -> None:
    for work, methods in (("nosuch", None), ("", None), ("nosuch", "none")):
        with pytest.raises(UsageError, match="works: chat"):
            tune("qwen3-8b", concurrency=1, work=work, methods=methods)


# --- what is compared ---------------------------------------------------------------------------


def test_default_methods_are_those_with_a_drafter_and_acceptance() -> None:
    found = setup("llama-3.1-8b")
    assert [s.setup.method for s in found.systems] == ["eagle", "eagle3", "ngram"]
    assert dict(found.skipped)["suffix"].startswith("no acceptance of it is known")
    assert [s.setup.method for s in setup("llama-3.1-8b", method="ngram").systems] == ["ngram"]
    named = setup("llama-3.1-8b", methods="eagle-3,ngram,mtp")
    assert [s.setup.method for s in named.systems] == ["eagle3", "ngram"]
    assert "ships no MTP head" in dict(named.skipped)["mtp"]
    unknown = setup("mistral-7b-v0.3")
    assert unknown.systems == () and unknown.unknown is not None
    newer = setup("llama-3.1-8b", methods="medusa,eagle3", engine="vllm==0.33.0")
    assert "any more" in dict(newer.skipped)["medusa"]


def test_a_memory_limit_is_the_share_that_the_engine_may_use() -> None:
    found = setup(weights="fp8", max_memory=80.0)
    assert found.plain.memory.usable_bytes == pytest.approx(80e9)
    free = setup(weights="fp8").plain.memory
    assert found.plain.memory.pool_bytes < free.pool_bytes


def test_ranges_and_mixes() -> None:
    found = setup(method="mtp", acceptance_range="2.2,3.6", k=3)
    assert len(found.scenarios) == 5
    assert found.spreads == {"mtp": (2.2, 3.6)}
    mixed = setup("llama-3.1-8b", methods="eagle3", mix="chat=0.5,code=0.5@3.4")
    assert [s.name for s in mixed.scenarios] == ["chat", "code"]
    code = mixed.scenarios[1].acceptance["eagle3"]
    assert code.expected_tokens(3) == pytest.approx(3.4)
    assert mixed.workload.input_len == (1024 + 2048) // 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acceptance_range": "3"}, "two acceptance lengths"),
        ({"acceptance_range": "3,2", "method": "mtp"}, "the lower first"),
        ({"acceptance_range": "0.4,0.8", "method": "mtp"}, "at least 1"),
        ({"acceptance_range": "2,9", "method": "mtp", "k": 3}, "acceptance length"),
        ({"mix": "chat=0.5"}, "add up to"),
        ({"mix": "chat=0.5,code=0.4"}, "add up to"),
        ({"mix": "chat:0.5,code:0.5"}, "WORKLOAD=SHARE"),
        ({"mix": "chat=0.5,poetry=0.5"}, "workload 'poetry' is not known"),
        ({"mix": "chat=0.5,code=0.5", "acceptance_range": "2,3"}, "give one"),
        ({"methods": "mtp", "method": "mtp"}, "contradict"),
        ({"methods": "warp"}, "is not known"),
        ({"methods": ","}, "name methods"),
        ({"methods": "mtp,ngram", "acceptance_length": 2.0}, "is for one method"),
        ({"max_memory": 500.0}, "so give from"),
        ({"max_memory": 90.0, "gpu_memory_utilization": 0.9}, "give one of them"),
        ({"methods": "early-exit"}, "none of --methods can run"),
    ],
)
def test_misuse_is_said_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecSimError, match=words):
        setup(**given)

"""What to type: commands that start what was predicted, and refusals by the engine's rules."""

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.errors import UsageError
from specsim.latency.engine import asked_version
from specsim.latency.engine_profile import version_key
from specsim.options.groups import DeploymentOptions as Options
from specsim.planning.flags import adaptive_config, graphed_requests, ready_flags

QWEN, LLAMA = "qwen3.6-27b", "llama-3.1-8b"


def system(model: str, **options: Any) -> System:
    return build_request(Options(model=model, **options)).system


def config_of(args: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(args[args.index("--speculative-config") + 1])
    return found


def test_vllm_command_states_every_limit() -> None:
    flags = ready_flags(system(QWEN, weights="fp8", k=3, tp=2, kv="fp8", max_num_seqs=64,
                               gpu_memory_utilization=0.9), model="Qwen/Qwen3.6-27B-FP8")
    assert flags.args[:3] == ["vllm", "serve", "Qwen/Qwen3.6-27B-FP8"]
    assert shlex.split(flags.command) == flags.args
    for flag, value in (("--tensor-parallel-size", "2"), ("--kv-cache-dtype", "fp8"),
                        ("--max-num-seqs", "64"), ("--max-num-batched-tokens", "8192"),
                        ("--gpu-memory-utilization", "0.9")):
        assert flags.args[flags.args.index(flag) + 1] == value
    assert config_of(flags.args) == {"method": "mtp", "num_speculative_tokens": 3}
    assert not any("no repository" in text for text in flags.warnings)


@pytest.mark.parametrize(
    "options",
    [
        {"model": QWEN, "weights": "fp8", "k": 3, "max_num_seqs": 64},
        {"model": LLAMA, "tp": 2, "kv": "fp8"},
        {"model": LLAMA, "engine": "sglang"},
        {"model": LLAMA, "engine": "sglang", "method": "eagle3", "k": 5, "tree": "4,8",
         "acceptance_length": 3.0},
        {"model": LLAMA, "method": "ngram", "k": 4, "acceptance_length": 2.0},
        {"model": LLAMA, "engine": "sglang", "method": "ngram", "k": 4, "acceptance_length": 2.0},
        {"model": QWEN, "method": "dspark", "k": 7, "acceptance_length": 3.0, "max_num_seqs": 80},
        {"model": "deepseek-v3", "attention_dp": 8, "ep": 8, "k": 2, "acceptance_length": 2.0,
         "max_num_seqs": 256},
        {"model": "deepseek-v3", "attention_dp": 8, "ep": 8, "k": 2, "acceptance_length": 2.0,
         "engine": "sglang"},
        {"model": "qwen3-8b", "method": "none", "weights": "fp8"},
        {"model": "qwen3-8b", "draft": "P-EAGLE-Qwen3-8B", "k": 4, "acceptance_length": 2.0,
         "max_num_seqs": 100},
        {"model": LLAMA, "engine": "trtllm", "method": "none", "max_num_seqs": 64,
         "gpu_memory_utilization": 0.8, "max_num_batched_tokens": 4096},
        {"model": LLAMA, "engine": "trtllm", "method": "eagle3", "k": 3, "tp": 2, "kv": "fp8",
         "acceptance_length": 2.5},
        {"model": LLAMA, "engine": "trtllm", "method": "ngram", "k": 4, "acceptance_length": 2.0,
         "cuda_graph_max": 0, "async_scheduling": "off"},
        {"model": LLAMA, "engine": "trtllm", "draft": "llama-3.2-1b", "k": 4,
         "acceptance_length": 2.0, "cuda_graph_max": 96},
        {"model": "deepseek-v3", "attention_dp": 8, "ep": 8, "k": 2, "acceptance_length": 2.0,
         "engine": "trtllm", "max_num_seqs": 256, "async_scheduling": "on"},
        {"model": LLAMA, "engine": "trtllm", "method": "none", "pp": 2, "tp": 2},
    ],
    ids=lambda o: f"{o['model']}-{o.get('engine', 'vllm')}-{o.get('method', '')}",
)
def test_a_command_read_back_is_the_same_deployment(options: dict[str, Any]) -> None:
    first = build_request(Options(**options)).system
    flags = ready_flags(first)
    accepted = {name: value for name, value in options.items() if name.startswith("acceptance")}
    again = build_request(Options(model="", command=flags.command, **accepted)).system
    if first.setup.method == "none":
        again = again.plain()
    assert (again.spec.name, again.spec.weights) == (first.spec.name, first.spec.weights)
    assert again.parallel == first.parallel
    assert again.kv_dtype == first.kv_dtype
    assert again.setup == first.setup
    assert (again.seqs_limit, again.batched_tokens) == (first.seqs_limit, first.batched_tokens)
    launched = replace(again.engine, launch_flags=first.engine.launch_flags)
    assert launched == first.engine
    again, load = again.with_(acceptance=first.acceptance), Workload(1024, 256)
    assert [closed_loop(again, load, 8).tpot_s, again.memory.pool_bytes] == [
        closed_loop(first, load, 8).tpot_s, first.memory.pool_bytes]


def test_table_by_batch_size() -> None:
    side = system(QWEN, k=4, acceptance_length=3.0)
    flags = ready_flags(side, table=((1, 8, 4), (9, 32, 2), (33, 256, 0)))
    assert config_of(flags.args)["num_speculative_tokens_per_batch_size"] == [
        [1, 8, 4], [9, 32, 2], [33, 256, 0]
    ]
    assert any("older runner" in text for text in flags.warnings)  # recurrent layers
    newer = ready_flags(side, table=((1, 8, 4),), version="0.33.0")
    assert not any("older runner" in text for text in newer.warnings)
    with pytest.raises(UsageError, match=r"k 5 from batch 1.*at most 4"):
        ready_flags(side, table=((1, 8, 5),))
    with pytest.raises(UsageError, match="this one starts at 9"):
        ready_flags(side, table=((1, 8, 4), (10, 20, 2)))
    with pytest.raises(UsageError, match="this one starts at 1"):
        ready_flags(side, table=((2, 8, 4),))
    with pytest.raises(UsageError, match=r"not in vLLM 0\.10\.1"):
        ready_flags(side, table=((1, 8, 4),), version="0.10.1")
    with pytest.raises(UsageError, match="SGLang takes no table"):
        lookup = system(LLAMA, engine="sglang", method="ngram", k=3, acceptance_length=2.0)
        ready_flags(lookup, table=((1, 8, 3),))
    with pytest.raises(UsageError, match="needs a speculative method"):
        ready_flags(side.plain(), table=((1, 8, 0),))


def test_table_as_sglang_reads_it() -> None:
    """One candidate from each lowest batch on, in a file (sglang 0.5.23, adaptive_spec_params)."""
    table = ((1, 16, 4), (17, 48, 2), (49, 128, 0))
    flags = ready_flags(
        system(LLAMA, engine="sglang", method="eagle3", k=4, acceptance_length=3.0), table=table
    )
    assert flags.args[-3:] == [
        "--speculative-adaptive", "--speculative-adaptive-config", "adaptive.json"
    ]
    assert any("save the table as adaptive.json" in text for text in flags.warnings)
    assert adaptive_config(table) == {
        "1": {"candidate_steps": [4]}, "17": {"candidate_steps": [2]},
        "49": {"candidate_steps": [0]},
    }


def test_medusa_is_gone_in_newer_versions() -> None:
    side = system("vicuna-7b-v1.3", method="medusa", acceptance_length=2.0)
    assert config_of(ready_flags(side).args)["method"] == "medusa"
    with pytest.raises(UsageError, match=r"0\.33\.0 has no method 'medusa' any more"):
        ready_flags(side, version="0.33.0")


def test_a_head_that_nobody_published_is_refused() -> None:
    side = system("qwen3-1.7b", method="eagle3", acceptance_length=2.0)
    with pytest.raises(UsageError, match="shape was assumed"):
        ready_flags(side)
    named = ready_flags(side, draft="me/my-eagle3")
    assert config_of(named.args)["model"] == "me/my-eagle3"
    with pytest.raises(UsageError, match="ships no MTP head"):
        bare = system(LLAMA)
        ready_flags(replace(bare, setup=replace(bare.setup, method="mtp", drafter=None)))


def test_methods_and_shapes_that_an_engine_does_not_run() -> None:
    early = system(LLAMA, method="early-exit", acceptance_length=2.0, engine="transformers")
    with pytest.raises(UsageError, match="no method 'early-exit'"):
        ready_flags(early)
    tree = system(LLAMA, engine="sglang", method="eagle3", k=5, tree="4,8", acceptance_length=3.0)
    on_vllm = replace(tree, engine=system(LLAMA).engine)
    with pytest.raises(UsageError, match="vLLM drafts chains"):
        ready_flags(on_vllm)
    with pytest.raises(UsageError, match="no command line is written for the engine"):
        ready_flags(system(LLAMA, engine="transformers", method="none"))
    mtp = system("deepseek-v3", tp=8, k=2, acceptance_length=2.0)
    two = replace(mtp, setup=replace(mtp.setup, k=3, drafter=replace(mtp.setup.drafter,
                                                                     n_predict=2)))
    with pytest.raises(UsageError, match="a multiple of the 2 MTP layers"):
        ready_flags(two)


def test_graphs_end_at_512_tokens() -> None:
    side = system(QWEN, k=3, acceptance_length=3.0)
    assert graphed_requests(side) == 128
    assert graphed_requests(system(QWEN, k=7, acceptance_length=3.0)) == 64
    assert any("above 128 running requests" in text for text in ready_flags(side).warnings)
    few = ready_flags(replace(side, max_num_seqs=128))
    assert not any("CUDA graphs" in text for text in few.warnings)


def test_sglang_writes_out_its_48_requests() -> None:
    flags = ready_flags(system(LLAMA, engine="sglang", k=3))
    assert flags.args[flags.args.index("--max-running-requests") + 1] == "48"
    assert any("runs 48 requests at a time" in text for text in flags.warnings)
    assert flags.args[flags.args.index("--speculative-num-draft-tokens") + 1] == "4"
    given = ready_flags(system(LLAMA, engine="sglang", k=3, max_num_seqs=200))
    assert not any("48" in text for text in given.warnings)


def test_sglang_says_where_states_limit_the_batch() -> None:
    note = "SGLang runs 25 requests at a time here: each holds 9 slots of recurrent state"
    qwen = system("qwen3.6-27b", engine="sglang", method="mtp", k=3, acceptance_length=3.0)
    assert any(note in warning for warning in ready_flags(qwen).warnings)
    few = ready_flags(qwen.with_(max_num_seqs=25))
    assert not any("recurrent state" in warning for warning in few.warnings)


def test_older_vllm_sets_tokens_aside_for_block_drafters() -> None:
    side = system(QWEN, method="dspark", k=7, acceptance_length=3.0)
    old, new = ready_flags(side, version="0.25.1"), ready_flags(side, version="0.33.0")
    # 6 slots x 341 sequences take a quarter of 8192 tokens.
    assert old.args[old.args.index("--max-num-seqs") + 1] == "341"
    assert new.args[new.args.index("--max-num-seqs") + 1] == "1024"
    with pytest.raises(UsageError, match="leaves none of 8192"):
        ready_flags(replace(side, max_num_seqs=2000), version="0.25.1")
    with pytest.raises(UsageError, match="below max_num_seqs"):
        ready_flags(replace(side, max_num_seqs=9000), version="0.33.0")


def test_sixteen_bit_checkpoints_are_converted_while_loading() -> None:
    flags = ready_flags(system("gemma-4-31b", weights="fp8", method="none"))
    assert flags.args[flags.args.index("--quantization") + 1] == "fp8"
    four = ready_flags(system(LLAMA, weights="int4", method="none"))
    assert "--quantization" not in four.args
    assert any("no checkpoint" in text for text in four.warnings)


@pytest.mark.parametrize(
    ("text", "version"),
    [("vllm", None), ("vllm==0.33.0", "0.33.0"), ("sglang 0.5", "0.5"), ("vllm@0.10.1", "0.10.1")],
)
def test_versions(text: str, version: str | None) -> None:
    assert asked_version(text) == version
    assert version_key("0.25.1") < version_key("0.33.0rc1+cpu") == (0, 33, 0)


@pytest.mark.parametrize(("engine", "written_for", "warned"), [
    ("vllm", "vLLM 0.25.1", ""),
    ("vllm==0.20", "vLLM 0.20", ""),
    ("vllm==0.33.0", "vLLM 0.33.0", ""),
    ("vllm==0.5.4", "vLLM 0.5.4", "older than all that is described"),
    ("vllm==0.99", "vLLM 0.99", "were read up to 0.33"),
    ("sglang", "SGLang 0.5.23", ""),
    ("sglang==0.3", "SGLang 0.3", "older than all"),
    ("sglang==0.7", "SGLang 0.7", "were read up to 0.5.23"),
])
def test_the_version_that_a_command_is_of_is_said(
    engine: str, written_for: str, warned: str
) -> None:
    flags = ready_flags(system(LLAMA, engine=engine, method="none"), version=asked_version(engine))
    assert flags.to_dict()["written_for"] == written_for
    said = [text for text in flags.warnings if "older than" in text or "were read" in text]
    assert [warned in text for text in said] == [True] * bool(warned)


@pytest.mark.parametrize(("model", "gpu", "engine", "said"), [
    (LLAMA, "mi300x", "trtllm", "TensorRT-LLM runs on devices of NVIDIA alone"),
    (LLAMA, "mi300x", "vllm", ""),
    ("deepseek-v3.2", "a100", "vllm", "no kernel for the sparse attention of DeepSeek-V3.2"),
    ("deepseek-v3.2", "h200", "vllm", ""),
    ("deepseek-v3", "a100", "vllm", ""),
])
def test_no_command_where_the_engine_does_not_run(
    model: str, gpu: str, engine: str, said: str
) -> None:
    request = build_request(Options(
        model=model, gpu=gpu, engine=engine, method="none", tp=16 if gpu == "a100" else 8))
    asked, warned = request.system, [text for text in request.warnings if "be served" in text]
    if not said:
        assert ready_flags(asked).command and not warned
        return
    assert len(warned) == 1 and said in warned[0]
    with pytest.raises(UsageError, match=said):
        ready_flags(asked)


def test_graphs_too_small_for_any_step_are_said() -> None:
    asked = system(QWEN, k=3, cuda_graph_max=2)
    said = "no decode step fits the CUDA graphs, which end at 2 tokens: a sequence has 4"
    assert said in ready_flags(asked).warnings

"""Whole command lines of servers: what is read, left out, not modelled or refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import ServerCommand


def test_vllm_serve_as_people_paste_it() -> None:
    found = parse_command(
        "CUDA_VISIBLE_DEVICES=0,1 nohup vllm serve Qwen/Qwen3.6-27B-FP8 --port 8000 -tp 2 \\\n"
        "  --max_num_seqs=64 --kv-cache-dtype fp8_e4m3 --max-num-batched-tokens 8k \\\n"
        "  --gpu-memory-utilization 0.9 --enforce-eager --trust-remote-code --frobnicate 3 "
        """--speculative-config '{"method":"mtp","num_speculative_tokens":3}' > log 2>&1 &"""
    )
    assert (found.engine, found.model) == ("vllm", "Qwen/Qwen3.6-27B-FP8")
    assert found.values == {
        "engine": "vllm", "tp": 2, "max_num_seqs": 64, "kv": "fp8",
        "max_num_batched_tokens": 8000, "gpu_memory_utilization": 0.9, "cuda_graph_max": 0,
        "speculative_config": '{"method":"mtp","num_speculative_tokens":3}',
    }
    assert found.ignored == ("--port", "--trust-remote-code")
    assert found.not_modelled == ()
    assert found.unknown == ("--frobnicate",)


def test_containers_and_modules() -> None:
    image = parse_command(
        "docker run --gpus all -v ~/x:/x -p 8000:8000 vllm/vllm-openai:v0.25.1 "
        "--model google/gemma-4-31B-it --max-num-seqs 48"
    )
    assert (image.model, image.values["engine"]) == ("google/gemma-4-31B-it", "vllm==0.25.1")
    module = parse_command("python -m vllm.entrypoints.openai.api_server --model a/b -q awq")
    assert (module.model, module.values["weights"]) == ("a/b", "int4")
    inside = parse_command(
        "docker run lmsysorg/sglang:v0.5.23-cu130 python3 -m sglang.launch_server --model-path a/b"
    )
    assert inside.values["engine"] == "sglang==0.5.23"


def test_speculation_field_by_field() -> None:
    found = parse_command(
        "vllm serve m --speculative-config.method eagle3 --speculative-config.model x/y "
        "--speculative-config.num_speculative_tokens 4"
    )
    assert json.loads(found.values["speculative_config"]) == {
        "method": "eagle3", "model": "x/y", "num_speculative_tokens": 4
    }
    with pytest.raises(UsageError, match="keep one of the two"):
        parse_command("vllm serve m --speculative-config.method mtp --speculative-config '{}'")


def test_data_parallel_counts() -> None:
    found = parse_command("vllm serve m -dp 8 --enable-expert-parallel --max-num-seqs 32").values
    assert (found["attention_dp"], found["ep"], found["max_num_seqs"]) == (8, 8, 256)
    found = parse_command(
        "python -m sglang.launch_server --model m --tp 8 --dp 4 --enable-dp-attention --ep 8"
    ).values
    assert (found["tp"], found["attention_dp"], found["ep"]) == (2, 4, 8)
    assert "routing" not in found
    for words in ("vllm serve m --enable-eplb", "sglang serve --model m --enable-eplb"):
        evened = parse_command(words)
        assert evened.values["routing"] == "eplb" and not evened.not_modelled
    alone = parse_command("python -m sglang.launch_server --model m --dp 2")
    assert "attention_dp" not in alone.values
    assert "2 replicas" in alone.notes[0]
    with pytest.raises(UsageError, match="must divide"):
        parse_command("sglang serve --model m --tp 8 --dp 3 --enable-dp-attention")


SGLANG = "python -m sglang.launch_server --model-path {} --speculative-algorithm {} {}"


@pytest.mark.parametrize(
    ("model", "algorithm", "rest", "want"),
    [
        # SGLang's own choice where no number is given: a tree for Llama, a chain for others.
        ("meta-llama/Llama-3.1-8B", "EAGLE3", "--speculative-draft-model-path x/y",
         {"method": "eagle3", "draft": "x/y", "k": 5, "tree": "4,8"}),
        ("Qwen/Qwen3-8B", "EAGLE3", "", {"method": "eagle3", "k": 3}),
        ("deepseek-ai/DeepSeek-R1", "EAGLE",
         "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
         {"method": "mtp", "k": 2}),
        ("a/b", "NEXTN", "--speculative-num-steps 1", {"method": "mtp", "k": 1}),
        ("a/b", "NGRAM", "--speculative-num-draft-tokens 5", {"method": "ngram", "k": 4}),
        ("a/b", "STANDALONE", "--speculative-draft-model x",
         {"method": "draft-model", "draft": "x", "k": 3}),
    ],
)
def test_sglang_speculation(
    model: str, algorithm: str, rest: str, want: dict[str, object]
) -> None:
    values = dict(parse_command(SGLANG.format(model, algorithm, rest)).values)
    assert values.pop("engine") == "sglang"
    assert values == want


def test_adaptive_points_to_the_simulation() -> None:
    found = parse_command(SGLANG.format("a/b", "EAGLE3", "--speculative-adaptive"))
    assert "specsim simulate --adaptive" in found.not_modelled[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llama-server -m x", "starts no server"),
        ("", "starts no server"),
        ("vllm serve 'm", "broken quotes"),
        ("vllm serve m --max-num-seqs many", "whole number from 1"),
        ("vllm serve m --max-num-seqs 0", "whole number from 1"),
        ("vllm serve m --gpu-memory-utilization 90", "at most 1"),
        ("vllm serve m --max-num-seqs", "without a value"),
        ("x" * 200_000, "longer than"),
        ("vllm serve " + "m " * 3000, "words"),
        ("sglang serve --model m --speculative-algorithm UNO", "not modelled; known"),
        ("sglang serve --model m --speculative-algorithm EAGLE3 --speculative-eagle-topk 4",
         "without --speculative-num-steps"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, words: str) -> None:
    with pytest.raises((FormatError, UsageError), match=words):
        parse_command(text)


def test_near_misses_are_named() -> None:
    found = parse_command("vllm serve m --max-nun-seqs 3").unknown
    assert "did you mean --max-num-seqs" in found[0]


def test_values_that_are_the_default_are_not_reported() -> None:
    found = parse_command("vllm serve m --block-size 16 --performance-mode balanced")
    assert found.not_modelled == ()
    assert "--block-size 32" in parse_command("vllm serve m --block-size 32").not_modelled


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from([
    "vllm", "serve", "sglang.launch_server", "-m", "--model", "--tp", "-dp", "--max-num-seqs", "8",
    "--speculative-config", "{}", "--speculative-config.method", "mtp", "=", "--", "-", "|", "''",
    "--speculative-algorithm", "EAGLE", "vllm/vllm-openai:v1", "\\", "'",
    "--gpu-memory-utilization",
])))
def test_any_words_give_a_command_or_an_error(words: list[str]) -> None:
    try:
        found = parse_command(" ".join(words))
    except SpecSimError:
        return
    assert isinstance(found, ServerCommand)
    assert found.engine in ("vllm", "sglang")


def speculation(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(parse_command(text).values["speculative_config"])
    return found


OLD = "python -m vllm.entrypoints.openai.api_server --model a/b "


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        ("--speculative-model=[ngram] --num-speculative-tokens 3 --ngram-prompt-lookup-max 4",
         {"model": "[ngram]", "num_speculative_tokens": 3, "prompt_lookup_max": 4}),
        ("--speculative_model x/qwen-0.5b --num_speculative_tokens=5 -spec-draft-tp 1",
         {"model": "x/qwen-0.5b", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 1}),
        ("--speculative-model x/EAGLE-LLaMA3 --num-speculative-tokens 2 "
         "--speculative-disable-mqa-scorer --speculative-disable-by-batch-size 8",
         {"model": "x/EAGLE-LLaMA3", "num_speculative_tokens": 2, "disable_mqa_scorer": True,
          "disable_by_batch_size": 8}),
        ("--num-speculative-tokens 1", {"method": "mtp", "num_speculative_tokens": 1}),
        ("--spec-method suffix --spec-tokens 8", {"method": "suffix", "num_speculative_tokens": 8}),
    ],
)
def test_flags_that_are_one_field_of_the_speculative_json(
    flags: str, want: dict[str, object]
) -> None:
    assert speculation(OLD + flags) == want


def test_flags_of_a_lookup_alone_start_none() -> None:
    assert "speculative_config" not in parse_command(OLD + "--ngram-prompt-lookup-max 4").values


@pytest.mark.parametrize(
    ("draft", "algorithm", "want"),
    [
        ("lmsys/DeepSeek-V3-NextN", "EAGLE", ("mtp", None)),
        ("/models/GLM-4.5-nextn/", "NEXTN", ("mtp", None)),
        ("lmsys/sglang-EAGLE-llama", "EAGLE", ("eagle", "lmsys/sglang-EAGLE-llama")),
    ],
)
def test_a_nextn_folder_is_the_head_of_the_target(
    draft: str, algorithm: str, want: tuple[str, str | None]
) -> None:
    values = parse_command(
        SGLANG.format("a/b", algorithm, f"--speculative-draft-model-path {draft}")
    ).values
    assert (values["method"], values.get("draft")) == want


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc_per_node=4 -m sglang.launch_server --model-path a/b --tp 4",
        "torchrun --nnodes 1 /opt/sglang/launch_server.py --model-path a/b --tp 4",
        "MODEL=a/b; vllm serve $MODEL --tensor-parallel-size 4",
        "python3 /opt/vllm/entrypoints/openai/api_server.py --model a/b -tp 4",
        "docker run -it vllm/vllm-openai:v0.25.1 vllm serve a/b -tp 4",
        "docker run --entrypoint vllm vllm/vllm-openai:v0.25.1 serve a/b -tp 4",
        "docker run --rm -e NAME=a/b lmsysorg/sglang:v0.5.23 bash -lc "
        "'cd /x && python3 -m sglang.launch_server --model ${NAME} --tp 4'",
        "srun uv run vllm serve a/b -tp 4 || exit 1",
    ],
)
def test_whatever_starts_the_server(text: str) -> None:
    found = parse_command(text)
    assert (found.model, found.values["tp"]) == ("a/b", 4)
    assert ("==" in found.values["engine"]) == (":v" in text)


def test_environment_variables_that_change_behaviour_are_named() -> None:
    found = parse_command(
        "export VLLM_USE_V1=0; VLLM_LOGGING_LEVEL=DEBUG CUDA_VISIBLE_DEVICES=0 "
        "VLLM_ATTENTION_BACKEND=FLASHINFER VLLM_MADE_UP=1 vllm serve m"
    )
    assert found.not_modelled == ("VLLM_USE_V1=0", "VLLM_ATTENTION_BACKEND=FLASHINFER")
    assert (found.ignored, found.unknown) == (("VLLM_LOGGING_LEVEL",), ("VLLM_MADE_UP",))
    docker = parse_command(
        "docker run --env=SGLANG_SIMULATE_ACC_LEN=3 -e VLLM_USE_V1=1 lmsysorg/sglang:v0.5.23 "
        "python3 -m sglang.launch_server --model m"
    )
    assert docker.not_modelled == ("SGLANG_SIMULATE_ACC_LEN=3",)
    assert parse_command("VLLM_USE_V1=1 vllm serve m").not_modelled == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve m --speculative-frob 3", "--speculative-frob.*give --method with --k"),
        ("sglang serve --model m --speculative-frob x", "--speculative-frob.*give --method"),
        (OLD + "--speculative-model x --num-speculative-tokens two",
         "--num-speculative-tokens 'two'; it must be a whole number"),
        (OLD + "--speculative-model x --speculative-config '{}'", "keep the first"),
        ("ollama serve", "no server known here: 'ollama serve'; name the model as MODEL"),
    ],
)
def test_speculation_is_never_guessed(text: str, words: str) -> None:
    with pytest.raises((UsageError, FormatError), match=words):
        parse_command(text)


def test_scripts_and_lines_as_a_shell_reads_them() -> None:
    script = parse_command(
        "#!/bin/bash\n# don't forget: vllm serve old/model -tp 8\nTP=2\n"
        "pkill -f vllm.entrypoints; sleep 1\n"
        "vllm serve a/b \\\n  --tensor-parallel-size $TP \\ \n  --max-num-seqs 64  # small\n"
        "curl http://localhost:8000/v1/models?a&b\n"
    )
    assert (script.model, script.unknown) == ("a/b", ())
    assert script.values == {"engine": "vllm", "tp": 2, "max_num_seqs": 64}
    joined = parse_command("vllm serve a/b; sleep 5")
    assert joined.model == "a/b"
    bare = parse_command("vllm serve a/b\n--tensor-parallel-size\n4\n--max-num-seqs 8")
    assert bare.values == {"engine": "vllm", "tp": 4, "max_num_seqs": 8}
    for mark in ("`", "^"):
        typed = parse_command(f"vllm serve a/b {mark}\n  -tp 2 {mark}\r\n  --max-num-seqs 8 >log")
        assert (typed.values["tp"], typed.values["max_num_seqs"], typed.unknown) == (2, 8, ())
    assert parse_command("# vllm serve a/b -tp 4").values["tp"] == 4  # root's prompt


def test_a_second_server_is_no_part_of_the_first() -> None:
    with pytest.raises(UsageError, match=r"second server, 'vllm c/d -tp 4'; keep the one"):
        parse_command("vllm serve a/b -tp 2\nvllm serve c/d -tp 4")


def test_typeset_dashes_and_quotes() -> None:
    found = parse_command("vllm serve a/b –tensor-parallel-size 4 —sc ‘{“method”: “mtp”}’")
    assert found.values["tp"] == 4
    assert json.loads(found.values["speculative_config"]) == {"method": "mtp"}


def test_flags_of_several_words_hold_no_model() -> None:
    found = parse_command("vllm serve --model a/b --served-model-name x y z -tp 2")
    assert (found.model, found.values["tp"], found.unknown) == ("a/b", 2, ())
    sizes = parse_command("vllm serve --cudagraph-capture-sizes 1 2 4 --model a/b")
    assert (sizes.model, sizes.values["cuda_graph_max"]) == ("a/b", 4)
    with pytest.raises(UsageError, match="a batch of CUDA graphs 'stray'"):
        parse_command("vllm serve a/b --cudagraph-capture-sizes 1 2 4 stray")
    assert parse_command("vllm serve a/b tensor-parallel-size").unknown == ("tensor-parallel-size",)


def test_beginnings_of_flags_as_argparse_takes_them() -> None:
    vllm = parse_command("vllm serve m --tensor-parallel 2 --gpu-memory-util 0.8").values
    assert (vllm["tp"], vllm["gpu_memory_utilization"]) == (2, 0.8)
    sglang = parse_command(
        "python -m sglang.launch_server --model meta-llama/Llama-2-7b-chat-hf --mem-fraction 0.6 "
        "--speculative-algo EAGLE --speculative-draft lmsys/sglang-EAGLE-llama2-chat-7B "
        "--speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64"
    ).values
    assert (sglang["method"], sglang["draft"], sglang["gpu_memory_utilization"]) == (
        "eagle", "lmsys/sglang-EAGLE-llama2-chat-7B", 0.6
    )
    assert parse_command("vllm serve m --max-num 3").unknown[0][:9] == ("--max-num")  # of several


def test_parts_of_a_thousand() -> None:
    found = parse_command("vllm serve m --max-num-batched-tokens 25.6k").values
    assert found["max_num_batched_tokens"] == 25_600
    with pytest.raises(UsageError, match="whole number"):
        parse_command("vllm serve m --max-num-batched-tokens 25.6K")

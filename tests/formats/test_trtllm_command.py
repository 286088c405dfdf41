"""`trtllm-serve` with its YAML: what is read, left out, not modelled or refused."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.api.deployment import build_request
from specsim.errors import CapacityError, FormatError, SpecSimError, UsageError
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import ServerCommand
from specsim.options.groups import DeploymentOptions as Options

R1 = """#!/bin/bash
EXTRA=/tmp/extra.yml
cat > ${EXTRA} <<'EOF'
enable_attention_dp: true
kv_cache_config: {free_gpu_memory_fraction: 0.8, dtype: fp8}
cuda_graph_config:
  enable_padding: true
  max_batch_size: 32
moe_config: {backend: TRTLLM}
print_iter_log: true
speculative_config:
  decoding_type: MTP
  num_nextn_predict_layers: 3
frobnicate: 3
EOF
mpirun -n 8 trtllm-llmapi-launch trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 \\
  --max_batch_size 32 --max_num_tokens 4096 --port 8000 --extra_llm_api_options ${EXTRA}
"""


def read(words: str, file: object = None) -> ServerCommand:
    before = "" if file is None else f"echo '{json.dumps(file)}' > x.yaml && "
    after = "" if file is None else " --extra_llm_api_options x.yaml"
    return parse_command(f"{before}trtllm-serve {words}{after}")


def test_a_script_that_writes_its_file() -> None:
    found = parse_command(R1)
    assert (found.engine, found.model) == ("trtllm", "deepseek-ai/DeepSeek-R1")
    assert found.values == {
        "engine": "trtllm", "attention_dp": 8, "ep": 8, "max_num_seqs": 256,
        "max_num_batched_tokens": 4096, "gpu_memory_utilization": 0.8, "kv": "fp8",
        "cuda_graph_max": 32, "method": "mtp", "k": 3,
    }
    assert found.not_modelled == ("moe_config.backend TRTLLM",)
    assert found.unknown == ("frobnicate",)
    assert {"--port", "print_iter_log"} <= set(found.ignored)


def test_a_file_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"max_batch_size": 16, "cuda_graph_config": None}))
    found = parse_command(
        "docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.0 trtllm-serve serve m --tp_size 2 "
        f"--max_batch_size 64 --config {file}")
    assert found.values == {
        "engine": "trtllm==1.2.0", "tp": 2, "max_num_seqs": 16, "cuda_graph_max": 0}
    assert found.notes == ("the file's max_batch_size 16 is taken, not 64",)
    with pytest.raises(FormatError, match="cannot be used"):
        parse_command("trtllm-serve m --config nowhere.yaml")
    with pytest.raises(FormatError, match=r"^--extra_llm_api_options x in --command is not YAML: "):
        parse_command("echo '{' > x; trtllm-serve m --config x")
    written = parse_command("echo 'max-num-seqs: 9' > ./x.yml && vllm serve m --config x.yml")
    assert written.values["max_num_seqs"] == 9


@pytest.mark.parametrize(("file", "want"), [
    ({"disable_overlap_scheduler": True}, {"async_scheduling": "off"}),
    ({"cuda_graph_config": {"batch_sizes": [1, 2, 48], "enable_padding": True}},
     {"cuda_graph_max": 48}),
    ({"use_cuda_graph": False}, {"cuda_graph_max": 0}),
    ({"pytorch_backend_config": {"enable_overlap_scheduler": True, "kv_cache_dtype": "fp8"}},
     {"async_scheduling": "on", "kv": "fp8"}),
    ({"moe_tensor_parallel_size": 2, "tensor_parallel_size": 8}, {"tp": 8, "ep": 4}),
    ({"moe_config": {"load_balancer": {"num_slots": 288}}}, {"routing": "eplb"}),
    ({"quant_config": {"quant_algo": "FP8_BLOCK_SCALES"}}, {"weights": "fp8_block"}),
    ({"speculative_config": {"decoding_type": "Eagle", "max_draft_len": 4,
                             "speculative_model_dir": "a/b", "eagle3_one_model": True}},
     {"method": "eagle3", "k": 4, "draft": "a/b"}),
    ({"speculative_config": {"decoding_type": "NGram", "max_draft_len": 5,
                             "max_matching_ngram_size": 3}}, {"method": "ngram", "k": 5}),
    ({"speculative_config": {"decoding_type": "Draft_Target", "max_draft_len": 5,
                             "speculative_model": "a/b"}},
     {"method": "draft-model", "k": 5, "draft": "a/b"}),
    ({"speculative_config": {"decoding_type": "MTP", "max_draft_len": 2}},
     {"method": "mtp", "k": 2}),
    ({"speculative_config": None, "kv_cache_config": None}, {}),
])
def test_settings(file: object, want: dict[str, object]) -> None:
    found = read("m", file)
    assert found.values == {"engine": "trtllm", **want}
    assert (found.not_modelled, found.unknown) == ((), ())


@pytest.mark.parametrize(("file", "said"), [
    ({"cuda_graph_config": {"max_batch_size": 4}}, "without enable_padding"),
    ({"kv_cache_config": {"tokens_per_block": 64}}, "kv_cache_config.tokens_per_block 64"),
    ({"speculative_config": {"decoding_type": "MTP", "use_relaxed_acceptance_for_thinking": True}},
     "use_relaxed_acceptance_for_thinking True"),
    ({"speculative_config": {"decoding_type": "Eagle", "max_draft_len": 3,
                             "draft_len_schedule": {1: 3}}}, "draft_len_schedule"),
    ({"backend": "tensorrt"}, "--backend tensorrt"),
])
def test_what_changes_cost_and_is_not_modelled(file: object, said: str) -> None:
    assert any(said in text for text in read("m", file).not_modelled)


@pytest.mark.parametrize(("words", "file", "said"), [
    ("m --tp_size x", None, "tensor_parallel_size 'x'"),
    ("m", {"max_batch_size": [1, 2]}, "max_batch_size .1 2."),
    ("m", {"max_batch_size": True}, "max_batch_size 'True'; it must be a whole number from 1"),
    ("m", {"kv_cache_config": 3}, "it must be a table"),
    ("m", {"kv_cache_config": {"free_gpu_memory_fraction": 90}}, "at most 1; write 0.9"),
    ("m", {"speculative_config": "MTP"}, "a table with a decoding_type"),
    ("m", {"speculative_config": {"decoding_type": "Medusa", "max_draft_len": 3}},
     "'Medusa', which is not modelled; known: MTP"),
    ("m", {"speculative_config": {"decoding_type": "Eagle"}}, "no max_draft_len"),
    ("m", {"speculative_config": {"decoding_type": "MTP", "max_draft_len": 2,
                                  "num_nextn_predict_layers": 3}}, "give one draft length"),
    ("m", [1], "holds no table"),
    ("disaggregated -c x", None, "router of workers"),
])
def test_what_cannot_be_read_is_said(words: str, file: object, said: str) -> None:
    with pytest.raises((FormatError, UsageError), match=said):
        read(words, file)


def test_memory_is_a_share_of_what_is_free() -> None:
    """0.5 of what 16 GB of weights leave; of vLLM's 0.5 of all memory the weights are taken."""
    plans = {
        engine: build_request(Options(
            model="llama-3.1-8b", gpu="a100-80gb", engine=engine, method="none",
            gpu_memory_utilization=0.5)).system.memory
        for engine in ("trtllm", "vllm")
    }
    ours = plans["trtllm"]
    taken = ours.weight_bytes + ours.reserve_bytes
    assert ours.pool_bytes == pytest.approx(0.5 * (ours.capacity_bytes - taken))
    assert plans["vllm"].pool_bytes < 0.75 * ours.pool_bytes
    with pytest.raises(CapacityError, match=r"offers 86 GB \(100% of 86 GB\)"):
        build_request(Options(model="llama-3.3-70b", gpu="a100-80gb", engine="trtllm",
                              method="none", gpu_memory_utilization=0.5))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["MTP", "Eagle", "NGram", "fp8", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["decoding_type", "max_draft_len", "dtype", "max_batch_size", "x"]), inner),
    max_leaves=6)
KEYS = st.sampled_from([
    "speculative_config", "kv_cache_config", "cuda_graph_config", "moe_config", "quant_config",
    "max_batch_size", "tensor_parallel_size", "enable_attention_dp", "pytorch_backend_config",
    "disable_overlap_scheduler", "use_cuda_graph", "backend"]) | st.text(max_size=5)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_file_gives_a_command_or_an_error(file: dict[str, object]) -> None:
    text = f"cat > x.yaml <<EOF\n{yaml.safe_dump(file)}\nEOF\ntrtllm-serve m --config x.yaml"
    try:
        assert isinstance(parse_command(text), ServerCommand)
    except SpecSimError as error:
        assert "\n" not in str(error)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from([
    "<<EOF", "EOF", "\n", "cat > x", "echo '{}' > x", "tee y", "<<-'A'", "A", "trtllm-serve m",
    "--config x", "<<<", "vllm serve m", "'", '"', "&&", "${x}",
]), max_size=12))
def test_any_text_with_files_gives_a_command_or_an_error(words: list[str]) -> None:
    try:
        assert isinstance(parse_command(" ".join(words)), ServerCommand)
    except SpecSimError as error:
        assert "\n" not in str(error)

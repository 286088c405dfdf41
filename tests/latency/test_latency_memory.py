"""What fits: published memory figures, lookahead, windows, splits, and the smallest tp."""

from dataclasses import replace

import pytest

from specsim.errors import CapacityError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.instance import Instance
from specsim.latency.memory import MemoryPlan, plan_memory
from specsim.methods.base import SpecSetup
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_drafter, find_model, variant
from specsim.model.counts import weight_bytes
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel

H200 = load_profile("h200-sxm")
VLLM = find_engine("vllm")
NONE, ONE = SpecSetup(), Parallel()


def plan(
    spec: ModelSpec,
    setup: SpecSetup = NONE,
    parallel: Parallel = ONE,
    kv: str = "bf16",
    check: bool = False,
) -> MemoryPlan:
    return plan_memory(Instance(spec, H200, VLLM, parallel, kv, setup), check=check)


# Model notes, section 4: GB of weights with vision tower and drafter. (FP8 of the 122B model is
# 127.1 there without its block scales, 4 bytes per 16384 weights.)
@pytest.mark.parametrize(
    ("name", "method", "k", "weights", "gigabytes"),
    [
        ("qwen3.6-27b", "mtp", 3, "bf16", 55.6), ("qwen3.6-27b", "mtp", 3, "fp8", 30.9),
        ("qwen3.6-35b-a3b", "mtp", 3, "bf16", 71.9), ("qwen3.6-35b-a3b", "mtp", 3, "fp8", 37.5),
        ("gemma-4-31b", "draft-model", 4, "bf16", 63.7),
        ("gemma-4-31b", "draft-model", 4, "fp8", 34.3),
        ("qwen3.5-122b-a10b", "mtp", 2, "bf16", 250.2),
        ("qwen3.5-122b-a10b", "mtp", 2, "fp8", 127.2),
        ("nemotron-3-super", "mtp", 2, "bf16", 247.2), ("nemotron-3-super", "mtp", 2, "fp8", 127.7),
    ],
)
def test_weights_of_the_cluster_models(
    name: str, method: str, k: int, weights: str, gigabytes: float
) -> None:
    spec = variant(find_model(name), weights)
    found = plan(spec, resolve_setup(spec, VLLM, method, k))
    assert round((found.weight_bytes + found.drafter_bytes) / 1e9, 1) == gigabytes


# gpt-oss is 2880 wide, inside and out: (memory of its experts) / (their weights)
@pytest.mark.parametrize(
    ("gpu", "tp", "ratio"),
    [
        ("rtx-4090", 1, 2944 * 3072 / 2880**2),  # Marlin: multiples of 128 and 256
        ("b200", 1, 2944 * 3072 / 2880**2), ("mi300x", 1, 3072**2 / 2880**2),
        ("h100-sxm", 1, 1.0), ("h100-sxm", 4, 768 / 720),  # Triton: of 64, slice by slice
        ("a100-80gb", 8, 8 * 384 * 3072 / 2880**2),
    ],
)
def test_mxfp4_experts_are_kept_in_whole_tiles(gpu: str, tp: int, ratio: float) -> None:
    spec, profile = find_model("gpt-oss-20b"), load_profile(gpu)
    found = plan_memory(Instance(spec, profile, VLLM, Parallel(tp)))
    part = spec.layers[0].ffn
    experts = spec.n_layers * part.count(spec.hidden).routed * part.weight.bytes_per_weight
    extra = found.weight_bytes * tp - weight_bytes(spec).text
    assert extra == pytest.approx(experts * (ratio - 1), rel=1e-6, abs=1.0)
    # Others are as wide as those tiles, or are kept as they are.
    for name in ("kimi-k3", "qwen3-30b-a3b"):
        wide = Instance(find_model(name), profile, VLLM, Parallel(8))
        assert plan_memory(wide, check=False).weight_bytes == pytest.approx(
            plan_memory(replace(wide, profile=H200), check=False).weight_bytes
        )


# Model notes, section 2: KiB of cache per token
@pytest.mark.parametrize(
    ("name", "kib"),
    [("qwen3.6-27b", 64), ("qwen3.6-35b-a3b", 20), ("qwen3.5-122b-a10b", 24),
     ("nemotron-3-super", 8), ("llama-3.1-8b", 128), ("llama-3.1-70b", 320), ("glm-4.5", 368),
     ("minimax-m2", 248), ("gpt-oss-120b", 36)],
)
def test_cache_per_token(name: str, kib: int) -> None:
    assert plan(find_model(name)).kv_bytes_per_token == kib * 1024


def test_a_request_holds_whole_blocks_with_the_drafts_ahead() -> None:
    spec = find_model("qwen3-8b")
    drafter = find_drafter("EAGLE3-Qwen3-8B")
    setup = SpecSetup("eagle3", 3, drafter)
    found = plan(spec, setup)
    # 147,456 B of the target, and one drafter layer of 2 x 8 x 128 x 2 B
    assert found.kv_bytes_per_token == 147_456 + 4096
    # ceil((len + 1 + k + k) / block) blocks
    assert found.lookahead_tokens == 1 + 3 + 3
    assert found.bytes_per_request(1000) == 1008 * found.kv_bytes_per_token
    assert found.bytes_per_request(1002) == 1024 * found.kv_bytes_per_token
    lookup = plan(spec, SpecSetup("ngram", 3))
    assert lookup.lookahead_tokens == 1 + 3
    assert plan(spec).lookahead_tokens == 1
    # How many fit is what the pool holds.
    assert found.max_requests(1000) == int(found.pool_bytes / found.bytes_per_request(1000))


def test_windows_hold_no_more_than_the_request() -> None:
    # Gemma-4-31B: 80 KiB per token in full layers, 800 KiB in windows of 1024 tokens
    found = plan(find_model("gemma-4-31b"))
    assert found.kv_bytes_per_token == 80 * 1024
    assert found.windows == ((1024, 800 * 1024),)
    assert found.window_bytes_per_seq == 1024 * 800 * 1024  # 839 MB
    assert found.bytes_per_request(15) == 16 * 880 * 1024
    long = found.bytes_per_request(4095)
    assert long == 4096 * 80 * 1024 + 1024 * 800 * 1024


def test_a_model_of_windows_alone_holds_tokens_of_windows() -> None:
    # Mistral-7B-v0.1: 128 KiB per token in windows of 4096; they were 1,099,511,627,776 tokens.
    found = plan(find_model("mistral-7b-v0.1"))
    assert found.kv_bytes_per_token == 0 and found.windows == ((4096, 128 * 1024),)
    assert found.kv_tokens == int(found.pool_bytes / (128 * 1024))
    assert found.max_requests(8192) == found.kv_tokens // 4096


def test_recurrent_models_keep_a_state_per_draft() -> None:
    spec = find_model("qwen3.6-27b")
    plain, drafted = plan(spec), plan(spec, SpecSetup("mtp", 3, spec.mtp))
    assert plain.state_bytes_per_seq == pytest.approx(151.0e6 + 2.9e6, rel=1e-3)
    assert drafted.state_bytes_per_seq == 4 * plain.state_bytes_per_seq  # 0.62 GB per request
    assert drafted.max_requests(1000) < plain.max_requests(1000)


def sglang_plan(version: str, setup: SpecSetup, gpu: str = "h200-sxm") -> MemoryPlan:
    spec, engine = find_model("qwen3.6-27b"), find_engine(f"sglang=={version}")
    return plan_memory(Instance(spec, load_profile(gpu), engine, ONE, "bf16", setup))


def test_vllm_keeps_states_in_16_bits_but_where_the_checkpoint_is_asked() -> None:
    """Qwen3-Next: 36 layers of 32 heads of 128 x 128, and three inputs of 8192 channels."""
    states, window = 36 * 32 * 128 * 128, 36 * 8192 * 3 * 2
    spec, profile = find_model("qwen3-next-80b-a3b"), load_profile("b200")

    def held(spec: ModelSpec, engine: str) -> float:
        found = find_engine(engine)
        held = plan_memory(Instance(spec, profile, found)).state_bytes_per_seq
        return held / found.state_slots

    assert held(spec, "vllm") == held(spec, "vllm==0.12") == 2 * states + window  # 39.5 MB
    assert held(spec, "sglang") == 4 * states + window  # 77.3 MB
    for name in ("qwen3.6-27b", "nemotron-3-nano-30b-a3b", "kimi-linear-48b-a3b-instruct"):
        assert held(find_model(name), "vllm") == held(find_model(name), "sglang")
    for name in ("falcon-h1-7b", "granite-4.0-h-tiny", "mamba-codestral-7b-v0.1"):
        assert held(find_model(name), "vllm") < 0.6 * held(find_model(name), "sglang")


def test_sglang_keeps_states_of_prefixes_in_memory_of_their_own() -> None:
    spec = find_model("qwen3.6-27b")
    drafts, state = SpecSetup("mtp", 3, spec.mtp), plan(spec).state_bytes_per_seq
    for version, plain_slots, drafted_slots in (("0.5.9", 3, 1 + 4), ("0.5.23", 5, 5 + 4)):
        plain, drafted = sglang_plan(version, NONE), sglang_plan(version, drafts)
        assert plain.state_bytes_per_seq == pytest.approx(plain_slots * state)
        assert drafted.state_bytes_per_seq == pytest.approx(drafted_slots * state)
        # --mamba-full-memory-ratio 0.9: states have 0.9 times what tokens have.
        assert plain.state_pool_bytes == pytest.approx(0.9 * plain.pool_bytes)
        assert plain.max_requests(100) == int(plain.state_pool_bytes / (plain_slots * state))
        assert plain.bytes_per_request(100) == 101 * plain.kv_bytes_per_token
    # Without a prefix cache, as old versions speculate, nothing is set apart.
    old = sglang_plan("0.5.9", drafts)
    assert old.state_pool_bytes == 0 and old.bytes_per_request(100) > 5 * state
    parts = (drafted.weight_bytes, drafted.drafter_bytes, drafted.reserve_bytes,
             drafted.state_pool_bytes, drafted.pool_bytes)
    assert sum(parts) == pytest.approx(drafted.usable_bytes)


@pytest.mark.parametrize(("gpu", "model", "weights", "measured"), [
    # SGLang's cookbook (SGLQ36), plain, 1024 clients, prompts of 8192 and answers of 1024 tokens:
    # requests that ran together, output tokens per second x TPOT.
    ("b200", "qwen3.6-35b-a3b", "bf16", 95), ("b200", "qwen3.6-35b-a3b", "fp8", 127),
    ("b200", "qwen3.6-27b", "bf16", 43), ("b200", "qwen3.6-27b", "fp8", 53),
    ("b300", "qwen3.6-35b-a3b", "bf16", 181), ("b300", "qwen3.6-35b-a3b", "fp8", 208),
    ("b300", "qwen3.6-27b", "bf16", 73), ("b300", "qwen3.6-27b", "fp8", 86),
])
def test_states_limit_how_many_requests_ran(
    gpu: str, model: str, weights: str, measured: int
) -> None:
    spec, engine = variant(find_model(model), weights), find_engine("sglang==0.5.15")
    instance = Instance(spec, load_profile(gpu), engine)
    found = plan_memory(instance)
    assert measured < found.max_requests(8192 + 512) == found.state_requests < 1.7 * measured
    shared = replace(engine, state_slots=1)
    assert plan_memory(replace(instance, engine=shared)).max_requests(8704) > 3.4 * measured


def test_a_state_that_does_not_fit_is_named() -> None:
    spec = find_model("qwen3.6-27b")
    setup = SpecSetup("mtp", 7, spec.mtp)
    instance = Instance(spec, H200, find_engine("sglang"), setup=setup)
    with pytest.raises(CapacityError, match=r"keeps 2\.00 GB of recurrent state"):
        plan_memory(instance, gpu_memory_utilization=0.39)


def test_kv_heads_are_split_layer_by_layer() -> None:
    # Gemma-4: 16 KV heads in windows, 4 in full layers; on 8 GPUs the latter are copied twice
    spec = find_model("gemma-4-31b")
    whole, eight = plan(spec), plan(spec, parallel=Parallel(8))
    assert eight.kv_bytes_per_token == whole.kv_bytes_per_token / 4
    assert eight.windows[0][1] == whole.windows[0][1] / 8
    assert eight.weight_bytes == pytest.approx(whole.weight_bytes / 8)


def test_index_keys_are_copied_to_every_gpu() -> None:
    # MiniMax-M3: 4 KV heads in 60 layers, one index key of 256 bytes in 57
    spec = find_model("minimax-m3")
    eight = plan(spec, parallel=Parallel(8))
    assert eight.kv_bytes_per_token == 60 * 2048 / 4 + 57 * 256


def test_a_latent_cache_is_copied_to_every_gpu() -> None:
    spec = find_model("deepseek-v3")
    one, eight = plan(spec), plan(spec, parallel=Parallel(8))
    assert eight.kv_bytes_per_token == one.kv_bytes_per_token == 61 * 576 * 2  # 68.6 KiB
    assert eight.weight_bytes == pytest.approx(one.weight_bytes / 8)


def test_attention_groups_copy_what_is_not_routed() -> None:
    spec = find_model("deepseek-v3")
    groups = plan(spec, parallel=Parallel(1, 8, 8))
    sliced = plan(spec, parallel=Parallel(8, 8, 1))
    routed = 58 * 256 * 3 * 7168 * 2048 * (1 + 4 / 16384)
    shared = sliced.weight_bytes * 8 - routed
    assert groups.weight_bytes == pytest.approx(shared + routed / 8)
    # Eight groups hold eight times the sequences.
    assert groups.kv_bytes_per_token == sliced.kv_bytes_per_token / 8


def test_experts_of_an_mtp_head_are_spread_like_the_targets() -> None:
    spec = find_model("deepseek-v3")
    setup = SpecSetup("mtp", 1, spec.mtp)
    whole, spread = plan(spec, setup), plan(spec, setup, Parallel(1, 8, 8))
    experts = 256 * 3 * 7168 * 2048 * (1 + 4 / 16384)
    assert whole.drafter_bytes - spread.drafter_bytes == pytest.approx(experts * 7 / 8)
    # Where tp is all there is, everything is split alike; a drafter on one GPU keeps all of it.
    assert plan(spec, setup, Parallel(8)).drafter_bytes == pytest.approx(whole.drafter_bytes / 8)
    alone = replace(setup, draft_tp=1)
    assert plan(spec, alone, Parallel(8)).drafter_bytes == pytest.approx(whole.drafter_bytes)


@pytest.mark.parametrize(
    ("name", "tp", "smallest"),
    [("qwen3.5-122b-a10b", 1, 2), ("deepseek-v3", 1, 8), ("deepseek-v3", 4, 8),
     ("llama-3.1-405b", 1, 8)],
)
def test_what_does_not_fit_names_the_smallest_tp_that_does(
    name: str, tp: int, smallest: int
) -> None:
    spec = find_model(name)
    said = f"smallest tp that fits is {smallest}: --tp {smallest},"
    with pytest.raises(CapacityError, match=said):
        plan(spec, parallel=Parallel(tp), check=True)
    fits = plan(spec, parallel=Parallel(smallest), check=True)
    assert fits.max_requests(1000) >= 1


def test_without_a_link_no_larger_tp_is_offered() -> None:
    alone = replace(H200, link_bytes_per_s=0.0)
    with pytest.raises(CapacityError, match="larger GPU") as caught:
        plan_memory(Instance(find_model("deepseek-v3"), alone, VLLM))
    assert "smallest tp" not in str(caught.value)


def test_the_pool_is_what_weights_and_reserve_leave() -> None:
    found = plan(find_model("qwen3-8b"))
    assert found.pool_bytes == found.usable_bytes - found.weight_bytes - found.reserve_bytes
    assert found.usable_bytes == pytest.approx(0.92 * H200.mem_bytes)
    assert found.kv_tokens == int(found.pool_bytes / 147_456)
    small = replace(found, usable_bytes=1.0)
    assert small.max_requests(10) == 0
    assert small.kv_tokens == 0
    assert set(found.to_dict()) >= {"pool_bytes", "kv_bytes_per_token", "state_bytes_per_seq"}

"""The step: what it is the sum of, engine overheads by hand, graphs, and properties that any
roofline has."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.price import LooseOps, Pricer, plain_roofline
from specsim.latency.shape import PrefillChunk, StepShape, decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_model
from specsim.model.spec import ModelSpec
from specsim.ops.op import OpCost
from specsim.ops.shapes import Experts, Gemm
from specsim.ops.work import Parallel, Routing

H200 = load_profile("h200-sxm")
NONE, ONE = SpecSetup(), Parallel()
VLLM = find_engine("vllm")
LLAMA = find_model("llama-3.1-8b")
QWEN = find_model("qwen3.6-27b")
MOE = find_model("qwen3.6-35b-a3b")
GEMMA = find_model("gemma-4-31b")
DEEPSEEK = find_model("deepseek-v3")
NEMOTRON = find_model("nemotron-3-super")
# Large models priced on one imaginary device that holds them all: only shapes matter here.
KINDS = {"dense": LLAMA, "hybrid": QWEN, "experts": MOE, "windows": GEMMA, "latent": DEEPSEEK,
         "mamba": NEMOTRON}
FREE = replace(VLLM, overheads=Overheads(), eager_drafters=(), unsplit_verify_families=())


def mtp(spec: ModelSpec, k: int) -> SpecSetup:
    return SpecSetup("mtp", k, spec.mtp) if spec.mtp else SpecSetup("ngram", k)


def priced(
    spec: ModelSpec,
    setup: SpecSetup = NONE,
    profile: HardwareProfile = H200,
    engine: EngineProfile = VLLM,
    fidelity: str = "datasheet",
    parallel: Parallel = ONE,
) -> LatencyModel:
    instance = Instance(spec, profile, engine, parallel, setup=setup)
    return LatencyModel(instance, fidelity=fidelity)


# --- by hand ------------------------------------------------------------------------------------


def test_one_product_by_hand() -> None:
    # (M, K, N) = (8, 4096, 12288): memory-bound at 4.3 TB/s and 788 TFLOP/s, 1.0 us of arithmetic
    device = replace(H200, mem_bytes_per_s=4.3e12, flops={**H200.flops, "bf16": 788e12})
    op = OpCost("x", Gemm(8, 12288, 4096), flops=805_306_368.0, weight_bytes=100_663_296.0)
    time = plain_roofline(op, device)
    assert time.mem_s == pytest.approx(23.4e-6, rel=1e-3)
    assert time.compute_s == pytest.approx(1.02e-6, rel=5e-3)
    assert (time.seconds, time.bound) == (time.mem_s, "memory")
    # The ridge: 2 n k m / 788e12 = 2 n k / 4.3e12 between 183 and 184 rows
    for rows, bound in ((183, "memory"), (184, "compute")):
        wide = replace(op, flops=op.flops / 8 * rows)
        assert plain_roofline(wide, device).bound == bound


def test_a_decode_step_of_llama_by_hand() -> None:
    # 15.01 GB of weights and 1000 x 131,072 B of cache at 4.8 TB/s, beside 0.2 % activations
    step = priced(LLAMA).step(decode_shape(1, 1000))
    least = (15_009_849_344 + 1001 * 131_072 + 131_072) / 4.8e12
    assert least < step.total_s < 1.01 * least
    assert step.bound == "memory"
    assert (step.host_s, step.draft_s) == (0, 0)


def test_a_large_prefill_is_bound_by_arithmetic() -> None:
    step = priced(LLAMA).step(StepShape(prefill=(PrefillChunk(8192),)))
    # 2 x 6.98e9 matrix weights x 8192 tokens, and causal attention over 4096.5 keys on average in
    # 32 layers of 32 heads x 128, at 989 TFLOP/s; elementwise traffic adds a few percent
    products = 2 * (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) * 8192
    attention = 4 * 8192 * 4096.5 * 32 * 128 * 32
    least = (products + attention) / 989e12
    assert least < step.total_s < 1.08 * least
    assert step.bound == "compute"


def test_total_is_the_sum_of_its_parts_and_ops() -> None:
    setup = mtp(QWEN, 3)
    for fidelity in ("datasheet", "calibrated"):
        step = priced(QWEN, setup, fidelity=fidelity, engine=FREE).step(
            decode_shape(16, 2000, setup)
        )
        assert step.total_s == pytest.approx(
            step.target_s + step.sample_s + step.draft_s + step.host_s
        )
        assert sum(t.seconds for t in step.ops) == pytest.approx(step.total_s)
        by_phase = {
            phase: sum(t.seconds for t in step.ops if t.phase == phase)
            for phase in ("target", "sample", "draft")
        }
        assert by_phase["target"] == pytest.approx(step.target_s)
        assert by_phase["draft"] == pytest.approx(step.draft_s)
        assert step.memory_s + step.compute_s <= step.total_s * (1 + 1e-12)


def test_overheads_by_hand() -> None:
    over = Overheads(
        step_s=1e-3, seq_s=1e-5, layer_s=2e-5, spec_step_s=3e-3, spec_seq_s=4e-5,
        draft_pass_s=5e-4, mixed_step_s=6e-3,
    )
    setup = mtp(QWEN, 3)
    model = priced(QWEN, setup, engine=FREE, fidelity="calibrated")
    loaded = model.with_overheads(over)
    verify = decode_shape(10, 1000, setup)
    extra = loaded.seconds(verify) - model.seconds(verify)
    # step, 10 sequences, 64 layers, speculation on, 10 speculating sequences, 3 passes
    assert extra == pytest.approx(1e-3 + 1e-4 + 64 * 2e-5 + 3e-3 + 4e-4 + 3 * 5e-4)
    plain = priced(QWEN, engine=FREE, fidelity="calibrated")
    plain_loaded = plain.with_overheads(over)
    decode = decode_shape(10, 1000)
    assert plain_loaded.seconds(decode) - plain.seconds(decode) == pytest.approx(
        1e-3 + 1e-4 + 64 * 2e-5
    )
    mixed = StepShape(10, 1, 10_000.0, (PrefillChunk(100),))
    assert plain_loaded.seconds(mixed) - plain.seconds(mixed) == pytest.approx(
        1e-3 + 1e-4 + 64 * 2e-5 + 6e-3
    )
    alone = StepShape(prefill=(PrefillChunk(100),))
    assert plain_loaded.seconds(alone) - plain.seconds(alone) == pytest.approx(1e-3 + 64 * 2e-5)


def test_a_slow_host_binds_only_a_fast_device() -> None:
    host = replace(FREE, overheads=Overheads(host_step_s=50e-3))
    model = priced(LLAMA, engine=host, fidelity="calibrated")
    step = model.step(decode_shape(1, 100))
    assert step.total_s == pytest.approx(50e-3)
    assert step.bound == "latency"
    slow = model.step(StepShape(prefill=(PrefillChunk(16384),)))
    assert slow.host_s == 0


def test_outside_graphs_every_launch_costs() -> None:
    eager = replace(FREE, overheads=Overheads(eager_kernel_s=1e-3))
    model = priced(LLAMA, engine=eager, fidelity="calibrated")
    inside, outside = model.step(decode_shape(512, 10)), model.step(decode_shape(513, 10))
    assert inside.graphed and not outside.graphed
    launches = sum(t.op.count for t in outside.ops if t.phase == "target")
    assert outside.target_s == pytest.approx(launches * 1e-3)
    # A verify batch reaches the limit of 512 tokens at 512 / (k + 1) sequences.
    setup = SpecSetup("ngram", 3)
    verify = priced(LLAMA, setup, engine=eager, fidelity="calibrated")
    assert verify.step(decode_shape(128, 10, setup)).graphed
    assert not verify.step(decode_shape(129, 10, setup)).graphed
    # An engine that counts requests does not care how many tokens each brings.
    requests = replace(eager, graph_unit="requests", graph_max=256)
    verify = priced(LLAMA, setup, engine=requests, fidelity="calibrated")
    assert verify.step(decode_shape(256, 10, setup)).graphed
    assert not verify.step(decode_shape(257, 10, setup)).graphed
    assert not verify.step(StepShape(4, 4, 40.0, (PrefillChunk(8),))).graphed


def test_a_lookup_costs_the_host_time_by_sequence_and_an_n_gram_by_token_too() -> None:
    host = replace(FREE, overheads=Overheads(ngram_seq_s=3e-6, ngram_token_s=2e-9))
    for method, tokens in (("ngram", 64 * 8192), ("suffix", 0)):
        setup = SpecSetup(method, 3)
        step = priced(LLAMA, setup, engine=host, fidelity="calibrated").step(
            decode_shape(64, 8192, setup))
        assert step.host_s == pytest.approx(64 * 3e-6 + tokens * 2e-9)


def test_a_chunked_scan_is_launched_kernel_by_kernel() -> None:
    """Of 64 layers of Qwen3.6-27B 48 are delta rules: eight kernels each, not one."""
    eager = replace(FREE, overheads=Overheads(prompt_op_s=1e-3), graph_unit="requests")
    step = priced(QWEN, engine=eager, fidelity="calibrated").step(
        StepShape(prefill=(PrefillChunk(8),)))
    ops = sum(t.op.count for t in step.ops if t.phase == "target")
    assert step.launch_s == pytest.approx((ops + 48 * (8 - 1)) * 1e-3)


def test_a_kernel_that_does_not_split_walks_the_cache() -> None:
    setup = SpecSetup("ngram", 3)
    unsplit = replace(
        FREE, unsplit_verify_families=("llama",), unsplit_verify_except=(),
        unsplit_verify_s_per_token=84e-9,
    )
    model = priced(LLAMA, setup, engine=unsplit, fidelity="calibrated")
    step = model.step(decode_shape(1, 31_000, setup))
    (walk,) = [t for t in step.ops if t.op.name == "attn.decode"]
    # The 2.6 ms per layer reported for heads 512 wide, by the instructions at 128 columns.
    assert walk.time.seconds == pytest.approx(31_000 * 84e-9 * (742 + 37.5) / 892)
    plain = priced(LLAMA, engine=unsplit, fidelity="calibrated").step(decode_shape(1, 31_000))
    (single,) = [t for t in plain.ops if t.op.name == "attn.decode"]
    assert single.time.seconds < 0.2e-3


def test_padding_is_the_engines_and_not_the_datasheets() -> None:
    shape = decode_shape(9, 100)
    assert priced(LLAMA).step(shape).rows == 9
    assert priced(LLAMA, fidelity="calibrated").step(shape).rows == 16


def test_parts_of_a_mixed_step() -> None:
    setup = mtp(QWEN, 3)
    model = priced(QWEN, setup, fidelity="calibrated")
    mixed = StepShape(8, 4, 8000.0, (PrefillChunk(2048),), 3)
    parts = model.parts(mixed)
    assert sum(parts.values()) == pytest.approx(model.seconds(mixed))
    assert parts["prefill"] > 0
    bare = model.step(replace(mixed, prefill=()))
    assert parts["verify"] == pytest.approx(bare.target_s + bare.sample_s)
    assert model.parts(replace(mixed, prefill=()))["prefill"] == 0


def test_heads_that_do_not_divide_and_missing_links_are_refused() -> None:
    with pytest.raises(UsageError, match="tp is 3"):
        priced(LLAMA, parallel=Parallel(3))
    with pytest.raises(UsageError, match="link"):
        priced(LLAMA, parallel=Parallel(2), profile=replace(H200, link_bytes_per_s=0.0))


def test_the_breakdown_is_json_ready() -> None:
    import json

    step = priced(QWEN, mtp(QWEN, 2)).step(decode_shape(4, 100, mtp(QWEN, 2)))
    shown = step.to_dict()
    json.dumps(shown, allow_nan=False)
    assert shown["total_s"] == step.total_s
    assert shown["bytes"] == pytest.approx(sum(t.op.bytes * t.op.count for t in step.ops))


# --- properties ---------------------------------------------------------------------------------

kinds = st.sampled_from(sorted(KINDS))
batches = st.integers(1, 300)
contexts = st.integers(0, 20_000)
queries = st.integers(1, 9)
fast = settings(max_examples=examples(40), deadline=None)


def seconds(spec: ModelSpec, seqs: int, q_len: int, ctx: int) -> float:
    return MODELS[spec.name].seconds(StepShape(seqs, q_len, float(seqs * ctx)))


MODELS = {spec.name: priced(spec) for spec in KINDS.values()}


@given(kinds, batches, queries, contexts, st.integers(0, 50), st.integers(0, 5),
       st.integers(0, 5000))
@fast
def test_more_work_never_takes_less_time(
    kind: str, seqs: int, q_len: int, ctx: int, more_seqs: int, more_q: int, more_ctx: int
) -> None:
    spec = KINDS[kind]
    base = seconds(spec, seqs, q_len, ctx) * (1 - 1e-12)
    assert seconds(spec, seqs + more_seqs, q_len, ctx) >= base
    assert seconds(spec, seqs, q_len + more_q, ctx) >= base
    assert seconds(spec, seqs, q_len, ctx + more_ctx) >= base


@given(kinds, batches, queries, contexts)
@fast
def test_never_faster_than_the_bytes_or_the_arithmetic(
    kind: str, seqs: int, q_len: int, ctx: int
) -> None:
    spec = KINDS[kind]
    shape = StepShape(seqs, q_len, float(seqs * ctx))
    step = MODELS[spec.name].step(shape)
    assert step.total_s >= step.bytes / H200.mem_bytes_per_s * (1 - 1e-9)
    assert step.total_s >= step.flops / max(H200.flops.values()) * (1 - 1e-9)
    # Calibrated kernels of a dense model cannot beat the device either.
    if kind == "dense":
        calibrated = CALIBRATED.step(shape)
        assert calibrated.total_s >= calibrated.bytes / H200.mem_bytes_per_s
        assert calibrated.total_s >= calibrated.flops / H200.flops["bf16"]
        assert calibrated.total_s >= step.total_s


CALIBRATED = priced(LLAMA, fidelity="calibrated", engine=FREE)
MIXED_CALIBRATED = priced(LLAMA, fidelity="calibrated", engine=FREE)


@given(kinds, batches, contexts, st.floats(1.0, 4.0), st.floats(1.0, 4.0))
@fast
def test_a_better_device_is_never_slower(
    kind: str, seqs: int, ctx: int, bandwidth: float, peak: float
) -> None:
    spec = KINDS[kind]
    shape = StepShape(seqs, 4, float(seqs * ctx))
    base = MODELS[spec.name].seconds(shape)
    wide = replace(H200, mem_bytes_per_s=H200.mem_bytes_per_s * bandwidth)
    strong = replace(H200, flops={k: v * peak for k, v in H200.flops.items()})
    for device in (wide, strong):
        assert priced(spec, profile=device).seconds(shape) <= base * (1 + 1e-12)
    both = replace(wide, flops=strong.flops)
    assert priced(spec, profile=both).seconds(shape) >= base / max(bandwidth, peak) * (1 - 1e-12)


@given(batches, contexts)
@fast
def test_twice_the_bandwidth_halves_a_memory_bound_step(seqs: int, ctx: int) -> None:
    shape = decode_shape(min(seqs, 64), ctx)
    double = replace(H200, mem_bytes_per_s=2 * H200.mem_bytes_per_s)
    step, other = priced(LLAMA).step(shape), priced(LLAMA, profile=double).step(shape)
    assert step.compute_s == 0
    assert other.total_s == pytest.approx(step.total_s / 2)


@given(kinds, batches, contexts)
@fast
def test_verifying_nothing_is_a_plain_step(kind: str, seqs: int, ctx: int) -> None:
    spec = KINDS[kind]
    for fidelity in ("datasheet", "calibrated"):
        plain = priced(spec, fidelity=fidelity).step(decode_shape(seqs, ctx))
        lookup = priced(spec, SpecSetup("ngram", 3), fidelity=fidelity, engine=FREE)
        empty = lookup.step(StepShape(seqs, 1, float(seqs * ctx), num_drafts=0))
        bare = priced(spec, fidelity=fidelity, engine=FREE).step(decode_shape(seqs, ctx))
        assert empty.total_s == bare.total_s
        assert plain.total_s >= bare.total_s


@given(kinds, batches, st.integers(1, 8), contexts, st.integers(1, 8000), st.integers(0, 8000))
@fast
def test_a_mixed_step_is_cheaper_than_two_and_dearer_than_each(
    kind: str, seqs: int, q_len: int, ctx: int, new: int, cached: int
) -> None:
    model = MODELS[KINDS[kind].name]
    chunk = (PrefillChunk(new, cached),)
    decode = model.seconds(StepShape(seqs, q_len, float(seqs * ctx)))
    prompt = model.seconds(StepShape(prefill=chunk))
    both = model.seconds(StepShape(seqs, q_len, float(seqs * ctx), chunk))
    assert both >= max(decode, prompt) * (1 - 1e-9)
    assert both <= (decode + prompt) * (1 + 1e-9)


@given(st.integers(1, 128), st.integers(0, 8000), st.integers(1, 4000))
@fast
def test_mixed_steps_of_calibrated_kernels_read_the_weights_once(
    seqs: int, ctx: int, new: int
) -> None:
    chunk = (PrefillChunk(new),)
    decode = MIXED_CALIBRATED.seconds(StepShape(seqs, 1, float(seqs * ctx)))
    prompt = MIXED_CALIBRATED.seconds(StepShape(prefill=chunk))
    both = MIXED_CALIBRATED.seconds(StepShape(seqs, 1, float(seqs * ctx), chunk))
    assert both < decode + prompt


@given(kinds, st.integers(1, 64), st.integers(1, 8), contexts)
@fast
def test_speculation_never_shortens_a_step(kind: str, seqs: int, k: int, ctx: int) -> None:
    spec = KINDS[kind]
    setup = mtp(spec, k)
    drafted = priced(spec, setup).seconds(decode_shape(seqs, ctx, setup))
    longer = mtp(spec, k + 1)
    assert drafted >= priced(spec).seconds(decode_shape(seqs, ctx)) * (1 - 1e-12)
    assert priced(spec, longer).seconds(decode_shape(seqs, ctx, longer)) >= drafted * (1 - 1e-12)


@given(st.integers(1, 64), contexts)
@fast
def test_more_gpus_share_the_bytes(seqs: int, ctx: int) -> None:
    one = priced(LLAMA).step(decode_shape(seqs, ctx))
    four = priced(LLAMA, parallel=Parallel(4)).step(decode_shape(seqs, ctx))
    assert not [t for t in one.ops if t.op.kind in ("all_reduce", "all_gather")]
    shared = sum(t.op.weight_bytes + t.op.kv_bytes for t in four.ops)
    assert shared < sum(t.op.weight_bytes + t.op.kv_bytes for t in one.ops)
    links = sum(t.seconds for t in four.ops if t.op.kind in ("all_reduce", "all_gather"))
    assert four.total_s >= links + one.bytes / 4 / H200.mem_bytes_per_s * 0.99


@given(kinds, batches, contexts)
@fast
def test_prices_are_finite_and_repeatable(kind: str, seqs: int, ctx: int) -> None:
    spec = KINDS[kind]
    setup = mtp(spec, 3)
    shape = decode_shape(seqs, ctx, setup)
    first = priced(spec, setup, fidelity="calibrated").seconds(shape)
    assert math.isfinite(first) and first > 0
    assert priced(spec, setup, fidelity="calibrated").seconds(shape) == first


def test_a_kernel_that_streams_every_expert_does_so_for_a_verify_too() -> None:
    # Tokens of one sequence share experts, but here none is left out whoever chooses it.
    spec, engine = find_model("minimax-m2.5"), find_engine("vllm==0.10.1")
    assert spec.weights in engine.whole_expert_formats
    model = LatencyModel(Instance(spec, load_profile("b300"), engine))
    experts = [
        sum(x.seconds for x in model.step(StepShape(1, q, 1000.0)).ops if x.op.kind == "moe")
        for q in (1, 2, 4)
    ]
    assert experts[1:] == pytest.approx([experts[0]] * 2, rel=1e-3)


def test_prompts_outside_graphs_take_what_the_host_needs_to_launch_them() -> None:
    """It binds for short prompts alone, costs more under ROCm, and is told apart as idle time."""
    sglang = find_engine("sglang")
    free = replace(sglang, overheads=replace(sglang.overheads, prompt_op_s=0.0))
    for gpu, factor in (("h200-sxm", 1.0), ("mi300x", 1.7)):
        profile = load_profile(gpu)
        with_it, without = (
            LatencyModel(Instance(LLAMA, profile, engine, Parallel(), "bf16", SpecSetup()))
            for engine in (sglang, free)
        )
        short = StepShape(prefill=(PrefillChunk(200),))
        ops = sum(t.op.count for t in with_it.step(short).ops if t.phase == "target")
        launches_s = factor * sglang.overheads.prompt_op_s * ops
        step, bare = with_it.step(short), without.step(short)
        assert step.target_s == pytest.approx(launches_s)
        assert step.idle_s == pytest.approx(launches_s - bare.target_s)
        long = StepShape(prefill=(PrefillChunk(8192),))
        assert with_it.seconds(long) == without.seconds(long)
        assert with_it.step(long).idle_s == 0
        # Many prompts in a step share their launches, and the device has more to do meanwhile.
        several = with_it.step(StepShape(prefill=(PrefillChunk(20),) * 10))
        assert several.launch_s == pytest.approx(launches_s)
        decode = decode_shape(16, 1000)
        assert with_it.seconds(decode) == without.seconds(decode)


@pytest.mark.parametrize(("gpu", "engine", "ms"), [
    ("b200", "trtllm", 1.66), ("b200", "sglang", 1.66), ("b200", "vllm", 5.5),
    ("h200-sxm", "trtllm", 8.6),
])
def test_mxfp4_experts_run_with_the_activations_that_the_engine_takes(
    gpu: str, engine: str, ms: float
) -> None:
    """One layer of gpt-oss-120b, 16,384 tokens spread evenly: 1.66 ms with MXFP8 activations in
    TensorRT-LLM 1.3 on the B200 and 10.5 with 16-bit ones, which vLLM's kernels multiply in 5.5;
    on Hopper no unit takes 8 bits beside 4 (aiconfigurator-core 0.12.0)."""
    profile = find_engine(engine)
    pricer = Pricer(load_profile(gpu), profile, "bf16", Routing(1.0, 1.0), datasheet=False)
    shape = Experts(16384, 2880, 2880, 4, 128, "mxfp4", distribution="balanced", distinct=128)
    (timed,) = pricer.breakdown([LooseOps("target", (OpCost("experts", shape),))])
    assert 1e3 * timed.seconds == pytest.approx(ms, rel=0.1)

"""Which walk of the cache attention takes under an engine, on a device, in a model: kernels that
do not split it (`latency.unsplit`), and verify steps of latent attention that none packs.

**Latent attention** (MLA) is packed, all heads and all queries of a verify step over one read of
the latents, by FlashMLA, FlashAttention 3, FlashInfer's and TensorRT-LLM's kernels: on Hopper and
data-centre Blackwell. Elsewhere (`latent_verify` of an engine) a step of several queries is

* `expanded`, vLLM before 0.31 on Ampere, Ada, RTX Blackwell, and under ROCm without AITER; before
  0.15 on data-centre Blackwell as well. Read from the wheels of 0.12.0, 0.14.0 to 0.17.1, 0.25.1,
  0.27.0 and 0.30.0 (Apache-2.0; platforms/cuda.py, v1/attention/backends/mla/triton_mla.py and
  cutlass_mla.py, model_executor/layers/attention/mla_attention.py): their kernels decode single
  queries only (query_len_support, reorder_batch_threshold 1), so verified rows are prompts behind a
  cached prefix. All latents of the context are gathered and multiplied by kv_b_proj, keys put
  together with their rotary part, values padded to the width of keys (FlashAttention 2 takes no
  other), and every head walks its context in one block;
* `rows`, vLLM from 0.31 on (the wheels of 0.31.0 and 0.33.0): every query is a decoding sequence
  of its own, whose heads share no tile with another's;
* `walked`, SGLang there (0.5.23, Apache-2.0; model_override_base.py, attention_backend_handler.py,
  kernels/ops/attention/extend_attention.py): absorbed, on Triton's kernel for prompts. A block
  takes up to 32 queries of ONE head over the whole context, 576 wide, and no prefix is split.

**Sinks and Gemma-4 in SGLang** run on the same kernel: FlashInfer has no sinks, so gpt-oss does
where latents do (gpt_oss.py); gemma4.py names Triton but on data-centre Blackwell. Blocks take the
queries of one head. What a token takes of that kernel was not measured: its products at the peak of
an SM, at least.
"""

from collections.abc import Callable
from functools import partial
from math import ceil, floor

from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import (
    EngineProfile,
    LatentVerify,
    kind_of_target,
    version_key,
)
from specsim.latency.unsplit import (
    ROCM_ROWS,
    decode_tokens,
    flash2_attention_s,
    rocm_attention_s,
    sinks_attention_s,
    unsplit_attention_s,
)
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.spec import ModelSpec
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import AttentionDecode, LatentDecode, LatentPrefill
from specsim.roofline import compute_peak
from specsim.roofline.dispatch import op_time
from specsim.units import DTYPE_BYTES

Walk = Callable[[OpCost], float]  # seconds of an attention call; 0.0: the kernel model's own
# Queries of a block of SGLang's kernel for prompts: up to 128 columns wide on sm_80 and sm_90, up
# to 256 and elsewhere, beyond.
EXTEND_LARGE, EXTEND_ROWS, EXTEND_WIDE = 128, 64, 32
GEMMA3_TEXT_VOCAB = 262144  # of the sizes without images, whose tokens come behind
SM80 = ("a100", "a800", "a30")  # how names of such devices begin


def walk_of(
    engine: EngineProfile, spec: ModelSpec, profile: HardwareProfile, kv_dtype: str
) -> Walk | None:
    """How attention to a cache walks it where the engine's kernel does not split it or does not
    pack the queries of a step; None where it does."""
    walks = [found for found in (
        _grouped(engine, spec, profile, kv_dtype), _latent(engine, spec, profile),
    ) if found is not None]
    if len(walks) < 2:
        return walks[0] if walks else None
    return lambda op: max(walk(op) for walk in walks)


def _grouped(
    engine: EngineProfile, spec: ModelSpec, profile: HardwareProfile, kv_dtype: str
) -> Walk | None:
    """Of attention with keys and values by head."""
    if unsplit(engine, spec, profile.arch, kv_dtype):
        return partial(
            unsplit_attention_s, sms=profile.sms, s_per_token=engine.unsplit_verify_s_per_token,
            blocks_per_sm=engine.unsplit_blocks_per_sm,
        )
    sinks = {g.mixer.sinks for g in spec.layers if isinstance(g.mixer, Attention)}
    peak = compute_peak(profile, "bf16")
    if sinks == {True} and profile.arch in engine.flash2_arches:
        return partial(
            sinks_attention_s, sms=profile.sms, s_per_token=engine.unsplit_verify_s_per_token
        )
    walked = sinks == {True} and engine.latent_way(profile.arch) == "walked"
    if walked or (spec.family in engine.extend_families and profile.arch != "blackwell"):
        return partial(extend_attention_s, profile=profile)
    if True in sinks:  # other kernels, which were not read
        return None
    if profile.arch in engine.flash2_arches and kv_dtype == "bf16":
        return partial(flash2_attention_s, sms=profile.sms, peak=peak)
    if profile.arch in engine.rocm_arches:
        return partial(
            rocm_attention_s, sms=profile.sms, peak=peak, cdna=profile.arch.startswith("cdna"),
            odd=kind_of_target(spec) == "recurrent",
        )
    return None


def unsplit(engine: EngineProfile, spec: ModelSpec, arch: str, kv_dtype: str) -> bool:
    """Whether a model's verify steps run on Triton attention, which splits no cache there."""
    text_only = spec.family == "gemma3" and spec.vocab <= GEMMA3_TEXT_VOCAB
    if spec.family not in engine.unsplit_verify_families or text_only:
        return False
    widest = max(
        (g.mixer.head_dim for g in spec.layers if isinstance(g.mixer, Attention)), default=0
    )
    here = (spec.family, arch, kv_dtype)
    for words in map(str.split, engine.unsplit_verify_except):
        fits = len(words) < 4 or widest <= int(words[3])
        if here[: len(words[:3])] == tuple(words[:3]) and fits:
            return False
    return True


def _latent(engine: EngineProfile, spec: ModelSpec, profile: HardwareProfile) -> Walk | None:
    """Of latent attention that sees the whole context."""
    way = engine.latent_way(profile.arch)
    layers = [g.mixer for g in spec.layers if isinstance(g.mixer, LatentAttention)]
    if not way or not layers or any(layer.index_topk for layer in layers):
        return None
    if way == "walked":
        return partial(extend_attention_s, profile=profile)
    return partial(latent_verify_s, layer=layers[0], profile=profile, engine=engine, way=way)


def not_running(engine: EngineProfile, spec: ModelSpec, profile: HardwareProfile) -> str:
    """Why the engine serves this model on no such device, as far as is known; '' where it does."""
    server = engine.server
    if server.vendors and profile.vendor and profile.vendor not in server.vendors:
        return (f"{server.label} runs on devices of {', '.join(server.vendors)} alone, not on "
                f"{profile.title}; name another --engine")
    picks = any(isinstance(g.mixer, LatentAttention) and g.mixer.index_topk for g in spec.layers)
    if picks and profile.arch in server.no_sparse_latent:
        return (f"{server.label} has no kernel for the sparse attention of {spec.name} on "
                f"{profile.title}; name a --gpu of Hopper or later")
    return ""


def version_meant(engine: EngineProfile, spec: ModelSpec, arch: str) -> str:
    """The version that the figures of an engine are of: the one asked for; without one that of its
    profile, or the first with the kernel that latent attention of the model is taken to run on."""
    layers = [g.mixer for g in spec.layers if isinstance(g.mixer, LatentAttention)]
    if engine.asked or not layers or any(layer.index_topk for layer in layers):
        return engine.asked or engine.version
    gained = [before for where, _, before in engine.latent_verify if where == arch and before]
    return max([engine.version, *gained], key=version_key)


def latent_verify_s(
    op: OpCost, layer: LatentAttention, profile: HardwareProfile, engine: EngineProfile,
    way: LatentVerify,
) -> float:
    """Seconds of one call of latent attention for sequences of several queries; 0.0 for others."""
    shape = op.shape
    if not isinstance(shape, LatentDecode) or shape.q_len == 1:
        return 0.0

    def seconds(one: OpCost) -> float:
        return op_time(one, profile, "calibrated", engine.kernel_variant).seconds

    if way == "rows":
        return seconds(op.called(shape._replace(apart=True), op.count))
    heads, keys = shape.heads, layer.qk_nope_head_dim + layer.qk_rope_head_dim
    values, latent = layer.v_head_dim, shape.kv_lora_rank + shape.rope_dim
    ctx = shape.ctx + shape.q_len
    tokens, up = shape.seqs * ctx, heads * (layer.qk_nope_head_dim + values)
    flash2 = profile.arch in engine.flash2_arches
    moved = [
        latent * (DTYPE_BYTES[shape.fmt] + ACT_BYTES),  # gathered
        ACT_BYTES * heads * (layer.qk_nope_head_dim + keys),  # keys put together
    ]
    if flash2:
        moved.append(ACT_BYTES * heads * (values + keys))  # values padded
    expanded_s = seconds(gemm("kv_b", tokens, up, shape.kv_lora_rank, layer.weight))
    expanded_s += sum(seconds(elementwise("expand", tokens * each)) for each in moved)
    full = AttentionDecode(shape.seqs, shape.q_len, heads, heads, keys, ctx)
    peak = compute_peak(profile, "bf16")
    if flash2:
        return expanded_s + flash2_attention_s(OpCost("attn", full), profile.sms, peak)
    if profile.arch in engine.rocm_arches:
        s_per_token = keys * 4 * ROCM_ROWS * profile.sms / peak
        return expanded_s + decode_tokens(full, 1, floor(profile.sms)) * s_per_token
    rows = ceil(shape.q_len / ROCM_ROWS) * ROCM_ROWS  # whole tiles of queries
    return expanded_s + seconds(
        OpCost("attn", LatentPrefill(rows, shape.ctx, heads, keys, values, shape.seqs))
    )


def extend_attention_s(op: OpCost, profile: HardwareProfile) -> float:
    """Seconds, at least, of a verify step on SGLang's Triton kernel for prompts; 0.0 for single
    queries, which are split, and for other ops."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode | LatentDecode) or shape.q_len == 1:
        return 0.0
    peak = compute_peak(profile, "bf16")
    if isinstance(shape, LatentDecode):
        if shape.apart:
            return 0.0
        rows, width = EXTEND_WIDE, 2 * shape.kv_lora_rank + shape.rope_dim
        blocks = shape.heads * ceil(shape.q_len / rows)
        walk = AttentionDecode(shape.seqs, shape.q_len, shape.heads, 1, width, shape.ctx)
    else:
        large = profile.arch == "hopper" or profile.name.startswith(SM80)
        if shape.head_dim > 256:
            rows = EXTEND_WIDE
        else:
            rows = EXTEND_LARGE if large and shape.head_dim <= 128 else EXTEND_ROWS
        width = 2 * shape.head_dim
        blocks = shape.heads / shape.kv_heads * ceil(shape.q_len / rows)
        walk = shape
    s_per_token = 2 * rows * width * profile.sms / peak
    return decode_tokens(walk, max(1, round(blocks)), floor(profile.sms)) * s_per_token

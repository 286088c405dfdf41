"""Parameters of vision towers with their projectors. Text requests never run them; only their
memory matters. Counts follow transformers 5.24 (Apache-2.0) and, of InternViT and MoonViT, their
publishers' totals.
"""

from collections.abc import Callable, Mapping
from functools import partial

from specsim.formats.hf_shape import VisionConfig


def vision_parameters(
    kind: str, vision: Mapping[str, object], where: str, text_hidden: int
) -> int | None:
    """Parameters of the tower with its projector, None for one of another kind; `kind` is the
    wrapper's model_type."""
    count = _TOWERS.get(kind)
    if count is None or vision.get("model_type", "pixtral") in _OTHERS:
        return None
    return count(VisionConfig.of(vision, where), text_hidden)


_OTHERS = ("clip_vision_model", "siglip_vision_model")  # LLaVA's


def _block(h: int, inter: int) -> int:
    """A layer with biases: qkv, proj, two-matrix MLP, LayerNorms."""
    return 4 * (h * h + h) + 2 * h * inter + inter + h + 4 * h


def _perceptron(width: int, inner: int, out: int) -> int:
    """Two matrices with biases."""
    return (width + 1) * inner + (inner + 1) * out


def _qwen3_5(v: VisionConfig, _: int, *, deepstack: bool = False) -> int:
    """ViT with a table of positions; merger of merge**2 patches."""
    h, patch = v.hidden_size, v.in_channels * v.patch_size**2 * v.temporal_patch_size
    merged = h * v.spatial_merge_size**2
    merger = _perceptron(merged, merged, v.out_hidden_size)
    total = patch * h + h + v.num_position_embeddings * h
    total += v.depth * _block(h, v.intermediate_size) + merger + 2 * h
    if deepstack:  # further mergers, with their norm over the merged width
        total += len(v.deepstack_visual_indexes) * (merger + 2 * merged)
    return total


def _qwen2(v: VisionConfig, _: int) -> int:
    """The same with rotary positions, its width in `embed_dim`."""
    h, patch = v.embed_dim, v.in_channels * v.patch_size**2 * v.temporal_patch_size
    merged = h * v.spatial_merge_size**2
    merger = _perceptron(merged, merged, v.hidden_size)
    return patch * h + v.depth * _block(h, v.mlp_ratio * h) + 2 * h + merger


def _qwen2_5(v: VisionConfig, _: int) -> int:
    """ViT with a gated MLP and RMSNorms, biases in all but the patches; merger of merge**2."""
    h, inter = v.hidden_size, v.intermediate_size
    patch = v.in_channels * v.patch_size**2 * v.temporal_patch_size
    merged = h * v.spatial_merge_size**2
    block = 4 * (h * h + h) + (3 * h * inter + 2 * inter + h) + 2 * h
    return patch * h + v.depth * block + h + _perceptron(merged, merged, v.out_hidden_size)


def _gemma4(v: VisionConfig, text_hidden: int) -> int:
    """Gated MLP, q/k norms, four norms a layer; a 2-D position table; one projection."""
    h, inter = v.hidden_size, v.intermediate_size
    heads = v.num_attention_heads
    kv = (v.num_key_value_heads or heads)
    dim = v.head_dim
    layer = 2 * h * heads * dim + 2 * h * kv * dim + 3 * h * inter + 4 * h + 2 * dim
    total = v.num_hidden_layers * layer
    total += 3 * v.patch_size**2 * h
    return total + 2 * v.position_embedding_size * h + h * text_hidden


def _pixtral(v: VisionConfig, text_hidden: int, *, merges: bool) -> int:
    """Gated MLP, no biases, a norm before the layers. merges: four patches become one (Mistral
    Small 3.1 and later), between matrices without biases."""
    h = v.hidden_size
    total = v.num_hidden_layers * (4 * h * h + 3 * h * v.intermediate_size + 2 * h)
    total += 3 * v.patch_size**2 * h + h
    if merges:
        return total + h + 4 * h * h + (h + text_hidden) * text_hidden
    return total + _perceptron(h, text_hidden, text_hidden)


def _internvit(v: VisionConfig, text_hidden: int) -> int:
    """InternViT: scales of the branches, a class token, a table of positions; RMSNorms, norms of
    queries and keys and no biases of theirs in the 6B. Projector of four patches."""
    h, positions = v.hidden_size, (v.image_size // v.patch_size) ** 2 + 1
    block = _block(h, v.intermediate_size) + 2 * h - (0 if v.qkv_bias else 3 * h)
    block += (2 * h if v.qk_normalization else 0) - (2 * h if v.norm_type == "rms_norm" else 0)
    total = v.num_hidden_layers * block + 3 * v.patch_size**2 * h + h + (positions + 1) * h
    return total + 8 * h + _perceptron(4 * h, text_hidden, text_hidden)


def _moonvit(v: VisionConfig, text_hidden: int) -> int:
    """MoonViT of Kimi-VL: a table of 64 x 64 positions; projector of four patches."""
    h = v.hidden_size
    total = v.num_hidden_layers * _block(h, v.intermediate_size) + 2 * h
    total += 3 * v.patch_size**2 * h + h + 64 * 64 * h
    return total + 2 * h + _perceptron(4 * h, 4 * h, text_hidden)


_TOWERS: dict[str, Callable[[VisionConfig, int], int]] = {
    "qwen3_5": _qwen3_5, "qwen3_5_moe": _qwen3_5,
    "qwen3_vl": partial(_qwen3_5, deepstack=True),
    "qwen3_vl_moe": partial(_qwen3_5, deepstack=True),
    "qwen2_vl": _qwen2, "qwen2_5_vl": _qwen2_5, "gemma4": _gemma4,
    "llava": partial(_pixtral, merges=False), "mistral3": partial(_pixtral, merges=True),
    "internvl_chat": _internvit, "kimi_vl": _moonvit,
}

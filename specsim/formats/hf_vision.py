"""Parameters of the vision towers that come with a language model, where the kind is known.

Only their memory matters here: text requests never run them. Returns None for a tower of
another kind, which the caller notes.
"""

from collections.abc import Mapping

from specsim.formats.hf_shape import VisionConfig


def vision_parameters(
    kind: str, vision: Mapping[str, object], where: str, text_hidden: int
) -> int | None:
    """Parameters of the tower with its projector; `kind` is the wrapper's model_type."""
    if kind in ("qwen3_5", "qwen3_5_moe"):
        return _qwen3_5(VisionConfig.of(vision, where))
    if kind in ("qwen3_vl", "qwen3_vl_moe"):
        return _qwen3_5(VisionConfig.of(vision, where), deepstack=True)
    if kind == "gemma4":
        return _gemma4(VisionConfig.of(vision, where), text_hidden)
    return None


def _qwen3_5(v: VisionConfig, *, deepstack: bool = False) -> int:
    """ViT with biases: qkv, proj, two-matrix MLP, LayerNorms; merger of merge**2 patches."""
    h, inter = v.hidden_size, v.intermediate_size
    patch = v.in_channels
    patch *= v.patch_size ** 2
    patch *= v.temporal_patch_size
    merged = h * v.spatial_merge_size ** 2
    out = v.out_hidden_size
    block = (3 * h * h + 3 * h) + (h * h + h) + (2 * h * inter + inter + h) + 4 * h
    merger = (merged * merged + merged) + (merged * out + out)
    total = patch * h + h + v.num_position_embeddings * h
    total += v.depth * block + merger + 2 * h
    if deepstack:  # further mergers, with their norm over the merged width
        total += len(v.deepstack_visual_indexes) * (merger + 2 * merged)
    return total


def _gemma4(v: VisionConfig, text_hidden: int) -> int:
    """Gated MLP, q/k norms, four norms a layer; a 2-D position table; one projection."""
    h, inter = v.hidden_size, v.intermediate_size
    heads = v.num_attention_heads
    kv = (v.num_key_value_heads or heads)
    dim = v.head_dim
    layer = 2 * h * heads * dim + 2 * h * kv * dim + 3 * h * inter + 4 * h + 2 * dim
    total = v.num_hidden_layers * layer
    total += 3 * v.patch_size ** 2 * h
    return total + 2 * v.position_embedding_size * h + h * text_hidden

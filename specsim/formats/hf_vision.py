"""Parameters of the vision towers that come with a language model, where the kind is known.

Only their memory matters here: text requests never run them. Returns None for a tower of
another kind, which the caller notes.
"""

from specsim.formats.hf_fields import MAX_LAYERS, Fields


def vision_parameters(kind: str, vision: Fields, text_hidden: int) -> int | None:
    """Parameters of the tower with its projector; `kind` is the wrapper's model_type."""
    if kind in ("qwen3_5", "qwen3_5_moe"):
        return _qwen3_5(vision)
    if kind in ("qwen3_vl", "qwen3_vl_moe"):
        return _qwen3_5(vision, deepstack=True)
    if kind == "gemma4":
        return _gemma4(vision, text_hidden)
    return None


def _qwen3_5(v: Fields, *, deepstack: bool = False) -> int:
    """ViT with biases: qkv, proj, two-matrix MLP, LayerNorms; merger of merge**2 patches."""
    h, inter = v.integer("hidden_size"), v.integer("intermediate_size")
    patch = v.integer("in_channels", default=3, high=1000)
    patch *= v.integer("patch_size", high=10_000) ** 2
    patch *= v.integer("temporal_patch_size", high=1000)
    merged = h * v.integer("spatial_merge_size", high=1000) ** 2
    out = v.integer("out_hidden_size")
    block = (3 * h * h + 3 * h) + (h * h + h) + (2 * h * inter + inter + h) + 4 * h
    merger = (merged * merged + merged) + (merged * out + out)
    total = patch * h + h + v.integer("num_position_embeddings") * h
    total += v.integer("depth", high=MAX_LAYERS) * block + merger + 2 * h
    if deepstack:  # further mergers, with their norm over the merged width
        total += len(v.integers("deepstack_visual_indexes")) * (merger + 2 * merged)
    return total


def _gemma4(v: Fields, text_hidden: int) -> int:
    """Gated MLP, q/k norms, four norms a layer; a 2-D position table; one projection."""
    h, inter = v.integer("hidden_size"), v.integer("intermediate_size")
    heads = v.integer("num_attention_heads", high=10_000)
    kv = v.integer("num_key_value_heads", default=heads, high=10_000)
    dim = v.integer("head_dim", high=65_536)
    layer = 2 * h * heads * dim + 2 * h * kv * dim + 3 * h * inter + 4 * h + 2 * dim
    total = v.integer("num_hidden_layers", high=MAX_LAYERS) * layer
    total += 3 * v.integer("patch_size", high=10_000) ** 2 * h
    return total + 2 * v.integer("position_embedding_size") * h + h * text_hidden

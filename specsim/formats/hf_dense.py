"""Readers of dense decoder families: Llama and what is built like it.

Each takes the checked fields of a text config and returns a Plan. Biases and norms per
family follow the published model definitions (transformers 5.24, Apache-2.0, was the oracle
for parameter counts).
"""

from specsim.formats.hf_common import attention, layer_kinds, mlp, n_layers, plan, windows
from specsim.formats.hf_fields import Fields
from specsim.formats.hf_plan import LayerPlan, Plan, decoder_layer, family
from specsim.model.spec import Attention, DenseMLP


def _uniform(
    f: Fields,
    family: str,
    layers: list[LayerPlan],
    *,
    tied: bool = False,
) -> Plan:
    f.require("hidden_act", ("silu", "gelu_pytorch_tanh", "swish"), "is not a gated activation")
    return plan(f, family, layers, tied=tied)


@family("llama", "granite")
def llama(f: Fields) -> Plan:
    """Llama 1 to 3.3, SmolLM2, Vicuna, CodeLlama, Yi, Granite: optional biases, no q/k norm."""
    bias = f.boolean("attention_bias", False)
    hidden = f.integer("hidden_size")
    layers = [
        decoder_layer(attention(f, qkv_bias=bias, o_bias=bias, window=window), mlp(f), 2 * hidden)
        for window in windows(f, n_layers(f))
    ]
    return _uniform(f, "llama", layers)


@family("mistral", "ministral", "ministral3")
def mistral(f: Fields) -> Plan:
    """Mistral, Ministral: no biases; one window for all layers, or layer_types. A file that
    does not mention sliding_window has the architecture's default of 4096; null is none."""
    if f.text("model_type") != "ministral3":
        f = f.with_default("sliding_window", 4096)
    hidden = f.integer("hidden_size")
    layers = [
        decoder_layer(attention(f, window=window), mlp(f), 2 * hidden)
        for window in windows(f, n_layers(f))
    ]
    return _uniform(f, "mistral", layers)


@family("qwen2")
def qwen2(f: Fields) -> Plan:
    """Qwen2 and Qwen2.5: biases on q, k and v. The window is off unless use_sliding_window."""
    hidden = f.integer("hidden_size")
    off = not f.boolean("use_sliding_window", False)
    layers = [
        decoder_layer(attention(f, qkv_bias=True, window=0 if off else window), mlp(f), 2 * hidden)
        for window in windows(f, n_layers(f))
    ]
    return _uniform(f, "qwen2", layers)


@family("qwen3")
def qwen3(f: Fields) -> Plan:
    """Qwen3: per-head q/k norms; attention_bias covers all four projections."""
    hidden = f.integer("hidden_size")
    bias = f.boolean("attention_bias", False)
    off = not f.boolean("use_sliding_window", False)
    layers = [
        decoder_layer(
            attention(
                f,
                qkv_bias=bias,
                o_bias=bias,
                qk_norm="head",
                window=0 if off else window,
                head_dim_given=True,
            ),
            mlp(f),
            2 * hidden,
        )
        for window in windows(f, n_layers(f))
    ]
    return _uniform(f, "qwen3", layers)


@family("phi3")
def phi3(f: Fields) -> Plan:
    """Phi-3, Phi-4 (and mini): fused qkv and gate_up, no biases."""
    hidden = f.integer("hidden_size")
    layers = [
        decoder_layer(
            attention(f, window=window),
            mlp(f),
            2 * hidden,
            mixer_leaves=("qkv_proj", "o_proj"),
            dense_leaves=("gate_up_proj", "down_proj"),
        )
        for window in windows(f, n_layers(f))
    ]
    return _uniform(f, "phi3", layers)


@family("glm", "glm4")
def glm4(f: Fields) -> Plan:
    """GLM-4-0414 (glm4, four norms) and the converted GLM-4-9B (glm, two norms)."""
    hidden = f.integer("hidden_size")
    norms = 4 if f.text("model_type") == "glm4" else 2
    bias = f.boolean("attention_bias", f.text("model_type") == "glm")
    layers = [
        decoder_layer(
            attention(f, qkv_bias=bias, head_dim_given=True),
            mlp(f),
            norms * hidden,
            dense_leaves=("gate_up_proj", "down_proj"),
        )
        for _ in range(n_layers(f))
    ]
    return _uniform(f, "glm4", layers)


@family("gemma")
def gemma(f: Fields) -> Plan:
    """Gemma-1: two norms a layer, full attention, tied 256k vocabulary."""
    hidden = f.integer("hidden_size")
    bias = f.boolean("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, head_dim_given=True)
    layers = [decoder_layer(mixer, mlp(f), 2 * hidden) for _ in range(n_layers(f))]
    return plan(f, "gemma", layers, tied=True)


@family("olmo2", "olmo3")
def olmo(f: Fields) -> Plan:
    """OLMo-2 and OLMo-3: norms after the blocks, q/k norms over all heads; 3 has windows."""
    hidden = f.integer("hidden_size")
    bias = f.boolean("attention_bias", False)
    count = n_layers(f)
    if f.text("model_type") == "olmo3" and not f.has("layer_types"):
        kinds = [
            "full_attention" if (index + 1) % 4 == 0 else "sliding_attention"
            for index in range(count)
        ]
        f = f.with_default("layer_types", kinds)
    layers = [
        decoder_layer(
            attention(f, qkv_bias=bias, o_bias=bias, qk_norm="full", window=window),
            mlp(f),
            2 * hidden,
        )
        for window in windows(f, count)
    ]
    return _uniform(f, "olmo", layers)


@family("seed_oss")
def seed_oss(f: Fields) -> Plan:
    """Seed-OSS: q, k, v biases apart from the output's."""
    hidden = f.integer("hidden_size")
    mixer = attention(
        f,
        qkv_bias=f.boolean("attention_bias", True),
        o_bias=f.boolean("attention_out_bias", False),
        head_dim_given=True,
    )
    layers = [decoder_layer(mixer, mlp(f), 2 * hidden) for _ in range(n_layers(f))]
    return _uniform(f, "seed_oss", layers)


@family("ernie4_5")
def ernie(f: Fields) -> Plan:
    """ERNIE-4.5 dense: `use_bias` covers attention, MLP and norms are plain."""
    hidden = f.integer("hidden_size")
    bias = f.boolean("use_bias", False)
    layers = [
        decoder_layer(
            attention(f, qkv_bias=bias, o_bias=bias),
            DenseMLP(f.integer("intermediate_size"), bias=bias),
            2 * hidden,
        )
        for _ in range(n_layers(f))
    ]
    return _uniform(f, "ernie4_5", layers, tied=True)


@family("smollm3")
def smollm3(f: Fields) -> Plan:
    """SmolLM3: Llama with tied embeddings (some layers skip RoPE, which costs nothing)."""
    result = llama(f)
    result.family = "smollm3"
    result.tied = f.boolean("tie_word_embeddings", True)
    return result


@family("hunyuan_v1_dense")
def hunyuan_dense(f: Fields) -> Plan:
    """Hunyuan dense: Llama with q/k norms per head."""
    hidden = f.integer("hidden_size")
    bias = f.boolean("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="head")
    layers = [decoder_layer(mixer, mlp(f), 2 * hidden) for _ in range(n_layers(f))]
    return _uniform(f, "hunyuan", layers, tied=True)


@family("gemma2")
def gemma2(f: Fields) -> Plan:
    """Gemma-2: four norms a layer, every other layer with a window, tied 256k vocabulary."""
    return _gemma(f, "gemma2", qk_norm="none", pattern=2)


# What published Gemma-3 files leave out because it is the architecture's default.
_GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}


@family("gemma3_text")
def gemma3(f: Fields) -> Plan:
    """Gemma-3: per-head q/k norms, five windows to one full layer."""
    for name, value in _GEMMA3.items():
        f = f.with_default(name, value)
    return _gemma(f, "gemma3", qk_norm="head", pattern=6)


def _gemma(f: Fields, family: str, *, qk_norm: str, pattern: int) -> Plan:
    hidden = f.integer("hidden_size")
    count = n_layers(f)
    window = f.integer("sliding_window", default=4096, high=1 << 40)
    every = f.integer("sliding_window_pattern", "_sliding_window_pattern", default=pattern)
    kinds = layer_kinds(f, count, ("full_attention", "sliding_attention")) or tuple(
        "full_attention" if (index + 1) % every == 0 else "sliding_attention"
        for index in range(count)
    )
    layers = []
    for kind in kinds:
        size = window if kind == "sliding_attention" else 0
        mixer: Attention = attention(f, qk_norm=qk_norm, window=size, head_dim_given=True)
        layers.append(decoder_layer(mixer, mlp(f), 4 * hidden))
    return plan(f, family, layers, tied=True)

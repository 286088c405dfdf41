"""The objects of a Hugging Face config as declared shapes: every field that is read, once.

`needed` fields must be there where an architecture reads them, see `hf_object`. Fields follow
transformers 5.24, the publishers' own configs, SpecForge, speculators, modelopt and
compressed-tensors.
"""

from typing import Annotated, Literal

from pydantic import Field

from specsim.checked import Rule
from specsim.formats.hf_object import (
    MAX_WIDTH,
    ConfigObject,
    ExpertCount,
    Few,
    HeadDim,
    Heads,
    Integers,
    Kernel,
    LastLayer,
    Layers,
    LayersOrNone,
    Object,
    Positions,
    Some,
    Strings,
    Switch,
    Text,
    Width,
    WidthOrNone,
    between,
    either,
    needed,
)


class LinearAttention(ConfigObject):
    """`linear_attn_config` of Kimi-Linear; layers are counted from 1."""

    full_attn_layers: Integers = ()
    kda_layers: Integers = ()
    num_heads: Heads = needed()
    head_dim: HeadDim = needed()
    short_conv_kernel_size: Kernel = 4
    use_full_rank_gate: Switch = False


class NasAttention(ConfigObject):
    """Attention of one searched layer (`block_configs` of nemotron-nas)."""

    no_op: Switch = False
    n_heads_in_group: Heads = needed()
    window_length: Positions | None = None


class NasFfn(ConfigObject):
    no_op: Switch = False
    ffn_mult: Annotated[float, Field(gt=0, le=1000), Rule("must be from 0 to 1000")] = needed()


class NasBlock(ConfigObject):
    attention: NasAttention = needed()
    ffn: NasFfn = needed()


class BlockSparse(ConfigObject):
    """`sparse_attention_config` of MiniMax-M3."""

    use_sparse_attention: Switch = True
    sparse_num_index_heads: Heads = needed()
    sparse_index_dim: HeadDim = needed()
    sparse_topk_blocks: Width = needed()
    sparse_block_size: Width = needed()


class TextConfig(ConfigObject):
    """A decoder's sizes, of every family that is read."""

    model_type: Text = ""
    architectures: object = None
    hidden_size: Width = needed()
    intermediate_size: Width = needed()
    num_hidden_layers: Layers = needed()
    vocab_size: Width = needed()
    max_position_embeddings: Positions = 0
    tie_word_embeddings: Switch | None = None
    mlp_bias: Switch = False
    # attention
    num_attention_heads: Heads = needed()
    num_key_value_heads: Heads | None = None
    head_dim: HeadDim | None = None
    attention_head_dim: HeadDim | None = None
    attention_bias: Switch | None = None
    attention_out_bias: Switch = False
    qkv_bias: Switch = True
    use_bias: Switch = False
    use_qkv_bias: Switch = False
    use_qk_norm: Switch | None = either(None, "use_qk_norm", "qk_layernorm")
    bias: Switch = False
    use_parallel_residual: Switch = False
    new_decoder_architecture: Switch = False
    multi_query: Switch = True
    num_kv_heads: Heads = needed()
    num_ln_in_parallel_attn: Few | None = None
    attn_output_gate: Switch = True
    attention_k_eq_v: Switch = False
    global_head_dim: HeadDim | None = None
    num_global_key_value_heads: Heads | None = None
    num_kv_shared_layers: LayersOrNone = 0
    use_double_wide_mlp: Switch = False
    hidden_size_per_layer_input: WidthOrNone = 0
    vocab_size_per_layer_input: Width = needed()
    # window layers with heads of their own (MiMo-V2)
    swa_num_attention_heads: Heads | None = None
    swa_num_key_value_heads: Heads | None = None
    swa_head_dim: HeadDim | None = None
    swa_v_head_dim: HeadDim | None = None
    add_swa_attention_sink_bias: Switch = False
    add_full_attention_sink_bias: Switch = False
    # window layers with heads of their own (Step-3.5), a gate per head
    attention_other_setting: Object | None = None
    use_head_wise_attn_gate: Switch = False
    num_attention_groups: Heads | None = None
    share_expert_dim: WidthOrNone = 0
    moe_layers_enum: Text = ""
    use_moe_router_bias: Switch = True
    # which layers see how much
    attn_type_list: Integers = ()
    layer_types: Strings | None = None
    sliding_window: Positions | None = None
    use_sliding_window: Switch | None = None
    max_window_layers: Annotated[int, *between(0, 1 << 30)] | None = None
    sliding_window_pattern: Width | None = either(
        None, "sliding_window_pattern", "_sliding_window_pattern"
    )
    attention_chunk_size: Positions = 8192
    no_rope_layers: Integers = ()
    full_attention_interval: Layers = 4
    # short convolutions and biases by distance (Inkling)
    sliding_window_size: Width = needed()
    conv_kernel_size: Kernel = either(4, "conv_kernel_size", "sconv_kernel_size")
    d_rel: HeadDim = needed()
    rel_extent: Width = needed()
    n_layers_per_attn_res_block: Layers = needed()
    # latent attention and its sparse indexer
    q_lora_rank: WidthOrNone = 0
    kv_lora_rank: Width = needed()
    qk_nope_head_dim: HeadDim = needed()
    qk_rope_head_dim: WidthOrNone = needed()
    v_head_dim: HeadDim = needed()
    index_n_heads: Heads = needed()
    index_head_dim: HeadDim = needed()
    index_topk: Width = needed()
    indexer_types: Strings | None = None
    index_kpool: Some = 1
    # compressed sparse attention, residual streams and the drafter of DeepSeek-V4
    o_groups: Heads = needed()
    o_lora_rank: Width = needed()
    compress_ratios: Integers = ()
    num_hash_layers: LayersOrNone = 0
    hc_mult: Some = needed()
    expert_dtype: Text = ""
    dspark_block_size: Few = 0
    dspark_markov_rank: WidthOrNone = 0
    dspark_target_layer_ids: Integers = ()
    index_topk_freq: Layers = 1
    index_skip_topk_offset: LayersOrNone = 2
    sparse_attention_config: BlockSparse = needed()
    indexer_n_heads: Heads = needed()
    indexer_head_dim: HeadDim = needed()
    indexer_budget: Width = needed()
    # residual streams and n-gram embeddings of Qwen3.8-Flash-Next
    hc_count: Some = needed()
    hc_lowrank: Width = needed()
    ple_layer_ids: Integers = ()
    ple_embed_dim: Width = needed()
    ple_conv_kernel_size: Kernel = 4
    ngram_size: Few = 3
    heads_per_ngram: Few = 8
    ngram_vocab_size_base: Annotated[int, *between(1, 1 << 40)] = needed()
    dense_intermediate_size: Width = needed()
    shared_intermediate_size: Width = needed()
    # experts
    experts: ExpertCount = needed(
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"
    )
    top_k: ExpertCount = needed(
        "num_experts_per_tok", "experts_per_token", "moe_k", "top_k_experts",
        "num_experts_per_token", "moe_top_k",
    )
    moe_intermediate_size: Width = needed()
    intermediate_size_mlp: Width = needed()
    shared_expert_intermediate_size: WidthOrNone | None = None
    moe_shared_expert_intermediate_size: Width | None = None
    shared_experts: Few = either(
        0, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts"
    )
    shared_mlp_width: WidthOrNone = either(0, "shared_intermediate_size")
    use_expert_bias: Switch = True
    lm_head_bias: Switch = False
    moe_latent_size: WidthOrNone = 0
    routed_expert_hidden_size: WidthOrNone | None = None
    latent_moe_use_norm: Switch = False
    # two attentions a layer, experts without weights (LongCat)
    num_layers: Layers = needed()
    ffn_hidden_size: Width = needed()
    expert_ffn_hidden_size: Width = needed()
    moe_topk: ExpertCount = needed()
    zero_expert_num: WidthOrNone = 0
    topk_method: Text = "noaux_tc"
    n_group: WidthOrNone = 0
    topk_group: WidthOrNone = 0
    use_routing_bias: Switch = True
    moe_router_enable_expert_bias: Switch = False
    enable_moe_block: Switch = False
    # banks of experts that layers share (Intern-S2-Mobius)
    num_blocks: Layers = 4
    mtp_num_experts: ExpertCount = needed()
    mtp_num_experts_per_tok: ExpertCount = needed()
    # which layers have them
    decoder_sparse_step: Layers = 1
    mlp_only_layers: Integers = ()
    mlp_layer_types: Strings | None = None
    first_k_dense_replace: LayersOrNone | None = None
    num_dense_layers: LayersOrNone = 0
    global_attn_every_n_layers: Layers = 4
    moe_layer_freq: Layers = 1
    moe_layers: Integers = ()
    moe_layer_start_index: LayersOrNone = 1
    moe_layer_end_index: LastLayer = -1
    moe_layer_interval: Layers = 1
    interleave_moe_layer_step: Layers = 1
    # recurrent layers
    linear_attn_config: LinearAttention = needed()
    layer_group_size: Layers = 6
    short_conv_kernel_size: Kernel = 4
    mla_use_output_gate: Switch = False
    gated_attention: Switch = True
    full_attention_layers: Integers = ()
    norm_type: Text = "ZeroCenteredGatedNorm"
    layernorm_type: Text = "pre_post"
    nextn_is_sparse: Switch = False
    attn_res_block_size: LayersOrNone | None = None
    linear_num_key_heads: Heads = needed()
    linear_num_value_heads: Heads = needed()
    linear_key_head_dim: HeadDim = needed()
    linear_value_head_dim: HeadDim = needed()
    linear_conv_kernel_dim: Kernel = 4
    mamba_ssm_dtype: Text = "float32"
    mamba_ssm_cache_dtype: Text = "float32"
    mamba_num_heads: Heads = needed()
    mamba_head_dim: HeadDim = needed()
    n_groups: Heads = needed("n_groups", "mamba_n_groups")
    ssm_state_size: HeadDim = needed("ssm_state_size", "mamba_state_size")
    mamba_expand: Some = 2
    mamba_dt_rank: Width | Literal["auto"] = "auto"
    attn_layer_period: Layers = 8
    attn_layer_offset: LayersOrNone = 4
    expert_layer_period: Layers = 2
    expert_layer_offset: LayersOrNone = 1
    conv_kernel: Kernel = either(4, "conv_kernel", "mamba_d_conv", "conv_L_cache")
    use_conv_bias: Switch = True
    mamba_rms_norm: Switch = False
    attn_layer_indices: Integers = ()
    full_attn_idxs: Integers | None = None
    conv_bias: Switch = False
    block_auto_adjust_ff_dim: Switch = True
    block_ffn_dim_multiplier: Annotated[float, Field(gt=0, le=1000)] = 1.0
    block_multiple_of: Width = 256
    hybrid_override_pattern: Text = ""
    layers_block_type: Strings | None = None
    # heads for multi-token prediction
    num_nextn_predict_layers: LayersOrNone | None = None
    mtp_num_hidden_layers: LayersOrNone = 0
    mtp_use_dedicated_embeddings: Switch = False
    mtp_hybrid_override_pattern: Text = ""
    mtp_layers_block_type: Strings | None = None
    use_mtp: Switch = False


class VisionConfig(ConfigObject):
    """A vision tower's sizes."""

    hidden_size: Width = needed()
    intermediate_size: Width = needed()
    in_channels: Some = 3
    patch_size: Annotated[int, *between(1, 10_000)] = needed()
    temporal_patch_size: Some = needed()
    spatial_merge_size: Some = needed()
    embed_dim: Width = needed()
    mlp_ratio: Some = 4
    image_size: Width = needed()
    qkv_bias: Switch = True
    qk_normalization: Switch = False
    norm_type: Text = "layer_norm"
    out_hidden_size: Width = needed()
    num_position_embeddings: Width = needed()
    depth: Layers = needed()
    deepstack_visual_indexes: Integers = ()
    num_attention_heads: Annotated[int, *between(1, 10_000)] = needed()
    num_key_value_heads: Annotated[int, *between(1, 10_000)] | None = None
    head_dim: HeadDim = needed()
    num_hidden_layers: Layers = needed()
    position_embedding_size: Width = needed()


class HfConfig(ConfigObject):
    """The top of a config.json: its parts, or a text model itself."""

    model_type: Text = ""
    text_config: Object | None = either(None, "text_config", "llm_config", "language_config")
    vision_config: Object | None = None
    quantization_config: Object | None = None


class KvScheme(ConfigObject):
    num_bits: object = None


class LayerFormat(ConfigObject):
    """The format of one module (modelopt)."""

    quant_algo: Text = ""


class GroupWeights(ConfigObject):
    num_bits: Annotated[int, *between(1, 64)] = needed()
    type: Text = "int"
    strategy: Text = ""
    symmetric: Switch = True
    group_size: Annotated[int, *between(-1, MAX_WIDTH)] = 0


class FormatGroup(ConfigObject):
    """A group of modules in one format (compressed-tensors)."""

    weights: GroupWeights = needed()
    input_activations: Object | None = None
    targets: Strings = ("Linear",)


class Bits(ConfigObject):
    """A module's own width (GPTQ's `dynamic`, auto-round's `extra_config`)."""

    bits: Annotated[int, *between(2, 32)] | None = None
    group_size: Annotated[int, *between(-1, MAX_WIDTH)] | None = None


class QuarkTensor(ConfigObject):
    dtype: Text = ""
    group_size: Annotated[int, *between(-1, MAX_WIDTH)] = 0


class QuarkLayer(ConfigObject):
    """A layer's formats (AMD Quark)."""

    weight: QuarkTensor | None = None
    input_tensors: QuarkTensor | None = None
    output_tensors: QuarkTensor | None = None


class QuantConfig(LayerFormat):
    """quantization_config of all methods, and hf_quant_config.json (`quantization` inside it)."""

    quant_method: Text = ""
    quantization: "QuantConfig | None" = None
    modules_to_not_convert: Strings = ()
    ignored_layers: Strings = ()
    ignore: Strings = ()
    exclude_modules: Strings = ()
    kv_cache_scheme: KvScheme | str | None = None
    kv_cache_quant_algo: Text = ""
    weight_block_size: Integers = ()
    expert_dtype: Text = ""
    bits: Annotated[int, *between(2, 8)] = needed("bits", "w_bit")
    group_size: Annotated[int, *between(-1, MAX_WIDTH)] = either(
        128, "group_size", "q_group_size"
    )
    lm_head: Switch = False
    quantized_layers: dict[str, LayerFormat] | None = None
    config_groups: dict[str, FormatGroup] = needed()
    format: Text = ""
    sparsity_config: Object = Field({})
    # GPTQ and auto-round
    dynamic: dict[str, Bits] = Field({})
    modules_in_block_to_quantize: tuple[Strings, ...] = Field((), strict=False)
    data_type: Text = "int"
    act_bits: Annotated[int, *between(2, 32)] = 16
    block_name_to_quantize: Text | Strings = ()
    extra_config: dict[str, Bits] = Field({})
    # bitsandbytes
    load_in_4bit: Switch = either(False, "load_in_4bit", "_load_in_4bit")
    load_in_8bit: Switch = either(False, "load_in_8bit", "_load_in_8bit")
    bnb_4bit_use_double_quant: Switch = False
    llm_int8_skip_modules: Strings = ()
    # HQQ and torchao
    quant_config: Object = Field({})
    skip_modules: Strings = ()
    quant_type: Text | Object = needed()
    quant_type_kwargs: Object = Field({})
    # Quark
    exclude: Strings = ()
    global_quant_config: QuarkLayer | None = None
    layer_quant_config: dict[str, QuarkLayer] = Field({})

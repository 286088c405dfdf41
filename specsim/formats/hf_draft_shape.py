"""The objects of a draft network's config as declared shapes: a decoder's fields and its own.

Fields follow SpecForge 0.2 (MIT), speculators 0.9 (Apache-2.0) and the publishers' own configs.
"""

from pydantic import Field

from specsim.formats.hf_object import (
    ConfigObject,
    Heads,
    Integers,
    Positions,
    Some,
    Strings,
    Switch,
    Text,
    Width,
    WidthOrNone,
    either,
    needed,
)
from specsim.formats.hf_shape import TextConfig


class EagleConfig(ConfigObject):
    eagle_aux_hidden_state_layer_ids: Integers = ()


class BlockFields(ConfigObject):
    """What a block drafter says of its heads, in `dflash_config` or at the top."""

    target_layer_ids: Integers = ()
    markov_rank: WidthOrNone = 0
    markov_head_type: Text = "vanilla"
    enable_confidence_head: Switch = either(
        False, "enable_confidence_head", "use_confidence_head"
    )
    confidence_head_with_markov: Switch = False
    # Domino
    gru_hidden_dim: WidthOrNone = 0
    emb_dim: WidthOrNone = 0
    # DFlash2
    selector_rank: WidthOrNone = 0
    selector_top_k: WidthOrNone = 0
    conv_kernel_size: WidthOrNone = 0
    conv_group_size: Some = 1


class DflashConfig(BlockFields):
    attention_mode: Text = ""
    attention_sink_bias: Switch = False
    use_swa: Switch = False
    swa_window_size: Positions = 0


class DraftConfig(TextConfig, BlockFields):
    """A draft network's config: a decoder's fields and its own."""

    speculators_model_type: Text = ""
    architectures: Strings = ()
    bias: Switch = True
    draft_vocab_size: Width | None = None
    target_hidden_size: Width | None = None
    norm_before_fc: Switch = False
    fc_norm: Switch = False
    eagle_aux_hidden_state_layer_ids: Integers = ()
    aux_hidden_state_layer_ids: Integers = ()
    heads: Heads = needed("medusa_num_heads", "num_heads")
    block_size: Some | None = None
    num_centroids: Width = needed()
    centroid_intermediate_top_k: Some = 32
    backbone_hidden_size: Width = needed()
    use_ordered_embeddings: Switch = False
    # where the layer's fields stand in other layouts
    transformer_layer_config: "DraftConfig | None" = None
    text_config: "DraftConfig | None" = None
    eagle_config: EagleConfig = Field(default_factory=EagleConfig)
    dflash_config: DflashConfig = Field(default_factory=DflashConfig)

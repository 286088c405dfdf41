"""Drafter configs: layouts, kinds, and the checks against their target."""

from typing import Any

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_draft_shape import DraftConfig
from specsim.formats.hf_drafters import detect_kind, drafter_from_config
from specsim.model.catalogue import find_model
from specsim.model.counts import parameters
from specsim.model.drafter_counts import (
    drafter_kv_bytes,
    drafter_parameters,
    drafter_pass_bytes,
)
from specsim.model.mixers import Attention

LAYER = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
ATTENTION = 2 * 64 * 64 + 2 * 64 * 32
MLP = 3 * 64 * 128


def test_eagle3_in_both_layouts() -> None:
    flat = drafter_from_config({**LAYER, "draft_vocab_size": 40}, "d")
    nested = drafter_from_config(
        {
            "speculators_model_type": "eagle3",
            "draft_vocab_size": 40,
            "transformer_layer_config": LAYER,
        },
        "d",
    )
    assert flat == nested
    assert flat.kind == "eagle3"
    # fc 3h*h; q, k, v of 2h; o; MLP; own head; norms of embedding, hidden, MLP, output
    own = 3 * 64 * 64 + 2 * 64 * (64 + 32 + 32) + 64 * 64 + MLP + 40 * 64 + 4 * 64
    assert drafter_parameters(flat) == own
    first = flat.layers[0].mixer
    assert isinstance(first, Attention)
    assert first.input_mult == 2


def test_eagle3_of_a_wider_target() -> None:
    drafter = drafter_from_config({**LAYER, "draft_vocab_size": 40, "target_hidden_size": 128}, "d")
    assert (drafter.fc_in, drafter.fc_out) == (3 * 128, 64)
    two = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}}
    assert drafter_from_config({**LAYER, "draft_vocab_size": 40, **two}, "d").fc_in == 2 * 64


def test_p_eagle_has_ordinary_further_layers() -> None:
    config = {
        **LAYER,
        "architectures": ["PEagleDraftModel"],
        "draft_vocab_size": 40,
        "num_hidden_layers": 4,
    }
    drafter = drafter_from_config(config, "d")
    assert drafter.kind == "p-eagle"
    assert [group.count for group in drafter.layers] == [1, 3]
    further = drafter.layers[1].mixer
    assert isinstance(further, Attention)
    assert further.input_mult == 1


def test_eagle1_looks_like_a_llama_and_needs_to_be_named() -> None:
    assert drafter_from_config(dict(LAYER), "d").kind == "model"
    eagle = drafter_from_config(dict(LAYER), "d", "eagle")
    # fc with bias, one layer without input norm; embedding, norm and head are the target's
    assert drafter_parameters(eagle) == 2 * 64 * 64 + 64 + ATTENTION + MLP + 64
    assert drafter_pass_bytes(eagle) == 2 * (drafter_parameters(eagle) + 100 * 64)


def test_whole_models_are_drafters() -> None:
    drafter = drafter_from_config(dict(LAYER), "d")
    assert (drafter.own_head, drafter.own_embed) == (True, True)
    assert drafter_parameters(drafter) == 2 * 6400 + ATTENTION + MLP + 3 * 64


def test_medusa_takes_its_sizes_from_the_target() -> None:
    config = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    vicuna = find_model("vicuna-13b")
    drafter = drafter_from_config(config, "m", target=vicuna)
    assert drafter_parameters(drafter) == 3 * (5120 * 5120 + 32_000 * 5120)
    with pytest.raises(ModelConfigError, match="give the target model"):
        drafter_from_config(config, "m")
    with pytest.raises(ModelConfigError, match="medusa_num_layers = 2"):
        drafter_from_config({**config, "medusa_num_layers": 2}, "m", target=vicuna)


def dflash(**more: Any) -> dict[str, Any]:
    return {
        **LAYER,
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "block_size": 16,
        "num_hidden_layers": 2,
        "dflash_config": {"target_layer_ids": [1, 2, 3]},
        **more,
    }


def test_dflash_drafts_a_block_with_shared_tables() -> None:
    drafter = drafter_from_config(dflash(), "d")
    assert (drafter.kind, drafter.block_size, drafter.fc_in) == ("dflash", 16, 3 * 64)
    per_layer = ATTENTION + MLP + 2 * 64 + 2 * 8
    assert drafter_parameters(drafter) == 2 * per_layer + 3 * 64 * 64 + 2 * 64
    with pytest.raises(ModelConfigError, match="target_layer_ids"):
        drafter_from_config(dflash(dflash_config={}), "d")


def test_dspark_adds_a_markov_and_a_confidence_head() -> None:
    base = drafter_parameters(drafter_from_config(dflash(), "d"))
    section = {"target_layer_ids": [1, 2, 3], "markov_rank": 4, "enable_confidence_head": True}
    config = dflash(architectures=["DSparkDraftModel"], dflash_config=section)
    drafter = drafter_from_config(config, "d")
    assert drafter.kind == "dspark"
    # a table of 100 x 4 of which one row is read, and 4 -> 100; one output with a bias
    assert drafter_parameters(drafter) == base + 2 * 400 + 65
    assert drafter.lookup_weights == 400
    section["markov_head_type"] = "fancy"
    with pytest.raises(ModelConfigError, match="vanilla, gated or rnn"):
        drafter_from_config(config, "d")


def test_a_drafter_for_another_target_is_refused() -> None:
    target = find_model("Qwen3-8B")
    with pytest.raises(ModelConfigError, match="must equal those of Qwen3-8B"):
        drafter_from_config(dflash(), "d", target=target)
    with pytest.raises(ModelConfigError, match="must not exceed vocab_size = 100"):
        drafter_from_config({**LAYER, "draft_vocab_size": 101}, "d")
    with pytest.raises(ModelConfigError, match="kind 'magic' is not known"):
        drafter_from_config(dict(LAYER), "d", "magic")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, "gemma-assistant"),
        ({"model_type": "medusa"}, "medusa"),
        ({"model_type": "eagle"}, "eagle"),
        ({"speculators_model_type": "peagle"}, "p-eagle"),
        ({"dflash_config": {}}, "dflash"),
        ({"architectures": ["LlamaForCausalLM"]}, "model"),
    ],
)
def test_kinds(config: dict[str, Any], kind: str) -> None:
    assert detect_kind(DraftConfig.of(config, "x")) == kind


def test_unknown_speculators_method() -> None:
    with pytest.raises(ModelConfigError, match="'mlp'"):
        detect_kind(DraftConfig.of({"speculators_model_type": "mlp"}, "x"))


def test_mtp_heads_share_the_targets_tables() -> None:
    for name in ("Qwen3.6-27B", "DeepSeek-V3", "Nemotron-3-Super-120B-A12B", "Hy3-295B-A21B"):
        spec = find_model(name)
        assert spec.mtp is not None
        assert not spec.mtp.own_head
        assert not spec.mtp.own_embed
        assert spec.mtp.fc_in == 2 * spec.hidden
        assert parameters(spec).mtp == drafter_parameters(spec.mtp)
    ernie = find_model("ERNIE-4.5-21B-A3B")
    assert ernie.mtp is not None  # a dense layer, although the body is a mixture
    assert drafter_parameters(ernie.mtp) == drafter_parameters(ernie.mtp, active=True)
    assert find_model("MiniMax-M2").mtp is None


LATENT = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip


def test_a_head_with_latent_attention_caches_its_latent() -> None:
    """TorchSpec and AQ-MedAI heads of Kimi-K2.5: the latents read the joined input of 2h."""
    drafter = drafter_from_config(
        {
            "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2",
            "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 1,
            "num_attention_heads": 32, "num_key_value_heads": 32, **LATENT, "q_lora_rank": 1024,
            "vocab_size": 50_000, "draft_vocab_size": 50_000,
        },
        "d",
    )  # fmt: skip
    attention = 8192 * 1024 + 1024 * 32 * 192 + 8192 * 576 + 512 * 32 * 256 + 32 * 128 * 4096
    own = attention + 1536 + 3 * 4096 * 8192 + 3 * 4096 * 4096 + 50_000 * 4096 + 4 * 4096
    assert (drafter.kind, drafter_parameters(drafter)) == ("eagle3", own)
    assert drafter_kv_bytes(drafter).per_token == 576 * 2


BLOCK = {
    "hidden_size": 6144, "intermediate_size": 12288, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200_064, "block_size": 8,
}  # fmt: skip


def test_dspark_heads_equal_their_published_sizes() -> None:
    """Names and layouts of the publishers; bytes of the files, less the tables they repeat."""
    kimi = drafter_from_config(
        {
            **BLOCK, "architectures": ["K3DSparkModel"], "model_type": "k3_dspark",
            "hidden_size": 7168, "intermediate_size": 14336, "num_hidden_layers": 5,
            "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": None, **LATENT,
            "vocab_size": 163_840, "draft_vocab_size": 163_840, "target_hidden_size": 7168,
            "target_layer_ids": [2, 23, 47, 71, 89], "markov_rank": 256,
            "markov_head_type": "vanilla", "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }
    )  # fmt: skip
    assert (kimi.kind, 2 * drafter_parameters(kimi)) == ("dspark", 4_775_815_682)
    assert drafter_kv_bytes(kimi).per_token == 5 * 576 * 2
    minimax = drafter_from_config(
        {
            **BLOCK, "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3",
            "num_hidden_layers": 6, "sliding_window": 1024, "use_sliding_window": True,
            "layer_types": ["sliding_attention"] * 6,
            "dflash_config": {
                "target_layer_ids": [1, 12, 23, 35, 46, 57], "projector_type": "dspark",
                "markov_rank": 256, "markov_head_type": "vanilla", "use_confidence_head": True,
            },
        }
    )  # fmt: skip
    embedding = 200_064 * 6144
    assert 4 * drafter_parameters(minimax) + 2 * embedding == pytest.approx(10.72e9, rel=5e-4)
    gemma = drafter_from_config(
        {
            "architectures": ["Gemma4DSparkModel"], "model_type": "gemma4_text",
            "attention_k_eq_v": True, "block_size": 7, "confidence_head_with_markov": True,
            "enable_confidence_head": True, "global_head_dim": 512, "head_dim": 256,
            "hidden_size": 3840, "intermediate_size": 15360, "markov_rank": 256,
            "layer_types": ["full_attention"] * 5, "num_attention_heads": 16,
            "num_global_key_value_heads": 1, "num_hidden_layers": 5, "num_key_value_heads": 8,
            "sliding_window": 1024, "target_layer_ids": [5, 17, 29, 41, 46], "vocab_size": 262_144,
        }
    )  # fmt: skip
    tables = 2 * 262_144 * 3840
    assert 2 * (drafter_parameters(gemma) + tables) == pytest.approx(6.86e9, rel=1e-3)


@pytest.mark.parametrize(
    ("architecture", "section", "part"),
    [
        ("DFlash2DraftModel", {"conv_kernel_size": 2, "conv_group_size": 7}, "must divide"),
        ("DFlashDraftModel", {"mixture_heads": 4}, "mixture_heads = 4"),
    ],
)  # fmt: skip
def test_parts_that_are_not_modelled_are_named(
    architecture: str, section: dict[str, int], part: str
) -> None:
    config = {
        **BLOCK, "architectures": [architecture], "model_type": "qwen3", "num_hidden_layers": 3,
        "dflash_config": {"target_layer_ids": [1, 11, 21], **section},
    }  # fmt: skip
    with pytest.raises(ModelConfigError, match=part):
        drafter_from_config(config, "d")


def test_an_unknown_draft_network_is_not_taken_for_another() -> None:
    config = {**LAYER, "architectures": ["FrugalEagle9ForCausalLM"], "draft_vocab_size": 40}
    with pytest.raises(ModelConfigError, match=r"FrugalEagle9ForCausalLM.*not a known draft"):
        drafter_from_config(config, "d")

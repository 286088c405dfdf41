"""Heads of later drafters: DFlash2, Domino, Gemma's clusters."""

from typing import Any

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_drafters import drafter_from_config
from specsim.model.catalogue import find_drafter
from specsim.model.drafter_counts import drafter_kv_bytes, drafter_parameters, drafter_pass_bytes
from specsim.model.spec import Drafter
from specsim.ops.network import markov_ops
from specsim.ops.passes import drafter_pass, pass_ops
from specsim.ops.work import UNIFORM, Parallel, Work

H, V, LAYERS = 64, 160, 3
BLOCK: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": H,
    "intermediate_size": 128, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 8, "vocab_size": V, "block_size": 8,
}  # fmt: skip


def block(**section: object) -> Drafter:
    return drafter_from_config({**BLOCK, "dflash_config": {"target_layer_ids": [1, 5], **section}})


def bytes_read(drafter: Drafter, seqs: int) -> float:
    """Weights that drafting 8 tokens for each of `seqs` sequences reads."""
    work = Work(seqs, 8, 100, (), seqs * 8, seqs * 7)
    ops = pass_ops(drafter_pass(drafter, work, Parallel()), "bf16", UNIFORM)
    return sum(op.weight_bytes * op.count for op in (*ops, *markov_ops(drafter, seqs, 7)))


def test_published_sizes() -> None:
    assert drafter_parameters(find_drafter("DFlash2-Qwen3.8-27B")) == pytest.approx(
        1.92e9, rel=3e-3
    )
    # keras-hub counts a scalar for each of the four layers besides
    assert drafter_parameters(find_drafter("Gemma-4-E2B-it-assistant")) + 4 == 77_731_332
    k3 = find_drafter("DSpark-Kimi-K3")
    assert drafter_parameters(k3) * 2 == 4_775_815_682  # bytes of the file, less its embedding
    assert drafter_kv_bytes(k3).per_token == 5 * 576 * 2


def test_dflash2_convolves_in_every_layer_and_selects_among_candidates() -> None:
    plain = block()
    wavy = block(conv_kernel_size=2, conv_group_size=16)
    layer = 2 * (2 * 2 * H + H * 2 * 2 * (H // 16))  # base kernels; the product for the rest
    assert drafter_parameters(wavy) - drafter_parameters(plain) == LAYERS * layer
    assert bytes_read(wavy, 4) - bytes_read(plain, 4) == 2 * LAYERS * layer
    chooser = block(selector_rank=16, selector_top_k=4)
    assert drafter_parameters(chooser) - drafter_parameters(plain) == 2 * V * 16 + H * 16
    assert bytes_read(chooser, 4) - bytes_read(plain, 4) == 2 * H * 16  # the tables: single rows


def test_domino_walks_a_gru_token_by_token() -> None:
    domino, plain = block(gru_hidden_dim=32, emb_dim=16), block()
    head = 3 * 32 * (H + 32) + (H + 32) * 16 + 16 * V
    assert drafter_parameters(domino) - drafter_parameters(plain) == head
    assert bytes_read(domino, 4) - bytes_read(plain, 4) == 7 * 2 * head
    assert [op.count for op in markov_ops(domino, 4, 7)] == [7.0] * 4


def test_a_window_over_latents_ends_the_growth_of_its_cache() -> None:
    latent = {
        "q_lora_rank": 32, "kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "sliding_window": 128, "use_sliding_window": True,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    }  # fmt: skip
    config = {**BLOCK, **latent, "dflash_config": {"target_layer_ids": [1, 5]}}
    kv = drafter_kv_bytes(drafter_from_config(config))
    assert (kv.full, kv.sliding) == (72 * 2, ((128, 2 * 72 * 2),))


def test_clusters_spare_most_of_the_head() -> None:
    drafter = find_drafter("Gemma-4-E4B-it-assistant")
    assert drafter.candidates == 32 * 262_144 // 2048
    rest = drafter_parameters(drafter) - (262_144 - drafter.candidates) * drafter.hidden
    assert drafter_pass_bytes(drafter) == 2 * rest
    head = 2 * 262_144 * drafter.hidden
    assert bytes_read(drafter, 1) < head / 2 < head < bytes_read(drafter, 100)


def test_clusters_must_divide_the_tokens() -> None:
    config: dict[str, Any] = {
        "architectures": ["Gemma4AssistantForCausalLM"], "backbone_hidden_size": 128,
        "use_ordered_embeddings": True, "num_centroids": 30, "text_config": {
            "hidden_size": H, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": V,
            "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
            "sliding_window": 32, "layer_types": ["sliding_attention"]},
    }  # fmt: skip
    with pytest.raises(ModelConfigError, match="num_centroids = 30: must divide the 160 tokens"):
        drafter_from_config(config)


def test_a_file_without_a_block_length_leaves_it_to_the_server() -> None:
    config = {key: value for key, value in BLOCK.items() if key != "block_size"}
    drafter = drafter_from_config({**config, "target_layer_ids": [1, 5]})
    assert drafter.block_size == 0

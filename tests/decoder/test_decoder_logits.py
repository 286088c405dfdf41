"""Logits equal those of transformers for every family, in every shape of pass the decoder uses."""

import json
from dataclasses import replace

import pytest
import torch

from decoder_helpers import CONFIGS, LLAMA, SlotHarness, hf_folder
from specsim.decoder.config import RopeScaling
from specsim.decoder.models import load_model

transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

VARIANTS = {
    **CONFIGS,
    "llama3_rope": replace(LLAMA, rope_theta=500000.0, rope_scaling=RopeScaling(
        "llama3", 8.0, 1.0, 4.0, 32), head_dim=16),
    "linear_rope": replace(LLAMA, rope_scaling=RopeScaling("linear", 4.0)),
    "moe_unnormalised": replace(CONFIGS["qwen3_moe"], norm_topk_prob=False),
    "one_kv_head": replace(LLAMA, num_kv_heads=1),
    "mha": replace(LLAMA, num_kv_heads=6),
}
TOLERANCE = 1e-5


def oracle(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


@pytest.fixture(scope="module", params=sorted(VARIANTS))
def case(request, tmp_path_factory):
    """(our model, ids, oracle's logits) of one variant, weights shared through a folder."""
    config = VARIANTS[request.param]
    folder = hf_folder(tmp_path_factory.mktemp(request.param), config, seed=3)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, config.vocab_size, (60,), generator=generator).tolist()
    model = load_model(folder, dtype="fp32", native=False).model
    return model, ids, oracle(folder, ids)


def test_whole_prompt(case):
    model, ids, want = case
    got = SlotHarness(model).prompt(0, ids, 0)
    assert (got - want).abs().max() <= TOLERANCE
    assert want.abs().max() > 0.5  # the comparison is not of zeros


def test_prompt_in_chunks_then_steps_of_several_widths(case):
    model, ids, want = case
    harness = SlotHarness(model)
    got = [harness.prompt(1, ids[:20], 0), harness.prompt(1, ids[20:37], 20),
           harness.prompt(1, ids[37:38], 37)]
    at = 38
    for width in (1, 5, 1, 3, 8, 2):
        got.append(harness.verify([1], [ids[at : at + width]], [at])[0])
        at += width
    assert (torch.cat(got) - want[:at]).abs().max() <= TOLERANCE


def test_rows_of_different_lengths_in_one_step(case):
    model, ids, want = case
    harness = SlotHarness(model)
    starts = [7, 33, 0, 50]
    for slot, start in zip((0, 1, 3, 4), starts, strict=True):
        if start:
            harness.prompt(slot, ids[:start], 0)
    got = harness.verify([0, 1, 3, 4], [ids[s : s + 4] for s in starts], starts)
    for row, start in enumerate(starts):
        assert (got[row] - want[start : start + 4]).abs().max() <= TOLERANCE


def test_pages_equal_slots(case):
    model, ids, want = case
    harness = SlotHarness(model, page_size=16)
    got = [harness.prompt(2, ids[:21], 0), harness.prompt(2, ids[21:40], 21),
           harness.verify([2], [ids[40:45]], [40])[0]]
    assert (torch.cat(got) - want[:45]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen2"])
def test_native_kernels(tmp_path, name):
    pytest.importorskip("numba")
    folder = hf_folder(tmp_path, CONFIGS[name], seed=3)
    ids = list(range(7, 60))
    want = oracle(folder, ids)
    harness = SlotHarness(load_model(folder, dtype="fp32", native=True).model)
    got = [harness.prompt(1, ids[:20], 0)]
    for at, width in ((20, 1), (21, 5), (26, 8), (34, 1)):
        got.append(harness.verify([1], [ids[at : at + width]], [at])[0])
    assert (torch.cat(got) - want[:35]).abs().max() <= TOLERANCE


def test_sharded_folder_and_stacked_experts_load_the_same(tmp_path):
    config = CONFIGS["qwen3_moe"]
    plain = hf_folder(tmp_path / "plain", config, seed=3)
    other = hf_folder(tmp_path / "other", config, seed=3, stacked=True, shards=3)
    a, b = (load_model(folder, dtype="fp32", linear="plain").model for folder in (plain, other))
    for one, two in zip(a.layers, b.layers, strict=True):
        assert torch.equal(one.qkv.weight, two.qkv.weight)
        for name in ("router", "gate_up", "down"):
            assert torch.equal(getattr(one.moe, name), getattr(two.moe, name)), name
    # The two lie at other addresses, which decides the last bits of products on some CPUs.
    ids = list(range(5, 25))
    got = SlotHarness(b).prompt(0, ids, 0)
    assert (got - SlotHarness(a).prompt(0, ids, 0)).abs().max() <= TOLERANCE


def test_config_and_weights_of_different_models_are_refused(tmp_path):
    folder = hf_folder(tmp_path, LLAMA, seed=3)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"intermediate_size": 128}))
    with pytest.raises(Exception, match=r"gate_proj.*different models"):
        load_model(folder, dtype="fp32")

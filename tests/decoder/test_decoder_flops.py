"""The roofline's FLOP are the decoder's FLOP: counted by torch on a tiny model, and from shapes.

Ties the two halves together; neither's code knows the other.
"""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from decoder_helpers import CONFIGS, SlotHarness, make_model
from specsim.formats.hf_config import read_model
from specsim.ops.passes import pass_ops, target_pass
from specsim.ops.work import UNIFORM, Parallel, Work


def cpu_attention(q, k, v, *args, out_shape=None, **kwargs):
    """torch's counter does not know the CPU's flash attention; the others' formula is its own."""
    return sdpa_flop_count(q, k, v)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_counted_flops_of_a_decode_step_equal_the_shapes(tmp_path, family, batch):
    config, context = CONFIGS[family], 21
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    work = Work(seqs=batch, q_len=1, ctx=context, prefill=(), rows=batch, head_rows=batch)
    target = target_pass(read_model(tmp_path / "config.json"), work, Parallel())
    ops = pass_ops(target, "bf16", UNIFORM)
    expected = sum(op.flops * op.count for op in ops
                   if op.kind in ("gemm", "moe", "attn_decode"))

    harness = SlotHarness(make_model(config, linear="plain"))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    counter = FlopCounterMode(display=False, custom_mapping={kernel: cpu_attention})
    slots = list(range(batch))
    undecorated = SlotHarness.verify.__wrapped__  # the counter does not see into inference mode
    with torch.no_grad(), counter:
        undecorated(harness, slots, [[5]] * batch, [context] * batch)
    assert counter.get_total_flops() == expected

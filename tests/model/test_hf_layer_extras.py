"""What layers have beside mixer and feed-forward part: counted once, read once, priced."""

import pytest

from specsim.model.catalogue import find_model
from specsim.model.counts import active_parameters, kv_bytes_per_token
from specsim.model.extras import AttentionResidual, NormGates, PerLayerInput
from specsim.ops.extras import EXTRAS
from specsim.ops.network import target_ends
from specsim.ops.passes import pass_ops, target_pass
from specsim.ops.work import UNIFORM, Parallel, Work


@pytest.mark.parametrize(
    "extra", [PerLayerInput(8), AttentionResidual(2.5), NormGates(4, 16, 96)],
    ids=lambda extra: extra.tag,
)
def test_a_pass_reads_an_extra_once(extra: PerLayerInput) -> None:
    ops = EXTRAS[type(extra)](extra, 64, 3.0, 5.0, "")
    assert sum(op.weight_bytes * op.count for op in ops) == 5 * 2 * extra.count(64).total


def test_gemma_e2b_stores_a_table_that_a_step_does_not_read() -> None:
    """4.63 G parameters, of which 2.35 G are the table of inputs per layer: a token reads one row
    of 35 x 256, and passes through the 2.3 G that gave the model its name."""
    spec = find_model("Gemma-4-E2B")
    assert spec.tables == ((262_144, 35 * 256),)
    assert active_parameters(spec).total == pytest.approx(2.3e9, rel=0.01)
    work = Work(1, 1, 1000, (), 1, 1)
    ops = pass_ops(target_pass(spec, work, Parallel()), "bf16", UNIFORM)
    read = sum(op.weight_bytes * op.count for op in ops)
    assert read == pytest.approx(2 * active_parameters(spec).total, rel=1e-3)
    embed = target_ends(spec, 1.0, 1.0, Parallel())[0][0]
    assert embed.act_bytes == 2 * 2 * (1536 + 35 * 256)


def test_gemma_layers_that_share_read_the_cache_but_add_nothing() -> None:
    """E4B: of 42 layers 20 window and 4 full ones own a cache, all 42 read one."""
    spec = find_model("Gemma-4-E4B")
    kv = kv_bytes_per_token(spec, "bf16")
    assert (kv.full, kv.sliding) == (4 * 2 * 2 * 512 * 2, ((512, 20 * 2 * 2 * 256 * 2),))
    ops = pass_ops(target_pass(spec, Work(1, 1, 400, (), 1, 1), Parallel()), "bf16", UNIFORM)
    row = 2 * 2 * 2  # keys and values of two heads in 16 bits
    read = row * 401 * (35 * 256 + 7 * 512)
    written = row * (20 * 256 + 4 * 512)
    assert sum(op.kv_bytes * op.count for op in ops) == read + written


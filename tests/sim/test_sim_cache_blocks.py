"""The blocks of a deployment: vLLM's groups of layers, and what other engines have."""

from dataclasses import replace

import pytest

from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.errors import CapacityError
from specsim.options.groups import DeploymentOptions as Options
from specsim.sim.build import Deployment
from specsim.sim.cache_blocks import cache_blocks
from specsim.sim.engine_rules import BlockCosts

GEMMA = {
    "model": "gemma-4-31b", "weights": "fp8", "kv": "fp8", "method": "draft-model", "k": 4,
    "draft": "gemma-4-31b-it-assistant", "acceptance_length": 3.08,
}
QWEN = {"model": "qwen3.6-27b", "weights": "fp8"}


def system(**options: object) -> System:
    return build_request(Options(**options)).system  # type: ignore[arg-type]


def test_layers_of_one_kind_share_one_block_table() -> None:
    deployed = system(model="llama-3.1-8b", method="none")
    found = cache_blocks(deployed)
    assert found.costs == BlockCosts()
    assert found.block_bytes == 16 * deployed.memory.kv_bytes_per_token
    assert found.num_kv_blocks == int(deployed.memory.pool_bytes / found.block_bytes)


def test_gemma_has_five_groups_of_windows_to_one_that_keeps_all() -> None:
    """50 layers of 8,192 bytes per token see 1,024 tokens, 10 of 4,096 everything: groups of 10
    layers, pages of 16 x 8,192 bytes, in which the narrower layers have 32 tokens."""
    found = cache_blocks(system(**GEMMA))
    assert found.block_bytes == 10 * 16 * 8192
    assert found.block_size == 32
    assert found.costs == BlockCosts(full_blocks=1, window_blocks=10, window_tokens=1024)


def test_almost_equal_numbers_of_layers_make_one_group_each() -> None:
    """gpt-oss: 18 layers of either kind, and a drafter's: 19 and 18. vLLM 0.11 took the fewest, so
    the 19th began a second group."""
    options = {"model": "gpt-oss-120b", "method": "eagle3", "k": 3, "acceptance_length": 2.5}
    new, old = (cache_blocks(system(**options, engine=name)).costs
                for name in ("vllm==0.25.1", "vllm==0.11"))
    assert (new.full_blocks, new.window_blocks) == (1, 1)
    assert (old.full_blocks, old.window_blocks) == (2, 1)


def test_before_the_hybrid_manager_windows_were_kept_whole() -> None:
    deployed = system(model="gpt-oss-120b", method="none", engine="vllm==0.9")
    assert cache_blocks(deployed).costs == BlockCosts()
    assert deployed.memory.windows == ()


def test_a_block_is_long_enough_for_a_state_and_each_draft_position_has_one() -> None:
    """Qwen3.6-27B in fp8: a state of 3,207,168 bytes per layer, attention of 4,096 per token: 784
    tokens, as vLLM logs it. 48 recurrent layers to 16 + 1: three groups, 1 + 3 slots."""
    found = cache_blocks(system(**QWEN, kv="bf16", method="mtp", k=3, acceptance_length=3.0))
    assert found.block_size == 784
    assert found.costs == BlockCosts(full_blocks=1, state_blocks=12)
    assert found.block_bytes == 17 * 784 * 4096


def test_all_layers_with_a_window() -> None:
    found = cache_blocks(system(model="mistral-7b-v0.1", method="none"))
    assert found.costs == BlockCosts(0, 1, 4096)


@pytest.mark.parametrize("tokens", [100, 1024, 20_000])
def test_a_pool_for_each_kind_is_counted_in_small_parts(tokens: int) -> None:
    deployed = system(model="gpt-oss-20b", method="none", engine="sglang")
    found, memory = cache_blocks(deployed), deployed.memory
    costs = found.costs
    held = tokens * costs.full_blocks + min(tokens, costs.window_tokens) * costs.window_blocks
    truth = memory.bytes_per_request(tokens - memory.lookahead_tokens)
    assert held * found.block_bytes == pytest.approx(truth, rel=0.04)


def test_a_pool_below_one_block_is_refused() -> None:
    deployed = system(model="llama-3.1-8b", method="none")
    tiny = replace(deployed.memory, usable_bytes=deployed.memory.weight_bytes + 2.0)
    deployed.__dict__["memory"] = tiny
    with pytest.raises(CapacityError, match="less than one block"):
        cache_blocks(deployed)


@pytest.mark.parametrize("options", [GEMMA, {"model": "gpt-oss-120b", "method": "none"}])
def test_the_pool_is_the_same_however_many_requests_may_run(options: dict[str, object]) -> None:
    sizes = {
        Deployment(replace(system(**options), max_num_seqs=most)).config.num_kv_blocks
        for most in (48, 96, 1024)
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("options", [QWEN, GEMMA, {"model": "llama-3.1-8b", "method": "none"}])
def test_about_as_many_requests_fit_as_bytes_do(options: dict[str, object]) -> None:
    """Whole blocks, windows that are not aligned and states padded to a page take up to a tenth."""
    deployed, tokens = system(**options), 2000
    found = cache_blocks(deployed)
    costs = found.costs
    units = -(-(tokens + deployed.memory.lookahead_tokens) // found.block_size)
    windows = min(units, -(-costs.window_tokens // found.block_size) + 1)
    held = units * costs.full_blocks + windows * costs.window_blocks + costs.state_blocks
    fit = found.num_kv_blocks // held
    assert 0.9 * deployed.memory.max_requests(tokens) <= fit <= deployed.memory.max_requests(tokens)

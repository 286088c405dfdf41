"""Pipeline parallelism: what a round holds, what bounds it, memory by stage, the flags."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError
from specsim.formats.server_command import parse_command
from specsim.hardware.store import load_profile
from specsim.latency.breakdown import StepLatency
from specsim.latency.engine import find_engine
from specsim.latency.pipeline import Trip, crossings, microbatches, round_of, stage_layers, trip
from specsim.latency.shape import PrefillChunk, StepShape, decode_shape
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_model
from specsim.ops.work import Parallel
from specsim.speculation.acceptance import Acceptance

LLAMA = find_model("llama-3.1-8b")
SYSTEM = System(LLAMA, load_profile("h200-sxm"), find_engine("vllm"))
SETUP = resolve_setup(LLAMA, SYSTEM.engine, "eagle3", 3)
DRAFTING = SYSTEM.with_(setup=SETUP, acceptance=Acceptance.from_mean_length(2.5, 3, source="test"))


def staged(pp: int, system: System = SYSTEM, tp: int = 1) -> System:
    return system.with_(parallel=Parallel(tp, pp=pp))


def step_of(target_s: float, draft_s: float = 0.0, sample_s: float = 0.0) -> StepLatency:
    total_s = target_s + draft_s + sample_s
    return StepLatency(
        total_s, target_s, sample_s, draft_s, 0.0, 0.0, 0.0, 1.0, True, 0.0, 0.0, tuple
    )


shapes = st.builds(
    StepShape,
    decode_seqs=st.integers(0, 40),
    decode_q_len=st.integers(1, 4),
    decode_context_tokens=st.floats(0, 1e5),
    prefill=st.lists(
        st.builds(PrefillChunk, st.integers(1, 9000), st.integers(0, 9000), st.booleans()),
        max_size=6,
    ).map(tuple),
).filter(lambda shape: shape.tokens > 0)


@given(shapes, st.integers(2, 8), st.sampled_from([512, 8192]))
def test_a_round_holds_every_token_once(shape: StepShape, pp: int, budget: int) -> None:
    parts = [part for part, count in microbatches(shape, pp, budget) for _ in range(count)]
    assert 1 <= len(parts) <= pp
    assert sum(part.decode_seqs for part in parts) == shape.decode_seqs
    assert sum(part.prefill_tokens for part in parts) == shape.prefill_tokens
    assert sum(p.decode_context_tokens for p in parts) == pytest.approx(
        shape.decode_context_tokens if shape.decode_seqs else 0.0
    )
    ends = sum(chunk.last for part in parts for chunk in part.prefill)
    assert ends == sum(chunk.last for chunk in shape.prefill)
    assert all(part.tokens > 0 for part in parts)
    if shape.prefill_tokens <= pp * budget:
        # A chunk that is cut adds a token of rounding at most.
        assert max(part.prefill_tokens for part in parts) <= budget
    attended = sum(
        c.new_tokens * c.cached_tokens + c.new_tokens**2 / 2 for c in shape.prefill
    )
    assert sum(
        c.new_tokens * c.cached_tokens + c.new_tokens**2 / 2 for p in parts for c in p.prefill
    ) == pytest.approx(attended)


def test_rounds_by_hand() -> None:
    """32 layers in 31 ms and ends in 1 ms, on 2 stages with hand-overs of 1 ms: a trip of 33 ms, of
    which 15.5 ms in the first stage and 16.5 ms in the last. Drafts of 5 ms make that 21.5 ms."""
    def one(drafts_s: float) -> Trip:
        return trip(step_of(0.032, drafts_s), 0.001, 0.001, 0.0, 32, 2)

    assert one(0.0).trip_s == pytest.approx(0.033)
    assert one(0.0).busiest_s == pytest.approx(0.0165)
    rounds = {
        (seqs, drafts_s): round_of(StepShape(seqs), 2, 8192, lambda _, d=drafts_s: one(d)).total_s
        for seqs in (1, 2, 9) for drafts_s in (0.0, 0.005)
    }
    assert rounds[1, 0.0] == rounds[2, 0.0] == rounds[9, 0.0] == pytest.approx(0.033)
    # One sequence waits for its own trip; several queue for the last stage.
    assert rounds[1, 0.005] == pytest.approx(0.038)
    assert rounds[2, 0.005] == rounds[9, 0.005] == pytest.approx(2 * 0.0215)


def test_sequences_without_the_prompt_wait_for_it_in_the_stages_alone() -> None:
    """Four microbatches of two sequences, 4 ms each; one has a prompt besides and takes 40."""
    shape = StepShape(8, prefill=(PrefillChunk(1000),))
    found = round_of(
        shape, 4, 8192,
        lambda part: trip(step_of(0.040 if part.prefill else 0.004), 0.0, 0.0, 0.0, 32, 4),
    )
    # Two sequences go the long way; of the stages 10 + 3 x 1 ms go by for the others
    assert found.total_s == pytest.approx((2 * 0.040 + 6 * 0.013) / 8)
    assert found.total_s == pytest.approx(
        found.target_s + found.sample_s + found.draft_s + found.host_s + found.pipeline_s
    )


def test_prompts_alone_fill_and_drain_the_pipeline() -> None:
    """Three microbatches of 30 ms on 3 stages: 30 ms, and 10 ms for each that follows."""
    found = round_of(
        StepShape(prefill=(PrefillChunk(300),)), 3, 100,
        lambda _: trip(step_of(0.030), 0.0, 0.0, 0.0, 30, 3),
    )
    assert found.total_s == pytest.approx(0.050)
    assert found.pipeline_s == pytest.approx(0.020)


def test_a_prompt_beyond_the_budget_fills_its_first_microbatch() -> None:
    """9000 tokens are 8192 and 808, as the engine cuts them; two prompts come at their own times.
    A longer prompt never makes a round shorter."""
    def dealt(*prompts: int) -> list[int]:
        shape = StepShape(4, prefill=tuple(map(PrefillChunk, prompts)))
        parts = [p.prefill_tokens for p, n in microbatches(shape, 4, 8192) for _ in range(n)]
        return sorted(tokens for tokens in parts if tokens)

    assert dealt(9000) == [808, 8192]
    assert dealt(1000, 3000) == [2000, 2000]
    assert dealt(9000, 9000) == [1616, 8192, 8192]
    assert dealt(40_000) == [10_000] * 4

    def round_s(tokens: int) -> float:
        return round_of(
            StepShape(8, prefill=(PrefillChunk(tokens),)), 4, 8192,
            lambda part: trip(step_of(1e-3 + 1e-6 * part.tokens), 0.0, 0.0, 0.0, 32, 4),
        ).total_s

    rounds = [round_s(tokens) for tokens in range(1000, 40_000, 500)]
    assert rounds == sorted(rounds)


def test_the_last_stage_never_has_more_layers() -> None:
    assert stage_layers(32, 4) == (8, 8)
    assert stage_layers(61, 4) == (16, 15)


@pytest.mark.parametrize("system", [SYSTEM, DRAFTING])
def test_one_client_gains_nothing_and_pays_the_hand_overs(system: System) -> None:
    load = Workload(1000, 200)
    tpots = [closed_loop(staged(pp, system), load, 1).tpot_s for pp in (1, 2, 4)]
    assert tpots[0] < tpots[1] < tpots[2]
    assert tpots[2] < 1.2 * tpots[0]


@pytest.mark.parametrize("system", [SYSTEM, DRAFTING])
@pytest.mark.parametrize("seqs", [1, 2, 7, 32, 200])
def test_stages_gain_at_most_their_number(system: System, seqs: int) -> None:
    setup = system.setup if system.speculative else None
    shape = decode_shape(seqs, 2000, setup)
    plain_s = system.latency.seconds(shape)
    for pp in (2, 4):
        step = staged(pp, system).latency.step(shape)
        assert step.total_s > plain_s / pp
        assert step.pipeline_s >= 0
        assert step.total_s == pytest.approx(
            step.target_s + step.sample_s + step.draft_s + step.host_s + step.pipeline_s
        )


def test_drafts_make_the_last_stage_wait_longer() -> None:
    def bubble(system: System) -> float:
        setup = system.setup if system.speculative else None
        step = staged(4, system).latency.step(decode_shape(32, 2000, setup))
        return step.pipeline_s / step.total_s

    assert bubble(DRAFTING) > 2 * bubble(SYSTEM)


def test_prompts_of_many_clients_run_side_by_side() -> None:
    """Prompts rule this load, and each stage works on another one. With longer answers fewer come
    at a time than there are stages."""
    load = Workload(4000, 10)
    one, four = (closed_loop(staged(pp), load, 64).output_tok_s for pp in (1, 4))
    assert 2 * one < four < 4 * one


def test_a_wider_node_is_dearer_than_none() -> None:
    assert crossings(Parallel(4, pp=2), 8) == 0
    assert crossings(Parallel(8, pp=2), 8) == 1
    assert crossings(Parallel(4, pp=4), 8) == 1
    assert crossings(Parallel(16, pp=3), 8) == 2
    inside, across = (
        staged(2, SYSTEM.with_(profile=replace(SYSTEM.profile, gpus_per_node=node)))
        .latency.step(StepShape(1, 1, 100.0)).total_s
        for node in (8, 1)
    )
    assert across > inside


def test_memory_is_that_of_the_tightest_stage() -> None:
    whole, half = SYSTEM.memory, staged(2).memory
    ends = 2 * LLAMA.vocab * LLAMA.hidden * 2
    assert half.weight_bytes == pytest.approx((whole.weight_bytes - ends) / 2 + ends / 2)
    assert half.kv_bytes_per_token == whole.kv_bytes_per_token / 2
    drafting = staged(2, DRAFTING).memory
    assert drafting.drafter_bytes == DRAFTING.memory.drafter_bytes
    drafts = DRAFTING.memory.kv_bytes_per_token - whole.kv_bytes_per_token
    assert drafting.kv_bytes_per_token == pytest.approx(whole.kv_bytes_per_token / 2 + drafts)
    # 70 GB of weights do not fit on a GPU of 80 GB with a cache, but half of them do.
    large = SYSTEM.with_(spec=find_model("llama-3.3-70b-instruct-fp8"),
                         profile=load_profile("h100-sxm"))
    assert staged(2, large).memory.max_requests(1000) > 50


def test_flags_are_read_and_wrong_numbers_refused() -> None:
    assert parse_command("vllm serve m --pipeline-parallel-size 2").values["pp"] == 2
    assert parse_command("python -m sglang.launch_server --model m --pp-size 4").values["pp"] == 4
    with pytest.raises(UsageError, match="one stage per layer"):
        _ = staged(33).latency
    with pytest.raises(UsageError, match="pp is 0"):
        Parallel(pp=0)

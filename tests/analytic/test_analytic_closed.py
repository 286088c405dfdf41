"""The closed loop against arithmetic: Little's law, one client by hand, limits, queues."""

import math
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.analytic.closed import closed_loop, decode_steps, preemptions, running_limit
from specsim.analytic.system import System
from specsim.analytic.waves import rounds
from specsim.analytic.workload import WORKLOADS, Workload, find_workload
from specsim.errors import CapacityError, UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.overheads import Overheads
from specsim.latency.shape import PrefillChunk, StepShape, decode_shape
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_model
from specsim.ops.work import Parallel
from specsim.speculation.acceptance import Acceptance

H200 = load_profile("h200-sxm")
VLLM, SGLANG = find_engine("vllm"), find_engine("sglang")
QWEN = find_model("qwen3.6-27b")
LLAMA = find_model("llama-3.1-8b")
PLAIN = System(LLAMA, H200, VLLM)
DRAFTED = System(
    QWEN, H200, VLLM, setup=SpecSetup("mtp", 3, QWEN.mtp), acceptance=Acceptance.from_rate(0.8, 3)
)
CHAT = Workload(1000, 201)
fast = settings(max_examples=examples(30), deadline=None)


def test_decode_steps_by_hand() -> None:
    # The prefill gives the first token; one per step without speculation
    assert decode_steps(PLAIN, 201) == 200
    assert decode_steps(PLAIN, 1) == decode_steps(DRAFTED, 1) == 0
    # Whatever a step yields, the second token takes one
    assert decode_steps(DRAFTED, 2) == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
@pytest.mark.parametrize("output_len", [4, 16, 200])
def test_more_acceptance_never_serves_less(engine: str, output_len: int) -> None:
    """k = 8, 16k prompts, 128 clients: a cycle holds each prompt once, however few steps decode.

    1.2 % for SGLang, whose formula for the wait, right where requests need many steps, is cut off
    by that: it was 13 %."""
    load = Workload(16_384, output_len)
    served = []
    for rate in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99):
        system = System(
            LLAMA, H200, find_engine(engine), setup=SpecSetup("ngram", 8),
            acceptance=Acceptance.from_rate(rate, 8),
        )
        served.append(closed_loop(system, load, 128).output_tok_s)
    best = accumulate(served, max)
    least = 0.988 if engine == "sglang" else 1.0
    assert all(now >= least * most for now, most in zip(served, best, strict=True))


def test_longer_prompts_are_dearer_where_the_budget_has_no_room_for_one_that_decodes() -> None:
    """Two output tokens: what prompts leave of a step's 512 tokens rounds to none."""
    system = System(LLAMA, H200, find_engine("specsim"), setup=SpecSetup("none"))
    found = [closed_loop(system, Workload(n, 2), 2) for n in (1000, 1020, 1023, 1024, 1030)]
    assert [x.ttft_s for x in found] == sorted(x.ttft_s for x in found)


def test_drafts_that_are_refused_gain_nothing_beside_long_prompts() -> None:
    """Less than one sequence decodes beside prompts of 25k tokens in chunks of 465, with drafts or
    without: both are rounded alike."""
    plain = System(
        LLAMA, H200, find_engine("vllm"), setup=SpecSetup("none"), max_num_batched_tokens=465
    )
    setup = SpecSetup("suffix", 5)
    spec = replace(plain, setup=setup, acceptance=Acceptance.from_rate(0.008, 5))
    with_it, without = (closed_loop(s, Workload(25_535, 46), 2) for s in (spec, plain))
    assert without.tpot_s / with_it.tpot_s < 1.01


def test_a_cycle_holds_each_prompt_once() -> None:
    """Long prompts and few steps: the device is busy all the time, and with nothing twice."""
    load = Workload(8000, 8)
    for engine in ("sglang", "transformers"):
        state = closed_loop(System(LLAMA, H200, find_engine(engine)), load, 8)
        assert 0.9 < state.prefill_share + state.step_s * 7 * state.request_rate / 8 < 1.02


def test_one_client_by_hand() -> None:
    state = closed_loop(PLAIN, CHAT, 1)
    latency = PLAIN.latency
    step_s = latency.seconds(decode_shape(1, 1000 + 201 / 2))
    prompt_s = latency.seconds(StepShape(prefill=(PrefillChunk(1000),)))
    request_s = VLLM.overheads.request_s
    assert (state.step_s, state.tpot_s) == (pytest.approx(step_s), pytest.approx(step_s))
    assert state.ttft_s == pytest.approx(prompt_s + request_s)
    assert state.request_rate == pytest.approx(1 / (prompt_s + request_s + 200 * step_s))
    assert state.output_tok_s == pytest.approx(201 * state.request_rate)
    assert (state.queue_s, state.mixed_share, state.running) == (0, 0, 1)


def test_one_speculating_client_by_hand() -> None:
    state = closed_loop(DRAFTED, CHAT, 1)
    per_step = 1 + 0.8 + 0.64 + 0.512  # (1 - 0.8^4) / (1 - 0.8)
    verify_s = DRAFTED.latency.seconds(decode_shape(1, 1100.5, DRAFTED.setup))
    square = 1 + 3 * 0.8 + 5 * 0.64 + 7 * 0.512  # of the tokens of a step, in the mean
    steps = 200 / per_step + (square - per_step) / (2 * per_step**2)
    assert state.tpot_s == pytest.approx(steps * verify_s / 200)
    assert state.itl_s == pytest.approx(state.tpot_s * per_step)
    assert state.step_s == pytest.approx(verify_s)


@pytest.mark.parametrize("engine", [VLLM, SGLANG, find_engine("trtllm"), find_engine("vllm==0.10")])
@pytest.mark.parametrize("fixed", [False, True])
@given(st.integers(1, 2000), st.integers(1, 3000), st.integers(1, 600), st.floats(0.0, 0.9))
@fast
def test_littles_law(
    engine: object, fixed: bool, clients: int, isl: int, osl: int, cached: float
) -> None:
    system = replace(PLAIN, engine=engine)  # type: ignore[arg-type]
    workload = Workload(isl, osl, cached, spread=0.0 if fixed else 1.0)
    state = closed_loop(system, workload, clients)
    # Every client is either waiting for its first token or receiving the others.
    stay_s = state.ttft_s + state.tpot_s * (osl - 1)
    assert clients == pytest.approx(state.request_rate * stay_s, rel=1e-9)
    assert state.output_tok_s == pytest.approx(state.request_rate * osl, rel=1e-12)
    assert min(state.ttft_s, state.step_s) > 0 and state.tpot_s >= 0
    assert 0 <= state.mixed_share <= 1 and 0 <= state.prefill_share <= 1
    assert state.queue_s >= 0


@given(st.integers(1, 200), st.integers(1, 20))
@fast
def test_more_clients_wait_longer_and_get_more_in_all(clients: int, more: int) -> None:
    for system in (PLAIN, DRAFTED):
        datasheet = replace(system, fidelity="datasheet")
        few = closed_loop(datasheet, CHAT, clients)
        many = closed_loop(datasheet, CHAT, clients + more)
        assert many.ttft_s > few.ttft_s
        assert many.tpot_s >= few.tpot_s * (1 - 1e-12)
        if many.queue_s == 0:  # memory that is short costs throughput
            assert many.output_tok_s >= few.output_tok_s * (1 - 1e-9)


def test_clients_beyond_the_limit_wait_outside() -> None:
    small = replace(PLAIN, max_num_seqs=8)
    inside, outside = closed_loop(small, CHAT, 8), closed_loop(small, CHAT, 24)
    assert outside.running == 8
    # The next prompt takes its place at the end of the step that frees it, half a step sooner.
    assert 1 < outside.request_rate / inside.request_rate < 1 + 0.6 / 200
    assert outside.tpot_s == pytest.approx(inside.tpot_s, rel=0.5 / 200)
    # Three cycles for one served: two are spent waiting.
    assert outside.queue_s == pytest.approx(16 / outside.request_rate)
    assert outside.ttft_s == pytest.approx(
        inside.ttft_s + outside.queue_s, abs=0.6 * inside.step_s / (1 - inside.prefill_share)
    )


def test_where_all_come_at_once_half_of_them_are_ahead_of_one() -> None:
    small = replace(PLAIN, max_num_seqs=8)
    steady, once = (
        closed_loop(small, replace(CHAT, requests_per_client=waves), 80) for waves in (0, 1)
    )
    assert steady.queue_s == pytest.approx(72 / steady.request_rate)
    assert once.queue_s == pytest.approx(36 / once.request_rate)
    assert once.ttft_s < 0.6 * steady.ttft_s


def test_one_token_outputs_share_the_server() -> None:
    short = Workload(4000, 1)
    alone, crowd = closed_loop(PLAIN, short, 1), closed_loop(PLAIN, short, 64)
    assert alone.tpot_s == crowd.tpot_s == 0
    # 64 clients cannot be served 64 times as fast: a step holds two prompts of 4000 tokens.
    pair = PLAIN.latency.seconds(StepShape(prefill=(PrefillChunk(4000),) * 2))
    assert crowd.request_rate == pytest.approx(2 / pair)
    assert crowd.ttft_s == pytest.approx(32 * pair)
    assert alone.ttft_s == pytest.approx(
        PLAIN.latency.seconds(StepShape(prefill=(PrefillChunk(4000),))) + VLLM.overheads.request_s
    )


def test_limits_of_a_batch() -> None:
    assert running_limit(replace(PLAIN, max_num_seqs=8), CHAT) == 8
    # vLLM admits a prompt that fits: what runs has written half of its output on average.
    # TensorRT-LLM keeps room for all that may come.
    small = replace(PLAIN, gpu_memory_utilization=0.3)
    assert running_limit(small, CHAT) == small.memory.max_requests(1100.5) < 1024
    whole = replace(small, engine=find_engine("trtllm"))
    assert running_limit(whole, CHAT) == whole.memory.max_requests(1201)
    # A mixing engine's step budget holds 8192 / (k + 1) sequences.
    tight = replace(DRAFTED, max_num_batched_tokens=100)
    assert running_limit(tight, CHAT) == 25
    with pytest.raises(UsageError, match="verifies 4 tokens in a step"):
        running_limit(replace(DRAFTED, max_num_batched_tokens=3), CHAT)
    # SGLang lowers its own limit when it speculates, and its budget is for prompts alone.
    sglang = replace(DRAFTED, engine=SGLANG, max_num_batched_tokens=100)
    assert running_limit(replace(sglang, engine=find_engine("sglang==0.5.9")), CHAT) == 48
    # Since states of prefixes have memory of their own, that is what limits recurrent models.
    assert running_limit(sglang, CHAT) == sglang.memory.state_requests == 25
    with pytest.raises(CapacityError, match="use shorter requests"):
        running_limit(PLAIN, Workload(2_000_000, 10))


@pytest.mark.parametrize("bad", [0, -1, 10_000_000, True])
def test_impossible_concurrency(bad: int) -> None:
    with pytest.raises(UsageError, match="concurrency"):
        closed_loop(PLAIN, CHAT, bad)


def test_a_cached_prefix_saves_prompt_work_and_not_context() -> None:
    half = replace(CHAT, cached_share=0.5)
    whole, cached = closed_loop(PLAIN, CHAT, 1), closed_loop(PLAIN, half, 1)
    assert cached.step_s == whole.step_s
    assert cached.ttft_s < whole.ttft_s
    assert half.computed_input == 500
    assert Workload(10, 1, 0.999).computed_input == 1


@pytest.mark.slow
def test_long_prompts_are_priced_by_samples() -> None:
    # 1,000,000 tokens in chunks of 8192: 123 chunks, of which 64 are priced
    system = replace(PLAIN, fidelity="datasheet", engine=replace(VLLM, max_num_batched_tokens=8192))
    workload = Workload(520_000, 10)
    state = closed_loop(system, workload, 1)
    done, exact = 0, 0.0
    while done < 520_000:
        take = min(8191, 520_000 - done)
        last = done + take == 520_000
        exact += system.latency.seconds(StepShape(prefill=(PrefillChunk(take, done, last),)))
        done += take
    assert state.ttft_s == pytest.approx(exact, rel=0.01)
    # A budget that leaves one token per step must not take a step per token to price.
    starved = replace(system, max_num_batched_tokens=16)
    assert math.isfinite(closed_loop(starved, Workload(200_000, 10), 4).ttft_s)


def test_lookups_that_find_no_draft_cost_a_plain_step() -> None:
    setup = SpecSetup("ngram", 3, draft_share=0.25)
    always = replace(setup, draft_share=1.0)
    acceptance = Acceptance.from_rate(0.8, 3)
    some = System(LLAMA, H200, VLLM, setup=setup,
                  acceptance=replace(acceptance, draft_probability=0.25))
    full = System(LLAMA, H200, VLLM, setup=always, acceptance=acceptance)
    verify = closed_loop(full, CHAT, 64).step_s
    bare = some.latency.seconds(StepShape(64, 1, 64 * CHAT.mean_context))
    assert closed_loop(some, CHAT, 64).step_s == pytest.approx(0.25 * verify + 0.75 * bare)


@pytest.mark.parametrize("clients", [4, 16, 64])
@pytest.mark.parametrize("load", [Workload(64, 8), Workload(2000, 50)])
def test_lookups_gain_no_more_than_their_tokens(clients: int, load: Workload) -> None:
    """Drafts in a tenth of the steps, experts, stages: prompts run beside the mean of the steps,
    not beside steps that verify (which read all experts anyway)."""
    setup = SpecSetup(method="ngram", k=7, draft_share=0.1)
    drafted = System(
        find_model("qwen3-235b-a22b"), H200, find_engine("vllm==0.10"), Parallel(tp=4, pp=2),
        setup=setup, acceptance=replace(Acceptance.from_rate(0.1, 7), draft_probability=0.1),
    )
    load = replace(load, requests_per_client=10)
    fast, plain = (
        closed_loop(system, load, clients) for system in (drafted, drafted.plain())
    )
    assert fast.output_tok_s <= plain.output_tok_s * drafted.tokens_per_step


def test_engines_that_prefill_first_stop_decoding_meanwhile() -> None:
    free = replace(SGLANG, overheads=Overheads())
    system = replace(PLAIN, engine=free)
    state = closed_loop(system, CHAT, 16)
    step_s = state.step_s
    prompt_s, pair_s = (
        system.latency.seconds(StepShape(prefill=(PrefillChunk(1000),) * n)) for n in (1, 2)
    )
    # 16 clients of 200 steps end 0.08 a step; their prompts come in groups as `rounds` says.
    found = rounds(16 / 200, system.batched_tokens / 1000, 0.0, True)
    size_s = prompt_s + (found.size - 1) * (pair_s - prompt_s)
    between = 15 * 199 / (200 + found.waited)
    after_s = size_s * (1 / found.first - 1) / 2
    decode_s = 200 * step_s + between * size_s / found.size + after_s
    assert state.tpot_s == pytest.approx(decode_s / 200, rel=1e-4)
    group = 1 + 15 / 200
    group_s = prompt_s + (group - 1) * (pair_s - prompt_s)
    # A request comes in the middle of a step, and the next one is planned already.
    alone = 1 - (group - 1) / 15
    assert state.ttft_s == pytest.approx(1.5 * decode_s / 200 * alone + group_s, rel=1e-4)


@pytest.mark.parametrize(
    ("field", "value"),
    [("input_len", 0), ("input_len", -1), ("input_len", 1.5), ("output_len", 0),
     ("output_len", True), ("input_len", 10**9), ("cached_share", 1.0), ("cached_share", -0.1),
     ("cached_share", math.nan)],
)
def test_impossible_workloads(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=field):
        replace(CHAT, **{field: value})  # type: ignore[arg-type]


def test_named_workloads() -> None:
    for name in WORKLOADS:
        assert find_workload(name.upper()).name == name
    with pytest.raises(UsageError, match="chat, short"):
        find_workload("chatt")


def test_a_full_token_budget_leaves_room_for_the_prompts_that_balance_it() -> None:
    # 256 sequences verify 32 tokens each: exactly the budget of 8192. A prompt of 16 tokens per
    # 1023 / 16 steps needs room too, so one or two sequences fewer decode and nothing collapses.
    system = System(
        LLAMA, H200, VLLM, setup=SpecSetup("ngram", 31), acceptance=Acceptance.from_rate(1.0, 31)
    )
    workload = Workload(16, 1024)
    assert running_limit(system, workload) == 256
    at, before = closed_loop(system, workload, 256), closed_loop(system, workload, 250)
    assert at.output_tok_s == pytest.approx(before.output_tok_s * 256 / 250, rel=0.03)
    assert at.ttft_s < 2 * before.ttft_s


def test_prompts_that_come_into_one_step_share_what_it_reads() -> None:
    # Two output tokens: half of the sequences of every step are prompts. Nothing is accepted, so
    # drafting cannot serve more, as it seemed to where each prompt was charged its own experts.
    glm = find_model("glm-4.7")
    system = System(
        glm, load_profile("b300"), VLLM, setup=SpecSetup("mtp", 8, glm.mtp),
        acceptance=Acceptance.from_rate(0.0, 8), fidelity="datasheet",
        parallel=Parallel(4),
    )
    workload = Workload(16, 2)
    for clients in (2, 8, 16, 64):
        with_it = closed_loop(system, workload, clients).output_tok_s
        assert with_it <= closed_loop(system.plain(), workload, clients).output_tok_s * 1.001


def test_prompts_that_do_not_fit_into_a_step_join_those_of_the_next() -> None:
    """525 clients, 57 steps each, prompts of one token, room for 7 of them beside the drafts: in
    every step there are as many, and no step is counted twice for those left over."""
    system = System(
        LLAMA, H200, find_engine("trtllm"), Parallel(8), setup=SpecSetup("ngram", 8),
        acceptance=Acceptance.from_mean_length(5.056, 8), max_num_batched_tokens=525 * 9 + 7,
    )
    load = Workload(1, 287)
    steps = decode_steps(system, 287)
    shape = system.decode_shape(525, load.mean_context)
    prompts = tuple(PrefillChunk(1, last=True) for _ in range(9))
    full_s = system.decode_step_s(replace(shape, prefill=prompts))
    assert full_s > 1.1 * system.decode_step_s(shape)
    found = closed_loop(system, load, 525)
    assert 0.9 * steps * full_s < found.tpot_s * 286 < 1.001 * steps * full_s


def test_by_hand_with_several_prompts_in_a_step() -> None:
    # 41 clients, 4 decode steps, one for the prompt, and the 1.5 that it waits before: each of 40
    # brings one into this step with probability 1 / 6.5. (A simulation of 2000 requests serves
    # 0.7 % more tokens; without the wait in the cycle it was 19 %.)
    workload = Workload(100, 5)
    state = closed_loop(PLAIN, workload, 41)
    latency, context = PLAIN.latency, 41 * 102.5
    step_s = latency.seconds(StepShape(41, 1, context))
    extra_s = sum(
        math.comb(40, n) * (1 / 6.5) ** n * (5.5 / 6.5) ** (40 - n)
        * (latency.seconds(StepShape(41, 1, context, (PrefillChunk(100),) * n)) - step_s)
        for n in range(1, 41)
    ) / (40 / 6.5)
    expected_s = (4 * step_s + 40 * (4 / 6.5) * extra_s) / 4
    # Five slices of the binomial law stand for all of it.
    assert state.tpot_s == pytest.approx(expected_s, rel=6e-3)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_unlike_prompts_need_more_steps_than_their_mean(engine: str) -> None:
    """Of prompts that vary around one budget half take two steps."""
    system = replace(PLAIN, engine=find_engine(engine), max_num_batched_tokens=1000)
    alike = closed_loop(system, CHAT, 1)
    unlike = closed_loop(system, CHAT.ranging(0.6), 1)
    times = [
        sum(
            system.latency.seconds(StepShape(prefill=(PrefillChunk(new, cached, last),)))
            for new, cached, last in chunks
        )
        for chunks in ([(600, 0, True)], [(1000, 0, True)], [(1000, 0, False), (400, 1000, True)])
    ]
    assert unlike.ttft_s - alike.ttft_s == pytest.approx(sum(times) / 3 - times[1], rel=1e-6)


def test_prompts_are_computed_again_where_memory_is_short() -> None:
    # 600 in 100 out: up to 600 tokens are free after an admission, and the next 100 e^-x run out.
    # 50 prompts of 600 tokens in 100 steps fill 300 of the 8142 tokens that decoding leaves.
    short = Workload(600, 100)
    blocks = math.ceil((600 + PLAIN.memory.lookahead_tokens) / 16) * 16  # of 16 tokens each
    lost = (1 - math.exp(-blocks / 100)) / blocks * 100 * (1 - 300 / 8142)
    assert preemptions(PLAIN, short, 50) == pytest.approx(lost)
    # SGLang keeps a share of what 50 requests may still write: 0.098 x 50 x 50 tokens.
    kept = preemptions(replace(PLAIN, engine=SGLANG), short, 50)
    assert kept == pytest.approx(lost * math.exp(-2.45), rel=2e-2)


def test_short_memory_costs_throughput() -> None:
    """vLLM admits what fits now: clients beyond what memory holds make it compute prompts twice."""
    full = running_limit(DRAFTED, CHAT)
    held, beyond = closed_loop(DRAFTED, CHAT, full), closed_loop(DRAFTED, CHAT, full + 1)
    again = preemptions(DRAFTED, CHAT, full)
    assert 0 < again < 0.25
    assert 1 < beyond.tpot_s / held.tpot_s < 1 + again * 1.1
    reserving = replace(DRAFTED, engine=find_engine("trtllm"))
    full = running_limit(reserving, CHAT)
    assert preemptions(reserving, CHAT, full) < 1e-9

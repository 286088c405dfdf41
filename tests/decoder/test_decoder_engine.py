"""The engine end to end: every method equals plain decoding, whatever joins, leaves or ends."""

import random
from dataclasses import replace

import pytest
import torch
from thinned import diagonal, slow, some

from decoder_helpers import LLAMA, SlotHarness, make_model
from specsim.decoder.drafters.draft_model import DraftModelProposer
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest, sampling_mode
from specsim.errors import CapacityError, UsageError

VOCAB = LLAMA.vocab_size


def make_requests(count=17, seed=1, **params):
    rng = random.Random(seed)
    return [
        EngineRequest(f"r{i}", [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 17, 40]))],
                SamplingParams(max_tokens=rng.choice([1, 2, 9, 30]), **params))
        for i in range(count)
    ]


def serve(engine, requests, every=2):
    """Requests join one every few steps; answers by id."""
    todo, steps = list(requests), 0
    while todo or engine.has_work:
        if steps % every == 0 and todo:
            engine.add(todo.pop(0))
        engine.step()
        steps += 1
    engine.check_integrity()
    return {name: result.token_ids for name, result in engine.finished.items()}


def engine_of(target, method="none", k=0, draft=None, cls=Engine, **options):
    settings = {"max_num_seqs": 5, "max_model_len": 128, "max_num_batched_tokens": 13, **options}
    return cls(target, DecoderOptions(method=method, num_speculative_tokens=k, **settings),
               draft=draft)


def plain(target, request):
    """Greedy decoding, one token per pass, straight on the model: the reference."""
    harness = SlotHarness(target, slots=2, tokens=128)
    ids = list(request.prompt_ids)
    logits = harness.prompt(0, ids, 0)[-1]
    out = []
    while True:
        out.append(int(logits.argmax()))
        if len(out) == request.params.max_tokens:
            return out
        logits = harness.verify([0], [[out[-1]]], [len(ids) + len(out) - 1])[0, -1]


@pytest.fixture(scope="module")
def reference(tiny):
    return {r.request_id: plain(tiny["llama"], r) for r in make_requests()}


METHODS = {
    "none": ("none", 0, lambda tiny: None),
    "draft_model": ("draft_model", 4, lambda tiny: tiny["draft"]),
    "draft_is_target": ("draft_model", 4, lambda tiny: tiny["llama"]),
    "eagle": ("eagle", 3, lambda tiny: EagleWeights.random(tiny["llama"])),
    "eagle_small_vocab": ("eagle", 3, lambda tiny: EagleWeights.random(tiny["llama"], 1, 40)),
    "ngram": ("ngram", 4, lambda tiny: None),
    "suffix": ("suffix", 4, lambda tiny: None),
    "early_exit": ("early_exit", 3, lambda tiny: None),
}
DRAFTING = [name if name == "draft_model" else slow(name) for name in METHODS]
SHAPES = {
    "cpu": {},
    "one step late": {"readback_lag": 1, "trim_drafts": False},
    "paged": {"page_size": 16},
    "paged, few pages, late": {"page_size": 8, "kv_pages": 24, "readback_lag": 1,
                               "trim_drafts": False},
}


@pytest.mark.parametrize(("method", "shape"), diagonal(METHODS, SHAPES, most=4))
def test_greedy_equals_plain_decoding_with_requests_joining_and_leaving(
    tiny, reference, method, shape
):
    if method == "suffix" and "late" in shape:
        pytest.skip("a host drafter needs every token at once")
    name, k, draft = METHODS[method]
    engine = engine_of(tiny["llama"], name, k, draft(tiny), **SHAPES[shape])
    assert serve(engine, make_requests()) == reference
    assert engine.stats.num_generation_tokens == sum(map(len, reference.values()))


@pytest.mark.parametrize("method", DRAFTING)
def test_the_graph_runner_without_graphs(tiny, reference, method):
    """Its padding to buckets, shared buffers and largest bounds, by the twin of the capture."""
    name, k, draft = METHODS[method]
    options = {} if method == "suffix" else {"readback_lag": 1, "trim_drafts": False}
    settings = DecoderOptions(method=name, num_speculative_tokens=k, max_num_seqs=5,
                              max_model_len=128, max_num_batched_tokens=13,
                              batch_buckets=(1, 2, 4, 8), page_size=16, **options)
    engine = Engine(tiny["llama"], settings, draft=draft(tiny), use_graphs=True)
    assert serve(engine, make_requests(), every=1) == reference
    if method == "draft_is_target":
        assert engine.stats.acceptance_length == 5.0
    assert len(engine.runner._graphs) >= 2


@pytest.mark.slow
def test_the_graph_runner_captures_ahead_and_mixes_modes(tiny):
    requests = make_requests(6, temperature=0.9, top_k=7, top_p=0.9) + [
        EngineRequest("g" + r.request_id, r.prompt_ids, r.params) for r in make_requests(6)]
    options = DecoderOptions(method="draft_model", num_speculative_tokens=2, max_num_seqs=4,
                             max_model_len=128, readback_lag=1, trim_drafts=False)
    answers = []
    for use_graphs in (False, True):
        engine = Engine(tiny["llama"], options, draft=tiny["draft"], use_graphs=use_graphs)
        if use_graphs:
            engine.runner.capture_all([1, 2, 4], sampling_mode([SamplingParams()]))
            assert len(engine.runner._graphs) == 3
        answers.append(serve(engine, requests, every=1))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("family", [slow("qwen2"), slow("qwen3"), "qwen3_moe"])
def test_every_family_is_lossless(tiny, family):
    requests = make_requests(6)
    want = {r.request_id: plain(tiny[family], r) for r in requests}
    for method, k, draft in (("none", 0, None), ("draft_model", 3, tiny["draft"]),
                             ("eagle", 2, EagleWeights.random(tiny[family]))):
        assert serve(engine_of(tiny[family], method, k, draft), requests) == want


@pytest.mark.parametrize("shape", some(SHAPES, 1))
def test_draft_equal_to_target_is_always_accepted(tiny, shape):
    engine = engine_of(tiny["llama"], "draft_model", 4, tiny["llama"], **SHAPES[shape])
    serve(engine, make_requests())
    stats = engine.stats
    assert stats.num_accepted_tokens == stats.num_draft_tokens == 4 * stats.num_drafts > 0
    assert stats.acceptance_length == 5.0


def test_a_one_token_first_pass_leaves_a_hole_in_the_draft_cache(tiny):
    """The bug the two-wide first pass prevents; only the acceptance shows it."""

    class WithHole(DraftModelProposer):
        def _pass(self, rows, tokens, start, bound):
            if tokens.shape[1] == 2:
                out = super()._pass(rows, tokens[:, 1:], start + 1, bound)
                return out.repeat_interleave(2, 0)
            return super()._pass(rows, tokens, start, bound)

    engine = engine_of(tiny["llama"], "draft_model", 4, tiny["llama"])
    engine._step.drafter.__class__ = WithHole
    serve(engine, make_requests())
    assert engine.stats.acceptance_length < 4.0


def test_a_slot_without_epochs_confuses_owners(tiny, reference):
    """The bug that epochs prevent: a zombie step's record ends the slot's new owner."""

    class NoEpochs(Engine):
        def _release(self, slot, reason):
            super()._release(slot, reason)
            self._epochs[slot.index] -= 1

    def answers(cls):
        engine = engine_of(tiny["llama"], "draft_model", 4, tiny["llama"], cls, readback_lag=1,
                           trim_drafts=False, max_num_seqs=2)
        for request in make_requests():
            engine.add(request)
        while engine.has_work:
            engine.step()
        return {name: result.token_ids for name, result in engine.finished.items()}

    assert answers(Engine) == reference
    try:
        confused = answers(NoEpochs)
    except (RuntimeError, IndexError, KeyError):
        return
    assert confused != reference


def test_k_0_is_the_baseline_bit_for_bit(tiny):
    """The engine's own logits with method 'none' against bare one-token passes."""
    target, request = tiny["llama"], make_requests()[3]
    engine = engine_of(target, max_num_batched_tokens=64)
    seen = []
    verify = engine._step.verify
    engine._step = type(engine._step)(*(getattr(engine._step, f) for f in (
        "target", "drafter", "state", "cache")))

    class Recorder:
        def __init__(self, step):
            self._step = step

        def __getattr__(self, name):
            return getattr(self._step, name)

        def verify(self, rows, drafts):
            logits = verify(rows, drafts)
            seen.append(logits[0, 0])
            return logits

    engine.runner._step = Recorder(engine._step)
    engine.add(request)
    while engine.has_work:
        engine.step()
    out = engine.finished[request.request_id].token_ids
    harness = SlotHarness(target, slots=6, tokens=129)
    harness.prompt(0, list(request.prompt_ids), 0)
    for i, logits in enumerate(seen):
        want = harness.verify([0], [[out[i]]], [len(request.prompt_ids) + i])[0, 0]
        assert torch.equal(logits, want)
    assert len(seen) == len(out) - 1 > 0


def with_stop(reference, draft_of, tiny, method, k, **options):
    """The longest answer cut at each of its tokens, by a stop token and by max_tokens."""
    request = max(make_requests(), key=lambda r: len(reference[r.request_id]))
    answer = reference[request.request_id]
    for cut in range(1, len(answer) + 1):
        stop = answer[cut - 1]
        first = answer.index(stop) + 1
        by_stop = SamplingParams(max_tokens=60, stop_token_ids=(stop,))
        by_limit = SamplingParams(max_tokens=cut)
        engine = engine_of(tiny["llama"], method, k, draft_of(tiny), **options)
        results = engine.run([(0.0, EngineRequest("stop", request.prompt_ids, by_stop)),
                              (0.0, EngineRequest("limit", request.prompt_ids, by_limit))])
        engine.check_integrity()
        yield results, answer[:first], answer[:cut]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SHAPES["one step late"]], ids=["cpu", "late"])
def test_stop_tokens_and_limits_inside_accepted_drafts(tiny, reference, options):
    """With draft == target all drafts are accepted, so the cuts fall inside accepted tokens."""
    for (stop, limit), at_stop, at_limit in with_stop(
        reference, lambda tiny: tiny["llama"], tiny, "draft_model", 4, **options
    ):
        assert stop.token_ids == at_stop
        assert stop.finish_reason == "stop"
        assert limit.token_ids == at_limit
        assert limit.finish_reason in ("length", "stop")


def test_the_models_end_token_ends_unless_ignored(reference):
    model = make_model(LLAMA)
    request = max(make_requests(), key=lambda r: len(reference[r.request_id]))
    answer = reference[request.request_id]
    model.config = replace(LLAMA, eos_token_ids=(answer[4],))
    first = answer.index(answer[4]) + 1
    run = engine_of(model).run
    plain_end, ignored = run([
        (0.0, EngineRequest("a", request.prompt_ids, SamplingParams(max_tokens=len(answer)))),
        (0.0, EngineRequest("b", request.prompt_ids,
                      SamplingParams(max_tokens=len(answer), ignore_eos=True))),
    ])
    assert plain_end.token_ids == answer[:first]
    assert plain_end.finish_reason == "stop"
    assert ignored.token_ids == answer


@pytest.mark.parametrize(
    "options", [SHAPES["paged, few pages, late"], slow({})], ids=["late", "cpu"])
def test_cancelled_requests_free_their_slot_and_disturb_nobody(tiny, options):
    requests = [EngineRequest(r.request_id, r.prompt_ids, SamplingParams(max_tokens=20))
                for r in make_requests(8)]
    reference = {r.request_id: plain(tiny["llama"], r) for r in requests}
    engine = engine_of(tiny["llama"], "draft_model", 4, tiny["draft"], max_num_seqs=3, **options)
    running, computing, waiting = victims = ("r0", "r2", "r7")
    seen, steps = {}, 0
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            seen.setdefault(output.request_id, []).extend(output.token_ids)
            assert output.finish_reason != "cancelled" or output.request_id in victims
        steps += 1
        if steps == 3:
            assert [engine.cancel(v) for v in victims] == [True, True, True]
    engine.check_integrity()
    assert not engine.cancel(running)
    assert 0 < len(seen[running]) < 20
    assert seen[computing] == seen[waiting] == []
    for name, answer in reference.items():
        assert seen[name] == answer[: len(seen[name])]
        assert name in victims or len(seen[name]) == 20


def test_real_arrivals_wait_for_their_time(tiny):
    now = [0.0]

    def clock():
        now[0] += 0.001
        return now[0]

    def sleep(seconds):
        now[0] += seconds

    options = DecoderOptions(max_num_seqs=2, max_model_len=64)
    engine = Engine(tiny["llama"], options, clock=clock)
    request = EngineRequest("late", [1, 2, 3], SamplingParams(max_tokens=4))
    early = EngineRequest("early", [4, 5], SamplingParams(max_tokens=4))
    results = engine.run([(5.0, request), (0.0, early)], sleep=sleep)
    assert [r.request_id for r in results] == ["early", "late"]
    first, last = results
    assert first.finished_s < 5.0 < last.arrival_s
    assert 0 < last.ttft_s < 1.0
    assert len(last.token_times_s) == 4
    assert last.tpot_s > 0
    assert last.token_times_s == sorted(last.token_times_s)


def test_outputs_show_drafts_and_what_became_of_them(tiny, reference):
    engine = engine_of(tiny["llama"], "draft_model", 4, tiny["draft"])
    request = max(make_requests(), key=lambda r: len(reference[r.request_id]))
    engine.add(request)
    outputs = []
    while engine.has_work:
        outputs.extend(engine.step())
    assert outputs[0].drafts == ()  # the token that ends the prompt
    for output in outputs[1:]:
        assert len(output.drafts) == 4
        kept = min(output.num_accepted, len(output.token_ids))
        assert output.token_ids[:kept] == output.drafts[:kept]
        if not output.finished:
            assert len(output.token_ids) == output.num_accepted + 1
            if output.num_accepted < 4:
                assert output.token_ids[-1] != output.drafts[output.num_accepted]
    assert outputs[-1].finished
    assert sum(len(o.token_ids) for o in outputs) == len(reference[request.request_id])


def test_step_timings_cover_the_wall_time(tiny):
    engine = engine_of(tiny["llama"], "draft_model", 2, tiny["draft"])
    serve(engine, make_requests(4))
    assert len(engine.timings) == engine.stats.num_steps
    assert sum(t.prompt_tokens for t in engine.timings) == engine.stats.num_prompt_tokens
    for timing in engine.timings:
        assert set(timing.phases_s) <= {"prompt", "draft", "verify", "sample"}
        assert 0 <= sum(timing.phases_s.values()) <= timing.wall_s
        assert (timing.decode_seqs > 0) == ("verify" in timing.phases_s)


@pytest.mark.slow
def test_sampled_text_does_not_depend_on_the_batch(tiny):
    """Counter-based noise: alone, together, late or paged, a seeded request is the same."""
    requests = make_requests(8, temperature=0.8, top_p=0.9, top_k=40)
    alone = {}
    for request in requests:
        alone |= serve(engine_of(tiny["llama"], "draft_model", 3, tiny["draft"]), [request])
    for options in SHAPES.values():
        engine = engine_of(tiny["llama"], "draft_model", 3, tiny["draft"], **options)
        assert serve(engine, requests) == alone
    assert len({tuple(t) for t in alone.values()}) > 4


@pytest.mark.parametrize("method", DRAFTING)
def test_one_seed_gives_one_text_whatever_the_engine_has_served(tiny, method):
    """Whatever a drafter keeps (suffix: answers; others: caches, hidden states), a prompt and seed
    give one text on a fresh engine and on one that has served that request before, others since,
    and a cancelled one. Drafts without probabilities leave the text as without drafts."""
    def requests(prefix):
        return [replace(r, request_id=prefix + r.request_id,
                        params=SamplingParams(max_tokens=24, temperature=0.9, top_p=0.95, seed=7))
                for r in make_requests(4)]

    name, k, draft = METHODS[method]

    def texts(engine, prefix):
        got = [serve(engine, [r])[r.request_id] for r in requests(prefix)]
        engine.finished.clear()
        return got

    engine = engine_of(tiny["llama"], name, k, draft(tiny))
    first = texts(engine, "a")
    before = engine.stats.snapshot()
    assert texts(engine, "b") == first
    if method == "suffix":  # the repeats were drafted from the store
        again = engine.stats.since(before)
        assert again.num_accepted_tokens > 2 * before.num_accepted_tokens
    serve(engine, make_requests(5, seed=2, temperature=1.0))
    (cut,) = requests("cut")[:1]
    engine.add(cut)
    for _ in range(5):
        engine.step()
    assert engine.cancel(cut.request_id)
    serve(engine, [])
    assert texts(engine, "c") == first
    if method in ("ngram", "suffix"):
        assert first == texts(engine_of(tiny["llama"]), "d")


@pytest.mark.slow
def test_greedy_rows_stay_greedy_beside_sampled_ones(tiny, reference):
    greedy = make_requests()
    drawn = [EngineRequest("s" + r.request_id, r.prompt_ids,
                     SamplingParams(max_tokens=20, temperature=1.0, seed=i))
             for i, r in enumerate(greedy)]
    engine = engine_of(tiny["llama"], "draft_model", 3, tiny["draft"])
    mixed = serve(engine, [r for pair in zip(greedy, drawn, strict=True) for r in pair], every=1)
    assert {r.request_id: mixed[r.request_id] for r in greedy} == reference


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (EngineRequest("a", []), "no tokens"),
        (EngineRequest("a", [1] * 100), "max_model_len 128"),
        (EngineRequest("a", [VOCAB], SamplingParams(max_tokens=4)), f"token id {VOCAB}"),
        (EngineRequest("a", [-1], SamplingParams(max_tokens=4)), "token id -1"),
        (EngineRequest("a", [1], SamplingParams(max_tokens=128)), "prompt of 1 tokens plus"),
    ],
)
def test_requests_that_cannot_run_are_refused(tiny, request_, message):
    with pytest.raises(UsageError, match=message):
        engine_of(tiny["llama"]).add(request_)


def test_ids_are_unique(tiny):
    engine = engine_of(tiny["llama"])
    few = SamplingParams(max_tokens=2)
    engine.add(EngineRequest("a", [1], few))
    with pytest.raises(UsageError, match="'a' is already running"):
        engine.add(EngineRequest("a", [1], few))


def test_a_request_larger_than_the_cache_is_refused_at_once(tiny):
    engine = engine_of(tiny["llama"], page_size=8, kv_pages=4)
    with pytest.raises(CapacityError, match="raise kv_pages"):
        engine.add(EngineRequest("a", [1] * 30, SamplingParams(max_tokens=30)))


@pytest.mark.parametrize(
    ("method", "k", "options", "message"),
    [
        ("draft_model", 2, {}, "needs a draft model"),
        ("eagle", 2, {}, "needs a head file"),
        ("suffix", 2, {"readback_lag": 1}, "needs readback_lag 0"),
        ("ngram", 2, {"readback_lag": 1, "trim_drafts": True}, "trim_drafts needs readback_lag 0"),
        ("early_exit", 2, {"early_exit_layers": 3}, r"early_exit_layers 3 must lie in 1\.\.2"),
    ],
)
def test_contradicting_options_are_refused(tiny, method, k, options, message):
    with pytest.raises(UsageError, match=message):
        engine_of(tiny["llama"], method, k, **options)


def test_context_longer_than_the_model_is_refused(tiny):
    with pytest.raises(CapacityError, match="loaded for 256"):
        engine_of(tiny["llama"], max_model_len=256)

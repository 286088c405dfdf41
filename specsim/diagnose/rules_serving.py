"""Rules about what surrounds speculation: memory, host, queue and prompts.

Thresholds are of order, not of fit: a cache over 90 % full preempts at the next burst; a queue
that makes up a third of TTFT is what its users wait for; a step whose 99th percentile is four
medians carries prompts. The host gap is judged against the 90 % interval of public residuals where
there is one, so that ordinary model error is not called a gap.
"""

from specsim.diagnose.evidence import FULL
from specsim.diagnose.finding import PREDICTED, Case, Fact, Finding, known
from specsim.diagnose.rules_speculation import GAIN, batch
from specsim.latency.engine import find_engine, list_engines
from specsim.latency.engine_profile import EngineProfile
from specsim.units import counted

QUEUE_SHARE = 0.3  # of TTFT
QUEUE_LEAST_S = 0.05
WAITING_SHARE = 0.1  # of running
GAP = 1.15  # measured / predicted that counts at all
GAP_WITHOUT_INTERVAL = 1.3
MISFIT = 4.0  # beyond it the options describe another server
FASTER = 0.8
SPIKE = 4.0  # p99 / p50 of the step
SPIKED_MEAN = 1.15  # mean / p50
PROMPT_SHARE = 0.2  # of the time between outputs


def _engine(case: Case) -> EngineProfile:
    """The engine that ran; vLLM, whose words are the commonest, for those without a command."""
    known = [engine.name for engine in list_engines() if engine.server.command]
    name = case.evidence.engine
    return find_engine(name if name in known else "vllm")


def memory_pressure(case: Case) -> Finding | None:
    """The cache is nearly full, or requests were preempted. Where the drafter takes part of it, the
    gain at the load says what to do about it: the one verdict about speculation there."""
    here, expected = case.evidence, case.expected
    if not here.cache_full(expected.max_requests if expected is not None else 0):
        return None
    facts = known(
        ("KV cache in use", here.kv_cache_usage, "share"),
        ("preemptions", here.preemptions, "count"),
        ("requests waiting", here.waiting or None, "count"),
    )
    if expected is not None and here.speculates:
        facts += (
            Fact("requests of this length that fit", expected.max_requests, "count", PREDICTED),
            Fact("without speculation", expected.plain_max_requests, "count", PREDICTED),
            Fact("weights of the drafter", expected.drafter_bytes, "bytes", PREDICTED),
        )
    server = _engine(case).server
    steps = [
        f"raise {server.gpu_memory_utilization}, or use a cache of {server.kv_cache['fp8']}",
        f"lower {server.max_num_seqs} so that admitted requests can finish without preemption",
    ]
    verdict = "The KV cache is nearly full: the next burst waits or preempts."
    if here.preemptions:
        verdict = "The KV cache is the limit: requests are preempted or wait for blocks."
    if case.displaced and case.speedup is not None:
        words, first, more = _at_the_load(case, *case.speedup)
        verdict = f"Memory is short, and the drafter with its cache takes part of it: {words}."
        steps.insert(0, first)
        facts += more
    return Finding("memory_pressure", "problem", verdict, facts, tuple(steps))


def _at_the_load(case: Case, gain: float, source: str) -> tuple[str, str, tuple[Fact, ...]]:
    """(words, first step, figures) about speculation whose drafter takes room of a full cache."""
    expected = case.expected
    assert expected is not None
    interval = expected.speedup_interval if source == PREDICTED else None
    low, high = interval or (gain, gain)
    facts = known(
        ("clients that run or wait", expected.load, "count"),
        ("speedup at this load", gain, "x", source),
        ("90% of such predictions are above", interval and low, "x", PREDICTED),
        ("below", interval and high, "x", PREDICTED),
        ("speedup if the waiting ones are left out", expected.speedup_in_batch, "x", PREDICTED),
    )
    if gain <= 1 - GAIN:
        words = "at this load the requests it displaces cost more than its drafts bring"
        step = ("switch speculation off at this load, or take a drafter that needs less room: a "
                "smaller one, an MTP head, n-gram (specsim tune compares)")
    elif low < 1 < high and source == PREDICTED:
        words = ("whether its drafts bring more at this load than the requests it displaces is "
                 "open")
        step = ("run this load without speculation too (specsim diagnose FILE --plain FILE): the "
                "prediction does not decide it")
    elif gain < 1 + GAIN:
        words = "at this load its drafts bring about as much as the requests it displaces"
        step = "free memory first: then the drafter displaces nothing"
    else:
        words = "at this load its drafts still bring more than the requests it displaces"
        step = "keep the drafter; a smaller one would leave more room (specsim tune compares)"
    return words, step, facts


def host_gap(case: Case) -> Finding | None:
    """Steps take longer than the device's work explains."""
    here, expected = case.evidence, case.expected
    if expected is None or here.step_s is None:
        return None
    measured, predicted = here.step_s, expected.itl_s
    ratio = measured / predicted
    interval = expected.itl_interval
    facts = known(
        ("time between outputs", measured, "s", f"measured: {here.step_from}"),
        ("predicted for this batch", predicted, "s", PREDICTED),
        ("90% of such predictions are below", interval and interval[1], "s", PREDICTED),
    )
    least = interval[1] / predicted if interval else GAP_WITHOUT_INTERVAL
    if ratio < FASTER and (interval is None or measured < interval[0]):
        return Finding(
            "faster_than_predicted", "notice",
            "Steps are faster than predicted for this deployment: the options may describe "
            "another one.",
            facts,
            ("check --gpu, --tp, --weights and the measured batch; calibrate with "
             "`specsim calibrate --from FILE`",),
        )
    if ratio < max(GAP, least):
        return None
    if ratio > MISFIT:
        return Finding(
            "prediction_misfit", "notice",
            f"Steps take {ratio:.1f} times what was predicted: more than a host gap; the options "
            "may describe another server.",
            facts,
            ("check --gpu, --tp, --weights and --engine; is another process on the device, or is "
             "it a CPU?", "calibrate with `specsim calibrate --from FILE`"),
        )
    gaps = here.step_from == "gaps between chunks"
    if gaps and here.step_p50_s is not None and here.step_p50_s < least * expected.step_s:
        return None  # the usual step is as predicted; the mean is raised by prompts or pauses
    facts += (
        Fact("unexplained, per step", measured - predicted, "s", "measured - predicted"),
        Fact("of the prediction: drafting", expected.draft_s, "s", PREDICTED),
        Fact("verification", expected.verify_s, "s", PREDICTED),
        Fact("host", expected.host_s, "s", PREDICTED),
    )
    steps = (
        "check that CUDA graphs are on (no --enforce-eager) and reach this batch: "
        f"{counted(expected.batch, 'sequence')} x {expected.k + 1} tokens (cudagraph_capture_sizes "
        "in --compilation-config; SGLang: --cuda-graph-max-bs)",
        "check asynchronous scheduling: n-gram and structured output switch it off in vLLM",
        "look at the host: a core at 100% in the engine or API server process, CPU quota, "
        "tokenizer, logging",
        "check the device's clocks and other processes on it (nvidia-smi)",
    )
    return Finding(
        "host_gap", "problem",
        f"Steps take {measured / predicted - 1:.0%} longer than the device's work explains: a gap "
        "at the host.",
        facts, steps,
    )


def queueing(case: Case) -> Finding | None:
    """Requests wait for admission."""
    here = case.evidence
    share = None
    if here.queue_s is not None and here.ttft_s:
        share = here.queue_s / here.ttft_s
    slow = share is not None and share >= QUEUE_SHARE and (here.queue_s or 0) >= QUEUE_LEAST_S
    waits = (here.waiting or 0) >= max(1.0, WAITING_SHARE * (here.running or 0))
    if not (slow or waits):
        return None
    facts = known(
        ("wait for admission", here.queue_s, "s"), ("time to first token", here.ttft_s, "s"),
        ("requests waiting", here.waiting, "count"),
    )
    facts += batch(case) + known(("KV cache in use", here.kv_cache_usage, "share"))
    engine = _engine(case)
    server, usual = engine.server, engine.spec_max_num_seqs
    limit = here.max_num_seqs
    if limit is None and usual and here.speculates:
        limit = usual
    if here.kv_cache_usage is not None and here.kv_cache_usage >= FULL:
        why, step = "for KV cache", "free cache first: see the memory finding"
    elif limit and here.running is not None and here.running >= 0.95 * limit:
        why = f"for one of {limit} slots"
        step = f"raise {server.max_num_seqs} above {limit} while time per token allows"
        if usual and limit == usual:
            step = (f"{server.label} runs at most {usual} requests under speculation "
                    f"unless told otherwise: set {server.max_num_seqs}")
    else:
        why = "for slots or for their prompt's turn"
        step = (f"compare running requests with {server.max_num_seqs}, and prompt tokens per "
                f"second with {server.max_num_batched_tokens} per step")
    steps = (step, "specsim capacity finds the load that still meets your targets",
             "speculation shortens the queue only while it raises throughput at this batch")
    return Finding(
        "queueing", "problem", f"Requests queue at admission: they wait {why}.", facts, steps
    )


def prefill_interference(case: Case) -> Finding | None:
    """Prompts of others delay the outputs of running streams."""
    here, expected = case.evidence, case.expected
    facts: tuple[Fact, ...] = ()
    found = False
    p50, p99, mean = here.step_p50_s, here.step_p99_s, here.step_s
    if p50 and p99 and mean and (here.steps_counted or 1000) >= 100:
        found = p99 >= SPIKE * p50 and mean >= SPIKED_MEAN * p50
        facts = (
            Fact("median time between outputs", p50, "s"),
            Fact("99th percentile", p99, "s"),
            Fact("mean", mean, "s"),
        )
    if expected is not None:
        share = 1 - expected.step_s / expected.itl_s if expected.itl_s > 0 else 0.0
        facts += (
            Fact("prompts' share of the time between outputs", share, "share", PREDICTED),
        )
        found = found or share >= PROMPT_SHARE
    if not found:
        return None
    facts += known(("prompt tokens per request", here.input_len or None, "tokens"))
    server = _engine(case).server
    return Finding(
        "prefill_interference", "problem",
        "Prompts interfere with running streams: steps that carry prompt chunks are much longer "
        "than the others.",
        facts,
        (f"a smaller {server.max_num_batched_tokens} cuts prompts into shorter pieces "
         "(and lengthens TTFT)",
         "prefix caching spares prompts that repeat (on by default: no "
         f"{server.no_prefix_caching})",
         "separate prefill from decoding where prompts are long (disaggregated serving)"),
    )


RULES = (memory_pressure, host_gap, queueing, prefill_interference)

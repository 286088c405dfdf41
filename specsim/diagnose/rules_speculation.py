"""Rules about what speculation costs and brings. Each takes a Case and returns a Finding or None.

A verify step costs r plain steps and brings a tokens per sequence; it pays where a > r. What the
rules tell apart is why it does not:

    competes    it would pay for one client, but at this batch the drafted tokens take time from
                other sequences: the spare compute is used up
    rejected    it would pay if the drafts were accepted, but they are not
    too_costly  it would not pay even then: drafter or host cost more than a step can win

GAIN is the margin around break-even in which neither a gain nor a loss is claimed; the sign of
predictions was right outside it for 98 of 100 public measurements (validation/reports/report.md).
"""

from specsim.diagnose.evidence import FEW_DRAFTS
from specsim.diagnose.expected import RARELY
from specsim.diagnose.finding import PREDICTED, Case, Fact, Finding, known

GAIN = 0.03
LOW_FIRST = 0.5  # first drafts accepted less often than not
LOW_LENGTH = 1.5  # the same, where only the length is known
RARE_TAIL = 0.15  # a last position that is reached by fewer than one step in seven
FAR_BELOW_USUAL = 0.75  # of what was measured in public, less the bonus token


def _balance(case: Case) -> tuple[Fact, ...]:
    """The two sides of the bargain and the gain, each with its source."""
    ratio, ratio_from = case.step_cost_ratio or (None, "")
    gain, gain_from = case.speedup or (None, "")
    return known(
        ("tokens per step", case.evidence.yield_per_step, "tokens"),
        ("step with drafts / plain step (r)", ratio, "x", ratio_from),
        ("speedup", gain, "x", gain_from),
    )


def batch(case: Case) -> tuple[Fact, ...]:
    """The running sequences, and how they are known."""
    here = case.evidence
    return known(("running sequences", here.running, "count", f"measured: {here.running_from}"))


def trades_well(case: Case) -> Finding | None:
    """Spare compute is being traded for tokens, at a gain."""
    if case.speedup is None or case.evidence.speculates is not True:
        return None
    gain, _ = case.speedup
    if gain < 1 - GAIN or case.displaced:
        return None
    expected = case.expected
    facts = _balance(case) + batch(case)
    if gain <= 1 + GAIN:
        return Finding(
            "break_even", "notice",
            "Speculation neither gains nor loses at this load: its extra work costs about what it "
            "brings.",
            facts,
            ("let traffic decide: a larger batch makes it a loss, a smaller one a gain",
             "vLLM: num_speculative_tokens_per_batch_size in --speculative-config drafts less as "
             "the batch grows"),
        )
    spare = ""
    if expected is not None and expected.plain_bound == "memory":
        spare = ": a plain step of this batch is memory-bound, so verifying drafts costs little"
    elif expected is not None and expected.plain_bound == "latency":
        spare = ": a plain step of this batch waits for launches and the host, not for compute"
    if expected is not None and (expected.break_even or 0) > expected.load:
        facts += known(("pays below about", expected.break_even, "count", PREDICTED))
    return Finding(
        "trades_well", "good", f"Spare compute is traded well for tokens{spare}.", facts,
        ("keep it; a larger batch may make it a loss (specsim watch says when)",),
    )


def competes(case: Case) -> Finding | None:
    """Speculative work takes time from batched work."""
    expected = case.expected
    if case.speedup is None or case.evidence.speculates is not True:
        return None
    gain, _ = case.speedup
    if gain >= 1 - GAIN:
        return None
    if case.displaced and expected is not None and expected.speedup_in_batch >= 1 - GAIN:
        return None  # the room that the drafter takes loses it, not its steps
    if expected is not None and expected.speedup_alone < 1 + GAIN:
        return None  # it would not pay for one client either: not the batch's doing
    if expected is None and not _proven_costly(case):
        return None
    facts = _balance(case) + batch(case)
    if expected is not None:
        facts += known(
            ("speedup for one client", expected.speedup_alone, "x", PREDICTED),
            ("r for one client", expected.step_cost_ratio_alone, "x", PREDICTED),
            ("pays below about", expected.break_even, "count", PREDICTED),
        )
    steps = []
    if expected is not None and expected.best_k is not None and expected.best_k != expected.k:
        steps.append(
            f"--speculative-config '{{..., \"num_speculative_tokens\": {expected.best_k}}}'"
            if expected.best_k else "switch speculation off at this load"
        )
    steps += [
        "vLLM: num_speculative_tokens_per_batch_size in --speculative-config drafts less from a "
        "batch on (0 in it rests the drafter, which is not off); SGLang: --speculative-adaptive",
        "spread the load over more replicas, so that each runs a smaller batch",
    ]
    bound = "" if expected is None else f" (the step waits for {expected.bound})"
    return Finding(
        "competes", "problem",
        f"Speculative work competes with batched work{bound}: verifying drafts costs more time "
        "than the accepted ones save.",
        facts, tuple(steps),
    )


def _proven_costly(case: Case) -> bool:
    """Without a model: a run without speculation shows that steps cost more than they bring,
    although drafts are accepted."""
    value, ratio = case.evidence.yield_per_step, case.step_cost_ratio
    return value is not None and ratio is not None and value > LOW_LENGTH and ratio[0] > value


def rejected(case: Case) -> Finding | None:
    """The proposer's tokens are rejected."""
    here, expected = case.evidence, case.expected
    if here.speculates is not True or (here.num_drafts or FEW_DRAFTS) < FEW_DRAFTS:
        return None
    first = here.per_position[0] if here.per_position else None
    length = here.acceptance_length
    low = first < LOW_FIRST if first is not None else length is not None and length < LOW_LENGTH
    unpaid = (
        expected is not None and expected.speedup < 1 - GAIN
        and expected.speedup_alone < 1 + GAIN and expected.speedup_if_all > 1 + GAIN
    )
    usual = case.usual_length
    below = usual is not None and length is not None and usual > 1.2 and (
        length - 1 < FAR_BELOW_USUAL * (usual - 1)
    )
    if not (low or unpaid or below):
        return None
    in_public = usual if below else None
    facts = known(
        ("acceptance length", length, "tokens"),
        ("accepted / drafted tokens", here.acceptance_rate, "share"),
        ("first draft accepted", first, "share"),
        ("drafts counted", here.num_drafts or None, "count"),
        ("acceptance length measured in public", in_public, "tokens", "catalogue"),
    )
    if expected is not None and (low or unpaid):
        facts += (
            Fact("speedup", expected.speedup, "x", PREDICTED),
            Fact("speedup if all were accepted", expected.speedup_if_all, "x", PREDICTED),
        )
    steps = [
        "look at the text: random or synthetic prompts make any acceptance low; measure with your "
        "own traffic",
        "check that drafter and target belong together: same tokenizer, same fine-tune, same chat "
        "template; temperature and penalties lower acceptance",
    ]
    if below:
        steps.insert(0, "compare with a run at temperature 0 on ordinary chat or code: if it stays "
                        "this low, suspect a wrong drafter checkpoint or an engine bug")
    if expected is not None and expected.best_k is not None and expected.best_k < expected.k:
        steps.append(f"draft less: num_speculative_tokens {expected.best_k}" if expected.best_k
                     else "switch speculation off: leave out --speculative-config")
    elif expected is None:
        steps.append("draft less: a smaller num_speculative_tokens wastes fewer rejected tokens")
    level = "problem" if low or unpaid else "notice"
    verdict = "The proposer's tokens are rejected"
    if not (low or unpaid):
        verdict = "Far fewer drafts are accepted than others measured for this model and method"
    elif case.speedup is not None and case.speedup[0] > 1 + GAIN:
        level = "notice"
        verdict += ", though what is accepted still pays"
    return Finding("rejected", level, verdict + ".", facts, tuple(steps))


def too_costly(case: Case) -> Finding | None:
    """Drafting costs more than even full acceptance would win."""
    expected = case.expected
    if expected is None or case.evidence.speculates is not True or case.speedup is None:
        return None
    if case.speedup[0] >= 1 - GAIN or expected.speedup_alone >= 1 + GAIN:
        return None
    if expected.speedup_if_all > 1 + GAIN:
        return None
    facts = (
        *_balance(case),
        Fact("speedup if all were accepted", expected.speedup_if_all, "x", PREDICTED),
        Fact("drafting, of each step", expected.draft_s, "s", PREDICTED),
        Fact("verification", expected.verify_s, "s", PREDICTED),
        Fact("a plain step", expected.plain_step_s, "s", PREDICTED),
    )
    return Finding(
        "too_costly", "problem",
        "Drafting costs more than it can win on this deployment, even if every draft were "
        "accepted.",
        facts,
        ("take a cheaper proposer: an MTP head or EAGLE-3 instead of a draft model, n-gram where "
         "answers repeat the prompt", "switch speculation off: leave out --speculative-config"),
    )


def other_k(case: Case) -> Finding | None:
    """Another draft length would serve this batch better."""
    expected = case.expected
    if expected is None or expected.best_k is None or case.evidence.speculates is not True:
        return None
    better = expected.best_speedup / expected.speedup
    if expected.best_k == expected.k or better < 1 + GAIN:
        return None
    if expected.best_k == 0 and (case.displaced or (case.speedup or (0.0,))[0] >= 1 - GAIN):
        return None  # said with what it costs in memory, or measured otherwise
    facts = (
        Fact("num_speculative_tokens now", expected.k, "count"),
        Fact("best num_speculative_tokens", expected.best_k, "count", PREDICTED),
        Fact("speedup now", expected.speedup, "x", PREDICTED),
        Fact("speedup with the best", expected.best_speedup, "x", PREDICTED),
        *batch(case),
    )
    if expected.best_k == 0:
        verdict, step = "At this batch plain decoding is faster than any draft length.", (
            "leave out --speculative-config; 0 in a table by batch size keeps the drafter's memory "
            "and its passes")
    else:
        verdict = f"Drafting {expected.best_k} tokens per step would pay more than {expected.k}."
        step = ("vLLM: \"num_speculative_tokens\": "
                f"{expected.best_k} in --speculative-config; SGLang: --speculative-num-steps "
                f"{expected.best_k} --speculative-num-draft-tokens {expected.best_k + 1}")
    steps = [step]
    if expected.best_k > len(case.evidence.per_position) > 0:
        steps.append("acceptance beyond the measured positions is extrapolated: try it and "
                     "measure again")
    return Finding("other_k", "notice", verdict, facts, tuple(steps))


def wasted_tail(case: Case) -> Finding | None:
    """Without a model: the last positions are nearly never accepted."""
    rates = case.evidence.per_position
    if case.expected is not None or len(rates) < 2 or rates[-1] >= RARE_TAIL:
        return None
    mean = case.evidence.mean_drafted
    if mean is not None and mean < len(rates) - 0.5:
        return None  # the last positions are seldom drafted at all
    if (case.evidence.num_drafts or FEW_DRAFTS) < FEW_DRAFTS or rates[0] < LOW_FIRST:
        return None
    useful = sum(rate >= RARE_TAIL for rate in rates)
    facts = tuple(Fact(f"draft {i + 1} accepted", rate, "share") for i, rate in enumerate(rates))
    return Finding(
        "wasted_tail", "notice",
        f"Drafts beyond position {useful} are nearly never accepted: they cost time in every step.",
        facts,
        (f"num_speculative_tokens {max(1, useful)}; with MODEL and --gpu the best length is "
         "computed",),
    )


def rarely_proposes(case: Case) -> Finding | None:
    """Most steps carry no draft at all (n-gram and suffix lookups that find nothing)."""
    here, share = case.evidence, case.evidence.draft_share
    if share is None or share >= RARELY or here.speculates is not True:
        return None
    if case.expected is not None and case.expected.cost.rest_step_s is not None:
        return None  # a network drafts whenever it is asked: see `rules_drafting.rests`
    if (here.num_drafts or FEW_DRAFTS) < 10:
        return None
    facts = known(
        ("steps with a draft", share, "share"),
        ("acceptance length of those", here.acceptance_length, "tokens"),
        ("tokens per step over all", here.tokens_per_step, "tokens"),
    )
    return Finding(
        "rarely_proposes", "notice",
        f"The proposer finds a draft in only {share:.0%} of the steps, so the acceptance length "
        "overstates the gain.",
        facts,
        ("n-gram: a smaller prompt_lookup_min finds more (and worse) drafts; it pays where answers "
         "repeat their prompt (edits, summaries, extraction)",
         "suffix decoding also looks into earlier answers; MTP or EAGLE-3 draft in every step"),
    )


def switched_off(case: Case) -> Finding | None:
    """No drafts at all."""
    here, would = case.evidence, case.would
    if here.speculates is not False:
        return None
    facts = known(("tokens per step", here.tokens_per_step, "tokens")) + batch(case)
    if would is None:
        return Finding(
            "switched_off", "notice", "No draft was counted: speculation is off.", facts,
            (_to_see_more(case),),
        )
    facts += (
        Fact("speedup it would bring", would.speedup, "x", PREDICTED),
        Fact("tokens per step", would.tokens_per_step, "tokens", would.acceptance_source),
    )
    pays = would.best_speedup > 1 + GAIN
    verdict = "Speculation is off"
    if pays:
        verdict += f"; {would.method} would pay at this load."
        k = would.best_k if would.best_k else would.k
        steps = (f"specsim tune, then --speculative-config with {would.method} and "
                 f"num_speculative_tokens {k}",)
    else:
        verdict += f", and {would.method} would not pay at this load either."
        steps = ("leave it off while the batch is this large",)
    return Finding("switched_off", "notice", verdict, facts, steps)


def _to_see_more(case: Case) -> str:
    """What to type to learn what speculation would do."""
    if case.asked_plain:
        return "leave out --method none to see what it would do at this load"
    if case.expected is not None:
        return ("no drafter of this model is known: give --method and --draft to see what they "
                "would do at this load")
    return "give MODEL and --gpu to see what it would do at this load"


RULES = (trades_well, competes, rejected, too_costly, other_k, wasted_tail, rarely_proposes,
         switched_off)

"""All rules over one case: findings in order of weight, and what was missing to judge more."""

from dataclasses import replace

from specsim.diagnose import rules_drafting, rules_serving, rules_speculation
from specsim.diagnose.evidence import FEW_DRAFTS, Evidence
from specsim.diagnose.expected import Predictor
from specsim.diagnose.finding import LEVELS, Case, Diagnosis, Missing
from specsim.errors import SpecSimError

RULES = (*rules_speculation.RULES, *rules_drafting.RULES, *rules_serving.RULES)


def diagnose(
    evidence: Evidence, predictor: Predictor | None = None, plain: Evidence | None = None
) -> Diagnosis:
    """Judge one run. predictor: the deployment it ran on, where known; plain: the same load
    measured without speculation."""
    expected = would = usual = None
    warnings: tuple[str, ...] = ()
    if predictor is not None:
        try:
            expected = predictor.expect(evidence)
        except SpecSimError as error:  # lengths or a batch that this deployment cannot have
            warnings = (*warnings, f"no prediction for this run: {error}")
            predictor = None
    if predictor is not None:
        system = predictor.system
        if evidence.speculates is False and system.speculative:
            # what it would do: the same batch with the acceptance the options or catalogue have
            would = predictor.expect(
                replace(evidence, tokens_per_step=None, acceptance_length=None,
                        acceptance_rate=None, per_position=(), draft_share=None)
            )
        usual = usual_length(predictor, evidence)
    if expected is not None and (evidence.running or 0) > 1.1 * expected.batch + 1:
        warnings = (
            *warnings,
            f"{evidence.running:.0f} sequences ran, but {expected.batch} fit by prediction: check "
            "--gpu, --tp, --max-num-seqs and the weights' format",
        )
    asked_plain = predictor is not None and predictor.asked_plain
    case = Case(evidence, expected, plain, would, usual, asked_plain)
    found = [finding for rule in RULES if (finding := rule(case)) is not None]
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    return Diagnosis(case, tuple(found), tuple(what_is_missing(case)), warnings + evidence.warnings)


def usual_length(predictor: Predictor, evidence: Evidence) -> float | None:
    """Acceptance length at the measured k that the catalogue holds for this model and method:
    the low end of its 90 % interval, so that hard text alone is no finding."""
    from specsim.speculation.questions import AcceptanceQuery
    from specsim.speculation.resolve import resolve

    setup = predictor.system.setup
    k = evidence.drafted_k or setup.k
    if evidence.speculates is not True or not k or not setup.speculates:
        return None
    found = resolve(AcceptanceQuery(predictor.system.spec.name, setup.method), k)
    return None if found.level in ("kind of drafter", "unknown") else found.low_90


def work_done(evidence: Evidence) -> bool:
    """Whether anything ran while the evidence was taken."""
    return bool(evidence.output_tokens or evidence.output_tok_s or evidence.step_s
                or evidence.acceptance_length)


def what_is_missing(case: Case) -> list[Missing]:
    """What the evidence lacks, most useful first."""
    here = case.evidence
    if not work_done(here):
        return [Missing(
            "any output token", "anything: the server was idle",
            "repeat while requests run; --interval waits longer between the two scrapes of --url",
        )]
    unpredicted = case.expected is None and case.plain is None
    looked_for = (
        (unpredicted and here.running is None, "the running batch", "what a step should cost",
         "give the /metrics of before and after, or a benchmark with its load"),
        (unpredicted, "a prediction for this deployment",
         "whether drafts are worth their cost, the best k, the host gap",
         "add MODEL and --gpu (and --tp, --weights, --method as served), or --plain FILE: the "
         "same load without speculation"),
        (here.speculates is None, "acceptance and tokens per step", "what speculation brings",
         "take /metrics before and after the run, or benchmark with --save-detailed"),
        (here.speculates and not here.per_position, "acceptance by position",
         "which draft positions are worth their cost",
         "vLLM's /metrics and log lines hold it; for SGLang, the spec_correct_drafts_histogram "
         "of single answers"),
        (here.step_s is None, "the time between outputs", "host gap and prompts' interference",
         "a streaming benchmark, or /metrics before and after"),
        (here.queue_s is None and here.waiting is None, "the server's queue",
         "queueing at admission",
         "take /metrics before and after the run, or use --url while it runs"),
        (here.kv_cache_usage is None, "cache use", "memory pressure",
         "use --url or a /metrics dump taken under load"),
        (here.kv_cache_usage == 0 and not here.live and here.output_tokens,
         "cache use under load", "memory pressure",
         "this dump was taken when nothing ran; scrape during the run, or use --url"),
        (here.counted_since_start, "a beginning",
         "the present load: counters cover everything since the server started",
         "give an earlier dump with --before"),
        (here.num_drafts is not None and here.num_drafts < FEW_DRAFTS, "more drafts",
         f"acceptance: {here.num_drafts} drafts are too few", "measure longer"),
    )
    return [Missing(*words) for lacking, *words in looked_for if lacking]

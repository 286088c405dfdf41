"""Rules about what drafts cost beyond compute: experts, links, a drafter that rests.

Each compares the deployment's step with the same step without that cost, both priced; how much of a
step counts is GAIN, as for speedups.
"""

from specsim.diagnose.finding import PREDICTED, Case, Fact, Finding, known
from specsim.diagnose.rules_speculation import GAIN, batch

MORE_EXPERTS = 1.25  # bytes of experts, tree over chain, that a tree has to earn
LINK_SHARE = 0.2  # of the drafting


def wakes_experts(case: Case) -> Finding | None:
    """Tree drafts on a model that activates few of its experts: each branch reads others."""
    expected = case.expected
    if expected is None or case.evidence.speculates is not True:
        return None
    cost = expected.cost
    tree, chain, plain = (
        cost.tree_expert_bytes, cost.chain_expert_bytes, cost.plain_expert_bytes
    )
    if not tree or not chain or not plain or tree < MORE_EXPERTS * chain:
        return None
    facts = (
        Fact("tokens verified per sequence", cost.tree_tokens, "count"),
        Fact("experts read by a step with the tree", tree, "bytes", PREDICTED),
        Fact(f"with a chain of {expected.k} drafts", chain, "bytes", PREDICTED),
        Fact("by a plain step", plain, "bytes", PREDICTED),
        *known(("step with drafts / plain step (r)", expected.step_cost_ratio, "x", PREDICTED)),
        *batch(case),
    )
    return Finding(
        "wakes_experts", "notice",
        f"The tree makes a step read {tree / plain:.1f} times the experts of a plain step, a chain "
        f"would read {chain / plain:.1f} times: of few active experts each branch wakes others.",
        facts,
        (f"try a chain (SGLang: --speculative-eagle-topk 1 --speculative-num-draft-tokens "
         f"{expected.k + 1}) and compare tokens per second: it accepts less and reads less",),
    )


def drafts_over_links(case: Case) -> Finding | None:
    """A drafter that is split over GPUs waits for their links in each of its small passes."""
    expected = case.expected
    if expected is None or case.evidence.speculates is not True:
        return None
    cost = expected.cost
    link, draft, step, alone = cost.link_s, cost.draft_s, cost.step_s, cost.one_gpu_step_s
    if link is None or not draft or not step or alone is None:
        return None
    gains = alone < step / (1 + GAIN)
    if link < LINK_SHARE * draft and not gains:
        return None
    facts = (
        Fact("GPUs that the drafter is split over", cost.gpus, "count"),
        Fact("drafting, of each step", draft, "s", PREDICTED),
        Fact("of it waiting for links", link, "s", PREDICTED),
        Fact("step", step, "s", PREDICTED),
        Fact("step with the drafter on one GPU", alone, "s", PREDICTED),
    )
    steps = [
        "draft in one pass (P-EAGLE, DFlash), or draft less: every pass has its own all-reduces",
        "check that the drafter's passes run in CUDA graphs with fused all-reduces (engine's log)",
    ]
    if gains:
        steps.insert(0, "vLLM: \"draft_tensor_parallel_size\": 1 in --speculative-config keeps the "
                        "drafter on one GPU")
    return Finding(
        "drafts_over_links", "notice",
        f"Drafting waits {link / draft:.0%} of its time for the links between {cost.gpus} GPUs: "
        "its passes are too small to fill them.",
        facts, tuple(steps),
    )


def rests(case: Case) -> Finding | None:
    """A network that drafts in few steps: k = 0 in a table rests it, but is not off."""
    here, expected = case.evidence, case.expected
    if expected is None or here.speculates is not True or here.draft_share is None:
        return None
    resting, plain = expected.cost.rest_step_s, expected.cost.plain_step_s
    if resting is None or not plain:
        return None
    facts = (
        Fact("steps with a draft", here.draft_share, "share"),
        Fact("a step at k = 0", resting, "s", PREDICTED),
        Fact("a plain step", plain, "s", PREDICTED),
        Fact("weights of the drafter", expected.drafter_bytes, "bytes", PREDICTED),
        Fact("requests of this length that fit", expected.max_requests, "count", PREDICTED),
        Fact("without speculation", expected.plain_max_requests, "count", PREDICTED),
        *batch(case),
    )
    return Finding(
        "rests", "notice",
        f"Only {here.draft_share:.0%} of the steps carry a draft. The others draft nothing "
        f"(k = 0), which is not off: they take {resting / plain:.2f} plain steps, and the drafter "
        "keeps its memory.",
        facts,
        ("where most of the load is beyond the table's last batch that drafts, serve it without "
         "--speculative-config",
         "measured at k = 0: 6.6% of TPOT at 2 requests, 21.6% at 189 (vLLM issue 49548, older "
         "runner)"),
    )


RULES = (wakes_experts, drafts_over_links, rests)

"""What `specsim policies` says: each policy's figures, which differences are real, and pictures."""

from collections.abc import Sequence

from specsim.report import deployment as d
from specsim.report.blocks import Charts, Lines, Notes, Section
from specsim.report.columns import figure, fixed, table_of, time, word
from specsim.report.doc import Doc
from specsim.report.plots import Bars
from specsim.report.simulation import load_line
from specsim.report.tables import Table, percent

_RANKED = {"goodput": "requests/s within the limits", "output_tok_s": "output tok/s"}
_JUDGED = {"goodput": "goodput", "output_tok_s": "output tok/s", "ttft_s.mean": "TTFT, mean",
           "tpot_s.mean": "TPOT, mean"}


def policies_section(doc: Doc) -> Section:
    """All blocks."""
    inputs, policies = doc.at("inputs"), doc.items("policies")
    seed, runs = int(doc.number("seed")), int(doc.number("replications"))
    return Section(f"Policies: {d.title_of(inputs)}", f"Policies: {inputs.text('model')}", [
        Lines(_answer(doc, policies, runs), "verdict"),
        Lines([
            d.deployed(inputs), d.drafting(inputs), load_line(inputs.at("load")),
            f"every policy sees the same requests and random draws: seed {seed}"
            + (f" to {seed + runs - 1}, means of {runs} runs" if runs > 1 else ", one run"),
        ]),
        _figures(doc, policies),
        _differences(doc, policies, runs),
        Charts(_charts(doc, policies)),
        Notes(doc.texts("warnings")),
        d.settings(inputs),
    ])


def _answer(doc: Doc, policies: Sequence[Doc], runs: int) -> list[str]:
    """Which policy is best, and which are not told apart from it."""
    lead = f"most {_ranked(doc)}: {doc.text('best')}"
    if runs < 2:
        return [f"{lead}; one run says nothing of what is real, so give --replications"]
    others = [policy for policy in policies if policy.has("behind_best")]
    close = [policy.text("policy") for policy in others
             if not policy.at("behind_best").has("better")]
    if not close:
        return [f"{lead}, and more than any other: the differences are real"]
    return [f"{lead}; {runs} runs do not tell it from {', '.join(close)}"]


def _ranked(doc: Doc) -> str:
    """What ranks the policies, in words."""
    key = doc.text("ranked_by")
    return _RANKED.get(key, key)


def _figures(doc: Doc, policies: Sequence[Doc]) -> Table:
    limits = [("within limits/s", fixed("goodput", ".3g"))]
    return table_of(policies, [
        ("policy", word("policy")),
        *(limits if doc.text("ranked_by") == "goodput" else []),
        ("tok/s", fixed("output_tok_s", ".0f")),
        ("TTFT", time("ttft_s.mean")),
        ("TTFT p95", time("ttft_s.p95")),
        ("TPOT", time("tpot_s.mean")),
        ("drafts", fixed("drafting.drafts_mean", ".2f")),
        ("off", figure("drafting.off_share", percent)),
        ("wasted", figure("drafting.wasted_share", percent)),
        ("per token", fixed("drafting.wasted_per_token", ".2f")),
        ("switches", figure("drafting.switches")),
        ("KV", figure("kv_usage_mean", percent)),
        ("preempted", figure("preemptions")),
    ], remarks=[
        "drafts: verified per request and step; off: steps of requests without a draft; wasted: of "
        "the drafted tokens, and drafts lost per token of output",
    ])


def _differences(doc: Doc, policies: Sequence[Doc], runs: int) -> Table | None:
    """What each differs in from the first, seed by seed."""
    first, rows = doc.text("first"), []
    for policy in policies:
        for key, found in policy.members("against_first"):
            pair, share = found.pair("interval"), found.maybe("share")
            low_high = "-"
            base = policies[0].maybe(key)
            if pair is not None and base:
                low_high = f"{pair[0] / base:+.1%} to {pair[1] / base:+.1%}"
            verdict = "one run" if pair is None else "no difference shown"
            if found.has("better"):
                verdict = "better" if found.flag("better") else "worse"
            rows.append([
                policy.text("policy"), _JUDGED.get(key, key),
                "-" if share is None else f"{share:+.1%}", low_high, verdict,
            ])
    if not rows:
        return None
    remark = (
        f"differences from {first}, seed by seed; the intervals of a figure hold for all policies "
        "together with 95%"
    )
    return Table(["policy", "figure", f"from {first}", "interval", "real?"], rows, 2,
                 remarks=[remark] if runs > 1 else [])


def _charts(doc: Doc, policies: Sequence[Doc]) -> list[Bars]:
    names = [policy.text("policy") for policy in policies]
    ranked = [policy.maybe(doc.text("ranked_by")) for policy in policies]
    first = Bars("Which policy gives most", f"By policy: {_ranked(doc)}.", names, [("", ranked)],
                 _ranked(doc))
    drafts = [
        ("accepted", [_per_step(policy, accepted=True) for policy in policies]),
        ("wasted", [_per_step(policy, accepted=False) for policy in policies]),
    ]
    return [
        first,
        *(Bars(f"{label} by policy", words, names,
               [("", [policy.maybe(key) for policy in policies])],
               f"mean {label}, s")
          for label, key, words in (
              ("TTFT", "ttft_s.mean", "Mean time to first token, waiting included."),
              ("TPOT", "tpot_s.mean", "Mean time per output token after the first."))),
        Bars("Drafts by policy", "Verified per request and step, and what became of them.", names,
             drafts, "drafts per request and step", stacked=True),
    ]


def _per_step(policy: Doc, *, accepted: bool) -> float:
    drafts, wasted = policy.number("drafting.drafts_mean"), policy.number("drafting.wasted_share")
    return drafts * (1.0 - wasted if accepted else wasted)


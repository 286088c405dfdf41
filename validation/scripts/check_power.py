"""Judges the power model by everything public: kernels of the B200 left out by family, watts of the
H100 at a known pace, joules with and without speculation on the RTX 3090. Writes
`reports/power.md` and `reports/power.json`. A minute:

    python validation/scripts/check_power.py
"""

import math
from statistics import median

import numpy as np
from common import PUBLISHED_2, REPORTS, read_csv, write_json, write_text
from fit_power import Reading, errors, fit, readings
from power_elsewhere import ANSWER, ENERGY, PLAIN_J, Check, h100, power_of, rtx_3090, system

from specsim.hardware.store import load_profile
from specsim.latency.power import Z90


def kernels() -> list[dict[str, float | str]]:
    """By family, by a fit that had not seen it, then by one that had."""
    profile = load_profile("b200")
    every = readings(profile)
    spread = math.exp(Z90 * profile.kernel("power")["spread"])
    whole, rows = fit(every), []
    for family in dict.fromkeys(one.family for one in every):
        own = [one for one in every if one.family == family]
        unseen = fit([one for one in every if one.family != family])
        rows.append({
            "family": family, "n": len(own),
            **judged("unseen", errors(unseen, own), own, spread),
            **judged("seen", errors(whole, own), own, spread),
        })
    return rows


def judged(
    name: str, missed: np.ndarray, own: list[Reading], spread: float
) -> dict[str, float]:
    inside = np.abs(missed) <= math.log(spread)
    return {
        f"{name}_median": float(np.median(np.abs(missed))),
        f"{name}_bias": float(np.median(missed)),
        f"{name}_p90": float(np.quantile(np.abs(missed), 0.9)),
        f"{name}_coverage": float(np.mean(inside)),
    }


def table(rows: list[Check], unit: str) -> list[str]:
    lines = [f"| | predicted{unit} | measured{unit} | error | in the interval |",
             "|---|---|---|---|---|"]
    for one in rows:
        digits = ".0f" if unit else ".3f"
        lines.append(
            f"| {one.name} | {one.predicted:{digits}} | {one.measured:{digits}} | "
            f"{one.error:+.1%} | {'yes' if one.inside else 'no'} |"
        )
    return lines


def said(rows: list[Check]) -> str:
    worst = median(abs(one.error) for one in rows)
    return f"median error {worst:.1%}, {sum(one.inside for one in rows)} of {len(rows)} inside"


def main() -> None:
    by_family, at_h100, (ratio, whole) = kernels(), h100(), rtx_3090()
    power = power_of(system(model="llama-3.1-8b", gpu="b200", method="none"))
    other = power_of(system(model="llama-3.1-8b", gpu="h100-sxm", method="none"))
    unseen = median(float(row["unseen_median"]) for row in by_family)
    lines = [
        "# Power and energy beside what is public", "",
        "Written by `validation/scripts/check_power.py`; the shares are fitted by `fit_power.py`. "
        "Public figures of power are few: one table of kernels, one of regressions, one set of "
        "five pairs with and without speculation. No set of them is large enough for a headline "
        "over sources; each stands for itself.", "",
        "| share of the board's limit | B200, measured | all others, assumed |", "|---|---|---|",
        *(f"| {name} | {getattr(power, name):.3g} | {getattr(other, name):.3g} |" for name in
          ("idle", "busy", "stream", "multiply", "spread", "pair_spread")), "",
        "`spread` of the others is what the H100's watts below are off, the one source of another "
        "device: their interval is in-sample.", "",
        "## Kernels of the B200 (fitted on; families left out in turn)", "",
        f"|ln(predicted / measured)| of single readings, which scatter by 20% themselves "
        f"(`data/power/PROVENANCE.md`). Left out, the median of the families' medians is "
        f"{unseen:.0%}.", "",
        "| family | n | left out: median | bias | p90 | in the interval | in-sample: median | "
        "in the interval |", "|---|---|---|---|---|---|---|---|",
        *(f"| {row['family']} | {row['n']} | {row['unseen_median']:.0%} | "
          f"{row['unseen_bias']:+.0%} | {row['unseen_p90']:.0%} | {row['unseen_coverage']:.0%} | "
          f"{row['seen_median']:.0%} | {row['seen_coverage']:.0%} |" for row in by_family), "",
        "## Watts of the H100 at a known pace (shares not fitted on it)", "",
        "Two regressions on the ML.ENERGY leaderboard (EcoLogits 0.11.3) say joules and seconds "
        "per token at batch 64. Of that time the kernels run as predicted; the rest the GPU "
        f"waits. Idle power alone is predicted to be {other.idle_w:.0f} W, most of what the "
        "regressions say in all, which suggests that the H100 idles below the B200's share. "
        f"Watts per GPU: {said(at_h100)}.", "",
        *table(at_h100, " W"), "",
        "## The RTX 3090 with and without speculation (nothing fitted on it)", "",
        "Qwen3.8-27B in 4 bits, llama.cpp, one client (THC-019 to 023): joules of an answer of 400 "
        "tokens. Its board drew "
        f"{PLAIN_J / ANSWER * 41.55:.0f} W plain and up to "
        f"{max(ENERGY[i] / ANSWER * r for i, r in SPEEDS.items()):.0f} W, above the 350 W "
        "of the reference card, so that only ratios are judged; its own limit is not said.", "",
        "Watts with / without, both at the measured pace (r from the source's own cost model): "
        f"{said(ratio)}.", "", *table(ratio, ""), "",
        "Joules per token with / without, as `specsim predict` says them from the tokens per step "
        f"(vLLM's steps, as llama.cpp's are not modelled): {said(whole)}.", "",
        *table(whole, ""), "",
        "Of ln(predicted / measured), the watts' part at the measured pace, and the rest, which is "
        "the steps':", "", "| | all | watts | steps |", "|---|---|---|---|",
        *(f"| {one.name} | {one.log_error:+.2f} | {pace.log_error:+.2f} | "
          f"{one.log_error - pace.log_error:+.2f} |"
          for one, pace in zip(whole, ratio, strict=True)), "",
        "## What is not known", "",
        "- Dense matrix products: no public table has their power. The share of arithmetic rests "
        "on experts and attention, which keep more of a GPU busy per useful FLOP: a dense product "
        "is likely overstated until it reaches the limit.",
        "- Other devices: shares of the limit are the B200's. GDDR cards and AMD's may differ by "
        "more than the interval.",
        "- Idle power: 24% of the limit is the least that was read between loops of kernels; a "
        "GPU that serves nothing for long may lower its clocks and draw less.",
        "- Links, hosts: not in the boards' figures (`--host-w`).", "",
    ]
    write_text(REPORTS / "power.md", "\n".join(lines))
    write_json(REPORTS / "power.json", {
        "kernels": by_family,
        **{name: [{**vars(one), "error": one.error} for one in rows] for name, rows in (
            ("h100_watts", at_h100), ("rtx_3090_watts_ratio", ratio),
            ("rtx_3090_joules_ratio", whole))},
    })
    print("\n".join(lines))


SPEEDS = {
    row["id"]: float(row["spec_tok_s"]) for row in read_csv(PUBLISHED_2) if row["id"] in ENERGY
}


if __name__ == "__main__":
    main()

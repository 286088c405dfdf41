"""How few runs settle the choice of method and draft length? Plans replayed on public sweeps.

    python validation/scripts/plan_runs.py           # replays all sweeps; writes plan_runs.*
    python validation/scripts/plan_runs.py --text    # plan_runs.md again, from plan_runs.json
    python validation/scripts/plan_runs.py --fit     # fits the scatter first (`plan_scatter`)

Each sweep of `plan_sweeps`: beliefs before any run, then the run worth most takes the published
value of its row (speed, and the acceptance length where the row states one), beliefs are updated,
until the expected regret is below 1% or five runs are made. Regret is against the best row of the
sweep. Beside it, with as many runs: the settings predicted best one after the other without
updating (`predicted`), and settings at random (`random`, exact mean over all subsets); both then
keep the best that they measured.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from multiprocessing import Pool
from textwrap import fill

from common import CATALOG, REPORTS, read_json, table, write_json, write_text
from plan_scatter import by_source
from plan_sweeps import PlanSweep, all_sweeps, forgotten, seen_of, settings_of

from specsim.calibrate.beliefs import Beliefs, SeenRun
from specsim.calibrate.fewshot_priors import PRIORS
from specsim.calibrate.next_runs import MOST_RUNS, SETTLED, Outlook

OUT = REPORTS / "plan_runs"
CLOSE = 0.03  # the aim: within this share of the best measured speed
BAR = 0.9  # share of sweeps
WIDTH = 100
LEAST = 3  # choices of a sweep
LARGE = 6  # choices from which on five runs are not the whole sweep


@dataclass
class Replay:
    """One sweep. By number of runs 0, 1, ...: regret (measured) and expected regret of the choice
    then, and regret of the two other rules. runs: after how many the choice was settled."""

    set_id: str
    source: str
    name: str
    arms: int
    runs: int
    settled: bool
    order: list[str]
    regret: list[float]
    expected: list[float]
    probability: list[float]
    predicted: list[float]
    random: list[float]

    @property
    def final(self) -> float:
        """Regret of the choice that was settled on."""
        return self.regret[self.runs]


def replay(sweep: PlanSweep, scatter: Mapping[str, float]) -> Replay:
    """All of a sweep's steps, up to MOST_RUNS also where the choice was settled before."""
    with forgotten(sweep.source):
        settings = settings_of(sweep)
    beliefs = Beliefs(settings, replace(PRIORS, settings=scatter))
    best, good = max(sweep.good), sweep.good
    loss = [1 - value / best for value in good]
    seen: list[SeenRun] = []
    out = Replay(sweep.set_id, sweep.source, sweep.name, len(settings), -1, False,
                 [], [], [], [], [], [])
    places = [(i,) for i in range(len(settings))]
    stated = [i for i, s in enumerate(settings) if s.metric == "speedup" and not s.k]
    while True:
        joint = beliefs.joint(seen)
        outlook = Outlook(joint, places)
        (found,) = outlook.verdicts()
        if not seen:
            ranked = sorted((i for i in range(len(settings)) if i not in stated),
                            key=lambda i: -joint.mean[i])
        out.regret.append(loss[found.setting])
        out.expected.append(found.regret)
        out.probability.append(found.probability)
        out.predicted.append(
            min(loss[i] for i in [*ranked[: len(seen)], *stated]) if seen else loss[ranked[0]])
        out.random.append(_random(loss, stated, len(seen)))
        able = [i for i in range(len(settings))
                if i not in stated and i not in [r.setting for r in seen]]
        if out.runs < 0 and (found.regret <= SETTLED or not able or len(seen) == MOST_RUNS):
            out.runs, out.settled = len(seen), found.regret <= SETTLED
        if not able or len(seen) == MOST_RUNS:
            return out
        run, _ = outlook.next(able)
        seen.append(seen_of(sweep, settings, run))
        out.order.append(sweep.arms[run].name)


def _random(loss: Sequence[float], stated: Sequence[int], count: int) -> float:
    """Mean regret of the best of `count` settings drawn at random, and those known anyway."""
    free = sorted(loss[i] for i in range(len(loss)) if i not in stated)
    known = min((loss[i] for i in stated), default=math.inf)
    if not count:
        return sum(loss) / len(loss)
    total = math.comb(len(free), count)
    chance = [math.comb(len(free) - 1 - i, count - 1) / total for i in range(len(free))]
    return sum(p * min(known, value) for p, value in zip(chance, free, strict=True))


def _replay(pair: tuple[PlanSweep, Mapping[str, float]]) -> Replay:
    return replay(*pair)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--text", action="store_true", help="only plan_runs.md, from the JSON")
    parser.add_argument("--fit", action="store_true", help="fit the scatter and put it into the "
                        "catalogue; else the fits in plan_runs.json are used")
    parser.add_argument("--sets", default="", help="only these sets; prints, writes nothing")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    kept = read_json(OUT.with_suffix(".json")) if OUT.with_suffix(".json").is_file() else {}
    if options.text:
        replays, scatter = [Replay(**item) for item in kept["sweeps"]], kept["scatter"]
    else:
        sweeps = [s for s in all_sweeps() if len(s.arms) >= LEAST]
        scatter = by_source(sweeps, options.jobs, progress) if options.fit else kept["scatter"]
        if options.fit:
            write_json(OUT.with_suffix(".json"), {**kept, "scatter": scatter})
            path = CATALOG / "fewshot_priors.json"
            write_json(path, {**read_json(path), "settings": {
                name: round(value, 3) for name, value in scatter[""].items()}})
        if options.sets:
            sweeps = [s for s in sweeps if s.set_id in options.sets.split(",")]
        replays = []
        with Pool(options.jobs) as pool:
            for found in pool.imap(_replay, [(s, scatter[s.source]) for s in sweeps]):
                replays.append(found)
                progress(f"{len(replays)} of {len(sweeps)} sweeps replayed")
    text = document(replays, scatter)
    sys.stdout.write(text)
    if not options.sets:
        write_text(OUT.with_suffix(".md"), text)
        if not options.text:
            write_json(OUT.with_suffix(".json"), {
                "scatter": scatter, "sweeps": [asdict(r) for r in replays]})


def document(replays: Sequence[Replay], scatter: Mapping[str, Mapping[str, float]]) -> str:
    good = [r for r in replays if r.final <= CLOSE]
    large = [r for r in replays if r.arms >= LARGE]
    sources = sorted({r.source for r in replays})
    of_source = [[r for r in replays if r.source == name] for name in sources]
    share = len(good) / len(replays)
    middle = statistics.median(
        sum(r.final <= CLOSE for r in some) / len(some) for some in of_source)
    ends = [r.final <= CLOSE for r in large]
    lines = [
        "# Runs that settle the choice of method and draft length",
        "",
        fill(
            "Written by `python validation/scripts/plan_runs.py` (every sweep: `plan_runs.json`). "
            "Each public sweep is replayed as `specsim tune --plan` and `--from` go: beliefs, the "
            "run worth most, its published speed and acceptance length, new beliefs, until less "
            f"than {SETTLED:.0%} of the best speed is expected to be lost or {MOST_RUNS} runs are "
            "made. Regret is against the best row of the sweep.", WIDTH),
        "",
        fill(
            f"Within {CLOSE:.0%} of the best with {MOST_RUNS} runs or fewer: {len(good)} of "
            f"{len(replays)} sweeps ({share:.0%}; bar {BAR:.0%}, "
            f"{'met' if share >= BAR else '**missed**'}), by source {middle:.0%} in the median of "
            f"{len(sources)}, after {statistics.mean(r.runs for r in replays):.1f} runs of "
            f"{statistics.mean(r.arms for r in replays):.1f} choices on average. A sweep of five "
            "choices or fewer is known whole after five runs, so that the bar alone says little of "
            f"it; of the {len(large)} sweeps with at least {LARGE} choices {sum(ends)} "
            f"({sum(ends) / len(ends):.0%}) end within {CLOSE:.0%}, after "
            f"{statistics.mean(r.runs for r in large):.1f} runs of "
            f"{statistics.mean(r.arms for r in large):.1f} choices.", WIDTH),
        "",
        fill(
            "What a replay knows of a source before its first run: nothing of its speeds (engine "
            "profiles as fitted without it, scatter fitted without it) and nothing of its "
            "acceptance (its rows are left out of the catalogue). In sample are the efficiencies "
            "of kernels, the widths of the few-shot priors, and the means over all drafters of the "
            "acceptance model. A first replay ended with 130 of 136 sweeps: five of its six misses "
            "were n-gram lookups that were never run, being held for surely slow; their spread has "
            "since counted in that how often they find a draft is not known either.", WIDTH),
        "",
        "## By source",
        "",
        *by_source_table(replays, sources),
        "",
        "## Regret by number of runs",
        "",
        fill(
            "Means over sweeps, then the median of sources; all sweeps, and those with at least "
            f"{LARGE} choices. `plan`: as above, on to {MOST_RUNS} runs. `predicted`: the settings "
            "predicted best, one after the other, nothing learnt. `random`: settings at random. "
            "Both choose the best that they ran; `plan` may choose what it did not run.", WIDTH),
        "",
        *by_runs(replays, sources),
        "",
        "## Are expected regrets right?",
        "",
        "Of all states before and between runs, by the expected regret at that time: measured",
        "regret, and how often the choice was the best, against the probability that was given.",
        "",
        *calibration(replays),
        "",
        "## Sweeps that end further off",
        "",
        *missed(replays),
        "",
        "## Scatter between settings of a server",
        "",
        "Standard deviations of ln speed that `plan_scatter` fits: of a setting alone, of draft",
        "lengths alike, of a drafter; from all sources, and without each.",
        "",
        *table(("without", "own", "length", "drafter"), [
            [name or "none", *(f"{values[part]:.1%}" for part in ("own", "length", "drafter"))]
            for name, values in scatter.items()], left=True),
        "",
    ]
    return "\n".join(lines)


def by_source_table(replays: Sequence[Replay], sources: Sequence[str]) -> list[str]:
    rows = []
    for name in (*sources, "all"):
        some = [r for r in replays if name in (r.source, "all")]
        rows.append([
            name, str(len(some)), f"{statistics.mean(r.arms for r in some):.1f}",
            f"{statistics.mean(r.runs for r in some):.1f}",
            f"{sum(r.settled for r in some)}", f"{sum(r.final <= CLOSE for r in some)}",
            f"{statistics.mean(r.regret[0] for r in some):.1%}",
            f"{statistics.mean(r.final for r in some):.1%}",
            f"{max(r.final for r in some):.1%}",
        ])
    return table(("source", "sweeps", "choices", "runs", "settled", f"within {CLOSE:.0%}",
                  "regret unmeasured", "regret at the end", "worst"), rows, left=True)


def by_runs(replays: Sequence[Replay], sources: Sequence[str]) -> list[str]:
    rows = []
    for what, least in (("all", 0), ("large", LARGE)):
        for rule in ("plan", "predicted", "random"):
            cells = []
            for count in range(MOST_RUNS + 1):
                means = [
                    statistics.mean(at(getattr(r, "regret" if rule == "plan" else rule), count)
                                    for r in some)
                    for name in sources
                    if (some := [r for r in replays if r.source == name and r.arms >= least])
                ]
                cells.append(f"{statistics.median(means):.1%}")
            rows.append([f"{what}, {rule}", *cells])
    return table(("runs", *map(str, range(MOST_RUNS + 1))), rows, left=True)


def calibration(replays: Sequence[Replay]) -> list[str]:
    states = [(r.expected[i], r.regret[i], r.probability[i])
              for r in replays for i in range(len(r.regret))]
    edges, rows = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0), []
    for low, high in pairwise(edges):
        some = [state for state in states if low <= state[0] < high]
        if some:
            expected, regret, chance = map(statistics.mean, zip(*some, strict=True))
            best = statistics.mean(float(state[1] <= 0) for state in some)
            rows.append([f"{low:.1%} to {high:.1%}", str(len(some)), f"{expected:.2%}",
                         f"{regret:.2%}", f"{chance:.0%}", f"{best:.0%}"])
    return table(("expected regret", "states", "mean expected", "mean measured",
                  "probability given", "was the best"), rows, left=True)


def missed(replays: Sequence[Replay]) -> list[str]:
    some = sorted((r for r in replays if r.final > CLOSE), key=lambda r: -r.final)
    if not some:
        return ["None."]
    return table(("sweep", "choices", "runs", "regret", "expected", "probability"), [
        [f"{r.set_id} {r.name}", str(r.arms), str(r.runs), f"{r.final:.1%}",
         f"{r.expected[r.runs]:.1%}", f"{r.probability[r.runs]:.0%}"] for r in some
    ], left=True)


def at(values: Sequence[float], count: int) -> float:
    """After so many runs; a sweep that has no more keeps its last."""
    return values[min(count, len(values) - 1)]


if __name__ == "__main__":
    main()

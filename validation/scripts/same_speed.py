"""Tokens per GPU at the same speed for the user: predicted against public purchase pages.

    python validation/scripts/same_speed.py [--write]

INFXEQ (InferenceX, compare-spec-decode): throughput per GPU with and without speculation at equal
interactivity, read off the frontier of each side over settings that the pages do not name: engine,
GPUs per replica, draft length, batch. What stands in, chosen before any result was seen: vLLM and
SGLang, tp 1 to 8 (16 where eight GPUs do not hold the weights) without data or expert parallelism,
the caches that the product tries, k up to 3, and the acceptance that the product finds by itself. A
checkpoint with MXFP4 experts is its own where a page names its other layers (fp8). Lengths are
InferenceX's, 0.9 of the nominal ones on average; rows that name none are taken as 1024 + 1024. A
page's throughput counts prompts, too, so the levels (not the ratio) are compared after scaling by
the share of the outputs.

Why a ratio misses is told by its two levels: the logarithm of its error is the one of the
speculative level less the one of the plain level; and by what the pages do not name: the same with
one engine alone, and with all of a node's GPUs in each replica. Where no setting gets a side to the
page's speed there is no ratio, and the fastest that the side reaches is reported.

A ratio at equal speed magnifies errors of time: a side whose tokens take f times as long has its
frontier at 1 / f of speed and throughput, and falls along it besides. So each side's miss is also
told as the f that would give the page's level, which no acceptance of the page is needed for, and
how much of the aim is left for times.

--write puts the figures into validation/reports/same_speed.md.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common import PUBLISHED_2, REPORTS, read_csv, table, write_text

import specsim
from specsim.accuracy.lookups import model_of, profile_of
from specsim.accuracy.row_load import inferencex_workload
from specsim.errors import SpecSimError
from specsim.planning.pareto import ParetoPoint, frontier
from specsim.planning.pareto_at import best_at, followed
from specsim.search import first_between

OUT = REPORTS / "same_speed.md"
AIM = 0.15
TIMES = (50, 20_000)  # thousandths between which factors of times are sought
ENGINES = ("sglang", "vllm")
WEIGHTS = {"fp8": "fp8", "fp4": "nvfp4", "bf16": "bf16"}
Row = Mapping[str, str]


@dataclass
class Answer:
    """One page's speed. levels: output tokens per second and GPU, 0 where no setting gets there;
    fastest: the most that one stream reaches."""

    row: Row
    speed: float
    levels: dict[str, float] = field(default_factory=lambda: {"speculative": 0.0, "plain": 0.0})
    fastest: dict[str, float] = field(default_factory=lambda: {"speculative": 0.0, "plain": 0.0})
    settings: dict[str, str] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    tokens: float | None = None
    refused: str = ""
    alone: dict[str, float] = field(default_factory=dict)  # ratio with fewer settings, by which
    # By which settings: times per token, measured / predicted, with speculation and without.
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Per cent by which the level falls for one per cent more time, on either side.
    slopes: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.levels["speculative"] / self.levels["plain"] if all(
            self.levels.values()) else None

    @property
    def measured(self) -> float:
        return float(self.row["speedup"])

    def misses(self) -> dict[str, float]:
        """ln(predicted / measured) of the ratio and of both levels."""
        found = {"ratio": math.log((self.ratio or 0.0) / self.measured)}
        for side in ("speculative", "plain"):
            found[side] = math.log(self.levels[side] / self.output_tok_s(side))
        return found

    def output_tok_s(self, side: str) -> float:
        """The page's output tokens per second and GPU."""
        isl, osl = (int(self.row[name] or 1024) for name in ("isl", "osl"))
        column = "spec_tok_s" if side == "speculative" else "baseline_tok_s"
        return float(self.row[column]) * osl / (isl + osl)


def answers(rows: Sequence[Row]) -> list[Answer]:
    """All rows, those of one model, device and format from one study."""
    found = [Answer(row, 1e3 / float(row["baseline_tpot_ms"])) for row in rows]
    groups: dict[tuple[str, ...], list[Answer]] = {}
    for answer in found:
        row = answer.row
        key = tuple(row[n] for n in ("target_model", "gpu", "weight_dtype", "method", "isl", "osl"))
        groups.setdefault(key, []).append(answer)
    for key, own in groups.items():
        model, gpu, weights, method, isl, osl = key
        load = inferencex_workload(int(isl or 1024), int(osl or 1024))
        profile = profile_of(gpu)
        spec = model_of(model, "")
        native = spec is not None and spec.weights == "mxfp4" and weights == "fp8"
        for engine in ENGINES:
            for tps in ("1,2,4,8", "16"):
                try:
                    study = specsim.pareto(
                        model, gpu=profile.name if profile else gpu, engine=engine, method=method,
                        weights=None if native else WEIGHTS[weights], ks="0,1,2,3", tps=tps,
                        max_num_batched_tokens=8192,
                        input_len=load.input_len, output_len=load.output_len,
                        at=sorted({answer.speed for answer in own}),
                    )
                except SpecSimError as error:
                    refusal = f"{engine}: {str(error)[:110]}; "
                else:
                    break
            else:
                for answer in own:
                    answer.refused += refusal
                continue
            print(model, gpu, weights, engine, flush=True)
            for answer in own:
                take(answer, study, engine)
                narrow(answer, study, engine)
    return found


def take(answer: Answer, study: specsim.Pareto, engine: str) -> None:
    """The better of the engines on each side."""
    at = next(item for item in study.at if math.isclose(item.stream_tok_s, answer.speed))
    for name, front in (("speculative", study.speculative), ("plain", study.plain)):
        if front:
            answer.fastest[name] = max(answer.fastest[name], front[0].stream_tok_s)
        side = getattr(at, name)
        if side is None or side.point.gpu_tok_s <= answer.levels[name]:
            continue
        point = side.point
        answer.levels[name] = point.gpu_tok_s
        k = f" k {point.k}" if point.k else ""
        answer.settings[name] = f"{engine} tp {point.tp}{k} batch {point.max_num_seqs}"
        if point.k:
            answer.tokens = point.system.tokens_per_step
            answer.interval = at.ratio_90


def narrow(answer: Answer, study: specsim.Pareto, engine: str) -> None:
    """The ratio of one engine alone, with all replicas and with those of eight GPUs; what times
    would give the page's levels."""
    for name, widths in ((engine, study.axes.tp), (f"{engine}, tp 8", (8,))):
        points = [[p for p in study.points if bool(p.k) is drafts and p.tp in widths]
                  for drafts in (True, False)]
        sides = [best_at(some, study.workload, answer.speed, study.axes.max_num_seqs)
                 for some in points]
        if sides[0] is None or sides[1] is None:
            continue
        answer.alone[name] = sides[0].gpu_tok_s / sides[1].gpu_tok_s
        fronts = [frontier(some) for some in points]
        ours, plain = fronts
        answer.times[name] = (
            time_factor(ours, answer.speed, answer.output_tok_s("speculative")),
            time_factor(plain, answer.speed, answer.output_tok_s("plain")),
        )
        found = [slope(front, answer.speed) for front in fronts]
        if all(found):
            answer.slopes[name] = found[0], found[1]


def level_at(front: Sequence[ParetoPoint], speed: float, factor: float) -> float:
    """Tokens per second and GPU of a frontier whose tokens take `factor` times as long."""
    return followed(front, speed * factor) / factor


def time_factor(front: Sequence[ParetoPoint], speed: float, level: float) -> float:
    """How many times as long tokens would have to take for the frontier to pass through here; to
    a thousandth."""
    found = first_between(
        lambda n: level_at(front, speed, n / 1000) < level, *TIMES
    )
    return found / 1000


def slope(front: Sequence[ParetoPoint], speed: float) -> float:
    """Per cent of level for one per cent of time; 0 where 5% more time end the frontier."""
    fast, slow = (level_at(front, speed, factor) for factor in (1 / 1.05, 1.05))
    return math.log(fast / slow) / (2 * math.log(1.05)) if slow else 0.0


def narrowed(found: list[Answer]) -> list[str]:
    """Errors with fewer settings, and in times."""
    lines = []
    for name in (f"{engine}{tail}" for engine in ENGINES for tail in ("", ", tp 8")):
        logs = [math.log(a.alone[name] / a.measured) for a in found if name in a.alone]
        times = [a.times[name] for a in found if name in a.times]
        lines.append([name, str(len(logs)),
                      f"{statistics.median(abs(math.exp(x) - 1) for x in logs):.1%}",
                      f"{math.exp(statistics.median(logs)):.2f}",
                      *(f"{statistics.median(pair[i] for pair in times):.2f}" for i in (0, 1)),
                      f"{statistics.median(abs(ours / plain - 1) for ours, plain in times):.0%}"])
    slopes = [pair for a in found for name, pair in a.slopes.items() if name in ENGINES]
    ours, plain = (statistics.median(pair[i] for pair in slopes) for i in (0, 1))
    return [
        *table(["settings", "pages", "median error", "predicted / measured",
                "time with, measured / predicted", "time without",
                "time with / without: median miss"], lines), "",
        f"One per cent of time moves a level by {ours:.1f}% with speculation and by {plain:.1f}% "
        f"without (medians of one engine's frontier): the aim of {AIM:.0%} leaves "
        f"{AIM / ours:.0%} for the time of a step with drafts and for its tokens together, or "
        f"{AIM / math.hypot(ours, plain):.0%} where the plain step errs as much.", "",
        "Time with / without, measured / predicted, by device: " + "; ".join(
            f"{engine} " + ", ".join(by_device(found, engine)) for engine in ENGINES) + ".",
    ]


def by_device(found: list[Answer], engine: str) -> list[str]:
    """Medians of one engine's relative times, with their number of pages."""
    ratios: dict[str, list[float]] = {}
    for answer in found:
        if engine in answer.times:
            ours, plain = answer.times[engine]
            ratios.setdefault(answer.row["gpu"], []).append(ours / plain)
    return [f"{gpu} {statistics.median(some):.2f} of {len(some)}" for gpu, some in ratios.items()]


def report(found: list[Answer]) -> list[str]:
    judged = [a for a in found if a.ratio is not None]
    misses = [a.misses() for a in judged]
    errors = [abs(math.exp(m["ratio"]) - 1) for m in misses]
    held = [a for a in judged if a.interval is not None]
    inside = sum(a.interval[0] <= a.measured <= (a.interval[1] or math.inf)
                 for a in held if a.interval is not None)
    by_model: dict[str, list[float]] = {}
    for a, error in zip(judged, errors, strict=True):
        by_model.setdefault(a.row["target_model"], []).append(error)
    models = ", ".join(
        f"{name} {statistics.median(v):.0%} of {len(v)}" for name, v in by_model.items())
    larger = sum(abs(m["plain"]) > abs(m["speculative"]) for m in misses)
    lines = [
        "# Tokens per GPU at the same speed for the user", "",
        "From `python validation/scripts/same_speed.py --write`; what stands in for what pages do "
        "not name is said in that script. One source (InferenceX); its pages served no fit.", "",
        "Ratio with / without at equal interactivity: median error "
        f"{statistics.median(errors):.1%} over {len(judged)} of {len(found)} pages (aim {AIM:.0%}; "
        f"by model {models}), in logarithms "
        f"{statistics.median(abs(m['ratio']) for m in misses):.2f}. The 90% interval holds "
        f"{inside} of {len(held)}.", "",
        "Levels, output tokens per second and GPU, predicted / measured in the median: "
        f"{math.exp(statistics.median(m['speculative'] for m in misses)):.2f} with speculation, "
        f"{math.exp(statistics.median(m['plain'] for m in misses)):.2f} without; of the ratio's "
        f"errors the plain level's is the larger part in {larger} of {len(misses)}.", "",
    ]
    lines += [*narrowed(found), ""]
    rows = []
    for a in found:
        row = a.row
        cells = [f"{row['target_model']} {row['weight_dtype']} {row['gpu']}",
                 f"{row['isl'] or '-'}/{row['osl'] or '-'}", f"{a.speed:.0f}", f"{a.measured:.2f}"]
        if a.ratio is not None:
            m = a.misses()
            low, high = a.interval or (math.nan, math.nan)
            top = f"{high:.2f}" if high else "any"
            alone = " ".join(f"{ratio:.2f}" for ratio in a.alone.values())
            times = " ".join(f"{a.times[name][0]:.2f}/{a.times[name][1]:.2f}"
                             for name in ENGINES if name in a.times)
            cells += [f"{a.ratio:.2f}", alone, times, f"{low:.2f} to {top}",
                      f"{math.exp(m['speculative']):.2f}", f"{math.exp(m['plain']):.2f}",
                      f"{a.tokens:.2f}", a.settings["speculative"], a.settings["plain"]]
        else:
            why = a.refused or "fastest stream: " + ", ".join(
                f"{speed:.0f} {name}" for name, speed in a.fastest.items())
            cells += ["-"] * 7 + [why, ""]
        rows.append(cells)
    lines += table(
        ["page", "lengths", "tok/s/user", "ratio", "predicted", "alone (in the order above)",
         "time with/without, measured / predicted (sglang, vllm)", "90%",
         "level with", "level without", "tokens per step", "setting with",
         "setting without"], rows, left=True)
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = answers([row for row in read_csv(PUBLISHED_2) if row["set_id"] == "INFXEQ"])
    lines = report(found)
    if given.write:
        write_text(OUT, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

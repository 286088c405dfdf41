"""Up to which load speculation pays: predicted against public sweeps over load.

    python validation/scripts/crossover_loads.py [--write]

Sweeps: rows of one source alike in all but the load (clients, or requests per second), three loads
or more, with the speed of both sides at each. The measured crossing is the first at which the
speedup falls through 1, along straight lines in logarithms between two loads; a sweep that ends
within 2% of 1 crosses at its end. Predicted: the same quantity, throughput of a closed loop or
end-to-end latency of an open one, on a grid up to four times the largest load.

Acceptance is the sweep's own where a row of it, or of a sweep of the same source, target, drafter
and k, states one (the median of them); else what its least load needs to be met exactly (by
bisection; all or none accepted where that does not do), and that load then judges nothing. Of a
lookup what is solved for is the share of steps that carry a draft, each as long as the catalogue
has it for other targets at that work: steps without one cost a plain step. Engines are those fitted
without the sweep's source, and as shipped. Where loads are clients, crossings are compared in the
requests per second that the model serves with as many, and in clients.

--write puts the figures into validation/reports/crossover_loads.md.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from common import PUBLISHED, PUBLISHED_2, REPORTS, read_csv, table, write_text
from fewshot_priors import placed, without

from specsim.accuracy.lookups import SkipRow, measurement, source_of
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.open import open_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.acceptance import fitted_to
from specsim.errors import SpecSimError
from specsim.latency.engine import list_engines
from specsim.methods.resolve import named_drafter, resolve_setup
from specsim.planning.rates import crossover_rates
from specsim.search import rising_root
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.resolve import AcceptanceQuery, resolve

OUT = REPORTS / "crossover_loads.md"
CLOSE = 1.5  # the bar, a factor
LOOKUP_US = (20, 10, 5, 2, 0)
EVEN = 0.02  # a speedup within this of 1 has no side
LEAST_LOADS = 3
MOST = 0.999  # share of steps with a draft
BEYOND, GRID = 4.0, 1.15
ELSEWHERE = "Qwen3-8B"  # of its own lookups the catalogue has none
WORK = {"GSM8K": "math", "CNN/DailyMail": "summarization", "ShareGPT": "chat",
        "InstructCoder": "code"}
# A drafter that the catalogue lacks: Qwen2-0.5B with Llama's vocabulary.
QWAMA, QWAMA_SHAPE, FITS = "turboderp/Qwama-0.5B", "qwen2.5-0.5b", "llama-3.2-1b"
# What a sweep that misses the bar is put down to, the first that applies.
MECHANISMS: tuple[tuple[str, Callable[["Judged"], bool]], ...] = (
    ("vLLM 0.6, whose V0 engine expanded a batch by its drafts and proposed on the host, is priced "
     "by the profile of a later one: its loss with load is not there", lambda j: j.sweep.rated),
    ("lookups: in how many steps a draft is found, which the source does not state",
     lambda j: j.sweep.case.system.setup.drafting.lookup),
    ("the side of 1 is missed at the least load, so no crossing can be right: acceptance and the "
     "price of a step, not the load", lambda j: not j.sides()[0]),
    ("the loss with load is predicted too small or too large", lambda j: True),
)
Row = Mapping[str, str]


@dataclass
class Sweep:
    """One deployment at growing loads. given: where its acceptance is from."""

    rows: list[Row]
    case: PublishedCase
    rated: bool
    measured: dict[float, float]  # load -> speedup
    given: str = ""

    @property
    def name(self) -> str:
        row = self.rows[0]
        k = f"k {row['k']}" + (f" {row['tree_topk']}" if "tree" in row["tree_topk"] else "")
        return " ".join(filter(None, (
            row["set_id"], row["target_model"], row["method"], k, row["dataset"][:24],
            f"{row['isl']}/{row['osl']}" if row["isl"] else "")))

    @property
    def source(self) -> str:
        return source_of(self.rows[0]["set_id"])


def number(text: str) -> float | None:
    return measurement(text.strip("~<>x ")) if text else None


def speedup_of(row: Row) -> float | None:
    """Throughput with / without; of an open loop what the row states."""
    fast, slow = number(row["spec_tok_s"]), number(row["baseline_tok_s"])
    return fast / slow if fast and slow else number(row["speedup"])


def key_of(row: Row) -> tuple[str, ...]:
    alike = (
        "set_id", "source", "gpu", "n_gpus", "tp", "engine", "target_model", "weight_dtype",
        "kv_dtype", "method", "draft_model", "k", "tree_topk", "dataset", "isl", "osl",
    )
    load = "rate" if row["request_rate"] else "clients"
    return (*(row[name] for name in alike), load, row.get("arrival", ""))


def sweeps(rows: Sequence[Row]) -> list[Sweep]:
    """Every sweep that can be predicted."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["grade"] != "C" and speedup_of(row):
            groups[key_of(row)].append(row)
    found = []
    for key, own in groups.items():
        rated = key[-2] == "rate"
        measured: dict[float, float] = {}
        for row in own:
            load = number(row["request_rate"] if rated else row["batch_or_concurrency"])
            if load:
                measured[load] = speedup_of(row) or 1.0
        if len(measured) < LEAST_LOADS or key[-1]:
            continue
        try:
            draft = own[0]["draft_model"]
            case = published_case({**own[0], "batch_or_concurrency": "1",
                                   "draft_model": FITS if draft == QWAMA else draft})
            if draft == QWAMA:
                case = replace(case, system=with_qwama(case.system))
        except (SkipRow, SpecSimError):
            continue
        if case.system.speculative:
            found.append(Sweep(own, case, rated, dict(sorted(measured.items()))))
    return found


def with_qwama(system: System) -> System:
    shape = named_drafter(QWAMA_SHAPE)
    drafter = replace(shape, vocab=system.spec.vocab, draft_vocab=system.spec.vocab)
    return system.with_(setup=resolve_setup(
        system.spec, system.engine, system.setup.method, system.setup.k, draft=drafter))


def stated(sweep: Sweep, every: Sequence[Row]) -> float | None:
    """Acceptance length that its rows, or the source's others of the same drafting, state."""
    row = sweep.rows[0]
    same = [r for r in every if all(
        r[name] == row[name] for name in ("set_id", "target_model", "method", "draft_model", "k",
                                          "tree_topk", "dataset"))]
    for some in (sweep.rows, same):
        lengths = [length for r in some if (length := _length(r))]
        if lengths:
            return statistics.median(lengths)
    return None


def _length(row: Row) -> float | None:
    try:
        return published_case({**row, "batch_or_concurrency": "1"}).acceptance_length
    except (SkipRow, SpecSimError):
        return None


def predicted(sweep: Sweep, system: System) -> Callable[[float], float]:
    """Speedup at a load as the sweep measured it."""
    load: Workload = replace(sweep.case.workload, requests_per_client=0)
    system = system.with_(max_num_seqs=0)
    plain = system.plain()

    def of_rate(rate: float) -> float:
        times = []
        for side in (plain, system):
            state = open_loop(side, load, rate)
            times.append(state.ttft_s + state.tpot_s * (load.output_len - 1))
        return times[0] / times[1] if math.isfinite(times[0]) else (
            1.0 if math.isinf(times[1]) else math.inf)

    def of_clients(clients: float) -> float:
        count = max(1, round(clients))
        rates = [closed_loop(side.with_(max_num_seqs=count), load, count).output_tok_s
                 for side in (system, plain)]
        return rates[0] / rates[1]

    return of_rate if sweep.rated else of_clients


def with_acceptance(sweep: Sweep, system: System, every: Sequence[Row]) -> System:
    """The system with the sweep's own acceptance, or one that meets its least load."""
    k = system.setup.k
    length = stated(sweep, every)
    if length is not None:
        sweep.given = "stated"
        return system.with_(acceptance=Acceptance.from_mean_length(length, k))
    sweep.given = "least load"
    least, gain = next(iter(sweep.measured.items()))
    if system.setup.drafting.lookup:
        drafted = resolve(AcceptanceQuery(ELSEWHERE, system.setup.method,
                                          work=WORK.get(sweep.rows[0]["dataset"])), k).acceptance

        def shared(share: float) -> System:
            setup = replace(system.setup, draft_share=share)
            return system.with_(setup=setup, acceptance=fitted_to(setup, drafted))

        share = rising_root(lambda x: predicted(sweep, shared(x))(least), gain, MOST, low=0.01,
                            resolution=0.005)
        return shared(min(share, MOST))

    def speedup(length: float) -> float:
        accepted = Acceptance.from_mean_length(length, k)
        return predicted(sweep, system.with_(acceptance=accepted))(least)

    length = rising_root(speedup, gain, k + 1.0, low=1.0, resolution=0.005)
    return system.with_(acceptance=Acceptance.from_mean_length(min(length, k + 1.0), k))


def crossing(loads: Sequence[float], gains: Sequence[float]) -> float | None:
    """First load at which the gain falls through 1, straight in logarithms; None: at none."""
    before: tuple[float, float] | None = None
    for load, gain in zip(loads, gains, strict=True):
        if gain < 1:
            if before is None:
                return load
            if before[1] > 1 and math.isfinite(before[1]):
                share = math.log(before[1]) / math.log(before[1] / gain)
                return math.exp(math.log(before[0]) + share * math.log(load / before[0]))
            return before[0]
        before = load, gain
    return None


@dataclass
class Judged:
    """A sweep with predictions. Crossings in loads; None: not reached. factor: of the rates at both
    crossings; loads: of the loads themselves."""

    sweep: Sweep
    gains: dict[float, float]
    measured: float | None
    predicted: float | None
    factor: float | None
    loads: float | None
    because: str

    def sides(self) -> list[bool]:
        """By load: whether predicted and measured speedup lie on the same side of 1."""
        return [(gain > 1) == (self.sweep.measured[x] > 1) for x, gain in self.gains.items()]

    def signs(self) -> tuple[int, int]:
        """(right, judged) loads by the side of 1, without those within 2% of it."""
        loads = list(self.gains)[1 if self.sweep.given == "least load" else 0:]
        told = [load for load in loads if abs(self.sweep.measured[load] - 1) > EVEN]
        right = [(self.gains[x] > 1) == (self.sweep.measured[x] > 1) for x in told]
        return sum(right), len(told)


def judge(sweep: Sweep, system: System, every: Sequence[Row], why: bool) -> Judged:
    system = with_acceptance(sweep, system, every)
    gain = predicted(sweep, system)
    loads = list(sweep.measured)
    real = crossing(loads, list(sweep.measured.values()))
    if real is None and sweep.measured[loads[-1]] <= 1 + EVEN:
        real = loads[-1]
    grid = [loads[0]]
    while grid[-1] < loads[-1] * BEYOND:
        grid.append(grid[-1] * GRID if sweep.rated else max(grid[-1] + 1, grid[-1] * GRID))
    found = crossing(grid, [gain(load) for load in grid])
    factor = ratio = None
    if real is not None:
        ratio = (found or grid[-1]) / real
        factor = rate_at(sweep, system, found or grid[-1]) / rate_at(sweep, system, real)
    return Judged(sweep, {load: gain(load) for load in loads}, real, found, factor, ratio,
                  reason(sweep, system) if why and real is not None else "")


def rate_at(sweep: Sweep, system: System, load: float) -> float:
    """Requests per second of a load, speculating."""
    if sweep.rated:
        return load
    count = max(1, round(load))
    side = system.with_(max_num_seqs=count)
    return closed_loop(side, replace(sweep.case.workload, requests_per_client=0),
                       min(count, running_limit(side, sweep.case.workload))).request_rate


def reason(sweep: Sweep, system: System) -> str:
    """What ends it by end-to-end latency in an open loop, as the product says."""
    load = replace(sweep.case.workload, requests_per_client=0)
    try:
        found = crossover_rates(system.with_(max_num_seqs=0), load, [load.input_len], [1.0])
    except SpecSimError:
        return "-"
    item = found.rates[0].crossing("e2el")
    return "pays" if item.pays_below is None else item.because or "no part alone"


def lookups(found: list[Sweep], every: Sequence[Row]) -> list[str]:
    """How lookups do with other host times per sequence: to see what their misses are."""
    rows = []
    for us in LOOKUP_US:
        logs, at_top = [], []
        right = told = 0
        for sweep in found:
            if not sweep.case.system.setup.drafting.lookup or sweep.rated:
                continue
            system = placed(sweep.case.system, without(sweep.rows[0]["set_id"]))
            overheads = replace(
                system.engine.overheads, ngram_seq_s=us * 1e-6, ngram_token_s=0.0)
            gain = predicted(sweep, with_acceptance(
                sweep, system.with_(engine=replace(system.engine, overheads=overheads)), every))
            for load, real in list(sweep.measured.items())[1:]:
                logs.append(math.log(gain(load) / real))
                if abs(real - 1) > EVEN:
                    told, right = told + 1, right + ((gain(load) > 1) == (real > 1))
            at_top.append(logs[-1])
        rows.append([f"{us:g} us", str(len(at_top)), f"{right} of {told}",
                     f"{statistics.median(map(abs, logs)):.1%}",
                     f"{statistics.median(at_top):+.1%}"])
    return [
        "Lookups with other host times per sequence (the profiles have 3 us and 2.8 ns per token, "
        "vLLM's own search timed alone, no row of these). In-sample, and changes nothing:", "",
        *table(["host time", "sweeps", "side of 1", "median error", "at the largest load"], rows),
        "",
    ]


def of_load(load: float | None, sweep: Sweep, top: float) -> str:
    unit = "/s" if sweep.rated else ""
    return f"> {top:g}{unit}" if load is None else f"{load:.3g}{unit}"


def factors(crossed: list[Judged], of: Callable[[Judged], float | None]) -> str:
    by_source: dict[str, list[float]] = defaultdict(list)
    for j in crossed:
        by_source[j.sweep.source].append(abs(math.log(of(j) or 1.0)))
    medians = {name: math.exp(statistics.median(v)) for name, v in sorted(by_source.items())}
    good = sum(x <= math.log(CLOSE) for v in by_source.values() for x in v)
    return (f"{statistics.median(medians.values()):.2f} (median of source medians: "
            f"{', '.join(f'{n} {m:.2f}' for n, m in medians.items())}), within {CLOSE:g} in {good} "
            f"of {len(crossed)}")


def report(judged: list[Judged], shipped: list[Judged]) -> list[str]:
    lines = [
        "# Up to which load speculation pays: predicted against public sweeps",
        "",
        "From `python validation/scripts/crossover_loads.py --write`; how it is judged stands in "
        "that script. Engines as fitted without the sweep's source; the figures as shipped "
        "(in-sample) are named as such.",
        "",
    ]
    for title, some in (("source left out", judged), ("as shipped, in-sample", shipped)):
        crossed = [j for j in some if j.factor is not None]
        unmeasured = [j for j in some if j.factor is None]
        kept = sum(j.predicted is None or j.predicted > list(j.sweep.measured)[-1]
                   for j in unmeasured)
        right, told = (sum(j.signs()[i] for j in some) for i in (0, 1))
        lines += [
            f"**{title}**: {len(crossed)} of {len(some)} sweeps cross. Factor between predicted "
            f"and measured crossing, in requests per second: "
            f"{factors(crossed, lambda j: j.factor)}; in the loads as stated: "
            f"{factors(crossed, lambda j: j.loads)}. Of {len(unmeasured)} sweeps that pay at all "
            f"their loads {kept} are predicted to. Side of 1 by load: right in {right} of {told} "
            f"({right / told:.0%}).",
            "",
        ]
    missed = [j for j in judged if j.factor and abs(math.log(j.factor)) > math.log(CLOSE)]
    lines += [f"The {len(missed)} sweeps beyond {CLOSE:g}, source left out:", ""]
    for k, (words, _) in enumerate(MECHANISMS):
        own = [j for j in missed
               if next(i for i, (_, holds) in enumerate(MECHANISMS) if holds(j)) == k]
        if own:
            lines.append(f"- {len(own)} of {len(missed)}: {words} "
                         f"({'; '.join(j.sweep.name for j in own)}).")
    lines += [
        "",
        "DEPTHR's throughput is of whole rounds in 120 s (16 of 128 requests on both sides, "
        "3413.3 tok/s), while its TPOT has speculation ahead by 1.28 at that load: its crossing is "
        "a plateau. DEPTHB and DEPTHC vary context and k at one load and have no crossing in "
        "load. No public row states first tokens or queues by rate.",
        "",
        "Every sweep that crosses, source left out:", "",
    ]
    rows = []
    for j in sorted((j for j in judged if j.factor is not None), key=lambda j: j.sweep.name):
        top = list(j.sweep.measured)[-1] * BEYOND
        rows.append([
            j.sweep.name, j.sweep.given, of_load(j.measured, j.sweep, top),
            of_load(j.predicted, j.sweep, top), f"{j.factor:.2f}", f"{j.loads:.2f}", j.because,
            ", ".join(f"{x:g}: {j.sweep.measured[x]:.2f}/{j.gains[x]:.2f}" for x in j.gains),
        ])
    lines += table(["sweep", "acceptance", "measured", "predicted", "factor of rates",
                    "of loads", "open loop: why", "load: measured/predicted speedup"],
                   rows, left=True)
    lines += ["", "Sweeps that pay at all loads, and are predicted not to:", ""]
    rows = [
        [j.sweep.name, j.sweep.given, of_load(j.predicted, j.sweep, 0),
         ", ".join(f"{x:g}: {j.sweep.measured[x]:.2f}/{j.gains[x]:.2f}" for x in j.gains)]
        for j in judged
        if j.factor is None and j.predicted is not None
        and j.predicted <= list(j.sweep.measured)[-1]
    ]
    lines += table(["sweep", "acceptance", "predicted", "load: measured/predicted speedup"], rows,
                   left=True) if rows else ["none"]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    every: list[Row] = [*read_csv(PUBLISHED), *read_csv(PUBLISHED_2)]
    given = parser.parse_args()
    found = sweeps(every)
    shipped = {f"{p.name}-{p.version}": p for p in list_engines()}
    results = [
        [judge(s, placed(s.case.system, of(s)), every, why) for s in found]
        for of, why in ((lambda s: without(s.rows[0]["set_id"]), True), (lambda _: shipped, False))
    ]
    lines = [*report(*results), *lookups(found, every)]
    if given.write:
        write_text(OUT, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

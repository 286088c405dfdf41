"""Public sweeps over method and draft length, as settings that a plan of runs can be replayed on.

A sweep is all rows of one source that differ in the drafting alone: target, GPUs, engine, data set,
lengths and load are the same. Plain decoding is one of its choices where the rows state its speed.
AUTOSPEC, whose system no row states in full, is that of `k_sweeps`.

What a replay may know of a sweep before its first run: the engine profile as fitted without the
sweep's source (where it took part in the fit), widths of the priors computed without it, and the
acceptance that the catalogue's rows of other sources tell. The means of the acceptance model that
all drafters share, and the kernels' efficiencies, are fitted on all rows and stay as they ship.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from best_k import case_of
from common import PUBLISHED, PUBLISHED_2, read_csv
from fewshot_priors import placed, without
from k_sweeps import _ASKED, AutoSpec

from specsim.accuracy.lookups import source_of
from specsim.accuracy.rows import PublishedCase
from specsim.analytic.workload import Workload
from specsim.calibrate.beliefs import SeenRun, Setting, drafting_setting
from specsim.calibrate.fewshot import FewShotPoint
from specsim.errors import SpecSimError
from specsim.speculation import acceptance_catalogue
from specsim.speculation import resolve as resolver
from specsim.speculation.resolve import AcceptanceQuery, acceptance_spread, resolve
from specsim.speculation.trees import eagle_tree_acceptance

SAME = ("set_id", "target_model", "gpu", "n_gpus", "tp", "engine", "engine_version",
        "weight_dtype", "dataset", "isl", "osl", "batch_or_concurrency", "request_rate")


@dataclass
class Arm:
    """One measured choice. speed: of the sweep's metric; length: acceptance length where the row
    states one."""

    name: str
    case: PublishedCase
    speed: float
    length: float | None = None
    draft: str = ""


@dataclass
class PlanSweep:
    """name, set_id: of the rows. metric: told of every arm, of `fewshot.METRICS`."""

    set_id: str
    name: str
    metric: str
    dataset: str = ""
    arms: list[Arm] = field(default_factory=list)

    @property
    def source(self) -> str:
        return source_of(self.set_id)

    @property
    def good(self) -> list[float]:
        """How good each arm was, higher is better."""
        return [1 / a.speed if self.metric == "tpot_s" else a.speed for a in self.arms]


def told(case: PublishedCase) -> dict[str, float]:
    """Speed of a row by metric."""
    found = {"tpot_s": case.measured.get("spec_tpot_s"),
             "output_tok_s": case.measured.get("spec_output_tok_s"),
             "speedup": case.measured.get("speedup")}
    return {name: value for name, value in found.items() if value}


def row_sweeps(rows: Iterable[dict[str, str]]) -> list[PlanSweep]:
    """Every sweep of at least two choices."""
    groups: dict[tuple[str, ...], list[tuple[dict[str, str], PublishedCase]]] = defaultdict(list)
    for row in rows:
        case = case_of(row)
        if case is not None and case.system.speculative and told(case):
            groups[tuple(row[name] for name in SAME)].append((row, case))
    found = []
    for members in groups.values():
        metric = next((m for m in ("tpot_s", "output_tok_s", "speedup")
                       if all(m in told(case) for _, case in members)), None)
        if metric is None:
            continue
        row = members[0][0]
        sweep = PlanSweep(
            row["set_id"], " ".join(x for x in (row["target_model"], row["gpu"], row["dataset"],
                                                f"load {row['batch_or_concurrency']}") if x),
            metric, row["dataset"],
        )
        arms: dict[str, Arm] = {}
        for row, case in members:
            setup = case.system.setup
            tree = f" tree {setup.tree_topk},{setup.tree_tokens}" if setup.tree_topk > 1 else ""
            draft = row["draft_model"].rpartition("/")[2]
            name = " ".join(x for x in (setup.method, draft, f"k={setup.k}{tree}") if x)
            arms.setdefault(name, Arm(name, case, told(case)[metric], case.acceptance_length,
                                      row["draft_model"]))
        sweep.arms = list(arms.values())
        plain = plain_speed(members, metric)
        if plain is not None:
            case = members[0][1]
            sweep.arms.insert(0, Arm("plain", replace(case, system=case.system.plain()), plain))
        if len(sweep.arms) >= 2:
            found.append(sweep)
    return found


def plain_speed(
    members: Sequence[tuple[Mapping[str, str], PublishedCase]], metric: str
) -> float | None:
    """Of plain decoding, where the rows agree on it."""
    if metric == "speedup":
        return 1.0
    name = {"tpot_s": "baseline_tpot_s", "output_tok_s": "baseline_output_tok_s"}[metric]
    values = [c.measured[name] for _, c in members if name in c.measured]
    if not values or max(values) > 1.02 * min(values):
        return None
    return sum(values) / len(values)


def autospec_sweeps(rows: Iterable[dict[str, str]]) -> list[PlanSweep]:
    """AUTOSPEC on what stands in for its machine (`k_sweeps`)."""
    own, found = [r for r in rows if r["set_id"] == "AUTOSPEC"], []
    for target in _ASKED:
        auto = AutoSpec(target, own)
        for clients, speeds in sorted(auto.measured.items()):
            arms = [
                Arm(f"{auto.method} k={k}", PublishedCase(
                    f"AUTOSPEC {target}", "AUTOSPEC", "C", auto.system(k, auto.moved(0.0)),
                    Workload(1024, 460), clients,
                ), speed)
                for k, speed in sorted(speeds.items())
            ]
            name = f"{target} load {clients}"
            found.append(PlanSweep("AUTOSPEC", name, "output_tok_s", arms=arms))
    return found


def all_sweeps() -> list[PlanSweep]:
    rows, more = read_csv(PUBLISHED), read_csv(PUBLISHED_2)
    found = [s for s in row_sweeps([*rows, *more]) if s.set_id != "AUTOSPEC"]
    return [*found, *autospec_sweeps(more)]


# --- what is known before the first run -----------------------------------------------------------


@contextmanager
def forgotten(source: str) -> Iterator[None]:
    """The acceptance catalogue without the rows of a source."""
    every = acceptance_catalogue._by_model()
    rest = {target: kept for target, points in every.items()
            if (kept := tuple(p for p in points if source_of(p.set_id) != source))}
    cached = (resolver._posterior, resolve, acceptance_spread)
    with patch.object(acceptance_catalogue, "_by_model", lambda: rest):
        for one in cached:
            one.cache_clear()
        yield
    for one in cached:
        one.cache_clear()


def query_of(sweep: PlanSweep, arm: Arm) -> AcceptanceQuery:
    """Whose acceptance an arm's user would ask for."""
    system = arm.case.system
    target = next((asked for name, asked in _ASKED.items()
                   if sweep.set_id == "AUTOSPEC" and name in sweep.name), system.spec.name)
    query = AcceptanceQuery(target, system.setup.method, arm.draft or None, sweep.dataset or None)
    try:
        resolve(query, 1)
    except SpecSimError:  # a data set that no other source has: of unknown work
        query = replace(query, work=None)
    return query


def settings_of(sweep: PlanSweep) -> list[Setting]:
    """The arms as they are believed to be before any of them is run. Call it within `forgotten`."""
    engines, found = without(sweep.set_id), []
    longest: dict[AcceptanceQuery, int] = {}
    for arm in sweep.arms:
        if arm.case.system.speculative:
            query, k = query_of(sweep, arm), arm.case.system.setup.k
            longest[query] = max(longest.get(query, 1), k)
    for arm in sweep.arms:
        case = arm.case
        system = placed(case.system, engines)
        point = FewShotPoint(arm.name, system, case.workload, case.concurrency)
        if not system.speculative:
            found.append(Setting(point, sweep.metric))
            continue
        query = query_of(sweep, arm)
        estimate = resolve(query, longest[query])
        spread = acceptance_spread(query, longest[query])
        setup, chain = system.setup, estimate.acceptance
        accepted = chain.at(setup.k) if setup.tree_topk == 1 else eagle_tree_acceptance(
            chain, setup.k, setup.tree_topk, setup.tree_tokens)
        if accepted.draft_probability < 1:
            setup = replace(setup, draft_share=accepted.draft_probability)
        point = replace(point, system=system.with_(setup=setup, acceptance=accepted))
        found.append(drafting_setting(point, sweep.metric, str(query), spread))
    return found


def seen_of(sweep: PlanSweep, settings: Sequence[Setting], place: int) -> SeenRun:
    """What a run of an arm would tell: what its row states."""
    arm, setting = sweep.arms[place], settings[place]
    lookup = setting.point.system.setup.drafting.lookup
    tree = setting.point.system.setup.tree_topk > 1
    stated = arm.length is not None and not lookup and not tree
    return SeenRun(place, arm.speed, {setting.k: arm.length} if stated else {})

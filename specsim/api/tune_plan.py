"""`specsim tune --plan` and `--from`: beliefs about the choices, what runs told, what to run next.

Beliefs are those of `calibrate.beliefs` with the shipped priors; the acceptance of each method has
the catalogue's spread, or, where it was given, only that of positions beyond the given ones.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from specsim.analytic.system import System
from specsim.api.acceptance import spread_of
from specsim.api.calibrate_bench import read_runs
from specsim.calibrate.beliefs import Beliefs, SeenRun, Setting, drafting_setting
from specsim.calibrate.fewshot import MOVED, FewShotPoint, predict_point
from specsim.calibrate.fewshot_bench import (
    SPEC,
    measured_acceptance,
    point_of,
    said_of,
    side_of,
)
from specsim.calibrate.next_runs import SETTLED, Outlook
from specsim.errors import CalibrationError, UsageError
from specsim.files import check_writable, write_whole
from specsim.formats.bench import BenchRun
from specsim.methods.registry import known_method
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.tuning import TuneOptions
from specsim.options.values import paths_of
from specsim.planning.flags import flags_of
from specsim.planning.run_plan import (
    Decision,
    MeasuredRun,
    PlannedRun,
    RunPlan,
    Unknown,
    script_of,
    setting_name,
)
from specsim.planning.tune import Offer, TuningFigures, choices_of
from specsim.planning.tune_choices import LONGEST, OfferedLoad, tree_of
from specsim.speculation.acceptance import SLOPE_SPREAD_90, Acceptance
from specsim.speculation.acceptance_model import depth_of, flat_logit
from specsim.speculation.acceptance_posterior import QUANTILE_90, AcceptanceSpread

MOST_SETTINGS = 200  # choices times loads
# What causes of beliefs belong to, in the words of a report.
UNKNOWNS: Mapping[str, tuple[str, ...]] = {
    "cost of a step": ("kernel_scale", "expert_scale", "step_s", "seq_s", "layer_s", "sync_s"),
    "cost of drafting": ("drafter_scale", "draft_pass_s", "ngram_seq_s", "tree_pass_s"),
    "overhead of speculation": ("spec_step_s", "spec_seq_s"),
    "prompts in the batch": ("mixed_step_s", "request_s"),
}


def check_plan(asked: TuneOptions) -> bool:
    """Whether a plan is asked for. UsageError for options that do not go with it."""
    wanted = asked.plan or asked.from_ is not None
    if not wanted:
        for name in ("script", "runs"):
            if name in asked.model_fields_set and getattr(asked, name) is not None:
                raise UsageError(f"--{name} is of a plan; add --plan, or --from RESULTS")
        return False
    if asked.rate is not None:
        raise UsageError(
            "--plan plans runs with a number of clients; give --concurrency instead of --rate"
        )
    if asked.by is not None:
        raise UsageError("--by asks for a map instead of a plan of runs; give one of them")
    if asked.fidelity == "datasheet":
        raise UsageError("--fidelity datasheet has no intervals to plan by; leave it out of a plan")
    if asked.script is not None:
        given = [said_of(path)[0] for path in paths_of(asked.from_)]
        check_writable(Path(asked.script), "--script", [p for p in given if p.is_file()])
    return True


def plan_runs(
    asked: TuneOptions, offer: Offer, found: TuningFigures, loads: Sequence[OfferedLoad]
) -> RunPlan:
    """The plan, with --script written. UsageError where nothing can be chosen from."""
    files, warnings = paths_of(asked.from_), list[str]()
    runs = read_runs(files, warnings, remarks=False)
    if files and not runs:
        raise UsageError(f"{files[0]} holds no result of a benchmark; `specsim import` says why")
    planner = _Planner(asked, offer, found, [load.clients or 1 for load in loads])
    plan = planner.plan(*planner.told(runs), warnings)
    if asked.script is not None:
        server = planner.systems[0].engine.server
        if server.dialect not in ("vllm", "sglang"):
            raise UsageError(
                f"no script is written for {planner.systems[0].engine.name}; leave out --script"
            )
        command = next((run.command for run in plan.runs if run.command), "")
        model = shlex.split(command)[len(server.command)] if command else ""
        again = repeat(asked.but(plan=False, from_="results"))
        write_whole(Path(asked.script), script_of(
            plan, server.dialect, model, planner.loads, found.workload, again))
        words = f"the runs as a script: PROMPTS=my-prompts bash {shlex.quote(str(asked.script))}"
        plan = replace(plan, notes=(*plan.notes, words))
    return plan


class _Planner:
    """The choices at the loads as settings, and runs among them."""

    def __init__(
        self, asked: TuneOptions, offer: Offer, found: TuningFigures, loads: list[int]
    ) -> None:
        self.asked, self.loads, self.workload = asked, loads, found.workload
        self.offer = offer
        self.written_for: str | None = None
        self.metric = "tpot_s" if asked.objective == "tpot" else "output_tok_s"
        self.systems = [
            system for i, system in enumerate(choices_of(offer, asked.max_k))
            if all(answer.candidates[i].feasible for answer in found.answers)
        ]
        if len(self.systems) < 2:
            raise UsageError(
                "there is nothing to choose from: fewer than two choices run at every load within "
                "the limits; loosen --slo, or name --methods with --acceptance-length"
            )
        if len(self.systems) * len(loads) > MOST_SETTINGS:
            raise UsageError(
                f"{len(self.systems)} choices at {len(loads)} loads are more than a plan takes "
                f"({MOST_SETTINGS} settings); name fewer loads, --methods, or a lower --max-k"
            )
        self._spreads = {s.setup.method: self._spread(s) for s in offer.systems}
        self.settings = [self._setting(system, load) for system in self.systems for load in loads]

    def _spread(self, system: System) -> AcceptanceSpread:
        """How unsure the acceptance of a method is."""
        accepted = system.acceptance
        assert accepted is not None
        if accepted.kind == "catalogue" and accepted.grounds is not None:
            options = DeploymentOptions.of(self.asked)
            return spread_of(
                options, system.spec, system.setup, max(2, self.asked.max_k or LONGEST))
        known = max(1, accepted.measured_positions)
        level = 0.0
        bounds = self.offer.spreads.get(system.setup.method)
        if bounds is not None:
            low, high = (flat_logit(length, system.setup.k) for length in bounds)
            level = (high - low) / (2 * QUANTILE_90)
        return AcceptanceSpread(level, SLOPE_SPREAD_90 / QUANTILE_90, depth_of(known), known)

    def _setting(self, system: System, load: int) -> Setting:
        point = FewShotPoint(setting_name(system), system, self.workload, load)
        method = system.setup.method
        if not system.speculative:
            return Setting(point, self.metric)
        return drafting_setting(point, self.metric, method, self._spreads[method])

    def plan(
        self, seen: Sequence[SeenRun], measured: Sequence[MeasuredRun], notes: Sequence[str]
    ) -> RunPlan:
        """What to choose after these runs, and what to run next."""
        beliefs, each = Beliefs(self.settings), len(self.loads)
        before = beliefs.joint()
        now = beliefs.joint(seen) if seen else before
        outlook = Outlook(now, [range(i * each, (i + 1) * each) for i in range(len(self.systems))])
        run = {place.setting for place in seen}
        able = [i for i, one in enumerate(outlook.choices) if not run.issuperset(one)]
        left = max(0, self.asked.runs - len({m.name for m in measured}))
        planned = outlook.plan(able, left)
        groups = _groups(now.causes)
        unknowns = [
            Unknown(name, max(0.0, outlook.regret - outlook.regret_told(places)),
                    now.left(before, places))
            for name, places in groups.items()
        ]
        decisions = [
            Decision(load, *_named(self.systems[v.setting // each]), v.probability, v.regret,
                     v.regret <= SETTLED, None if v.rival == v.setting else
                     setting_name(self.systems[v.rival // each]),
                     self._command(self.systems[v.setting // each])[0])
            for load, v in zip(self.loads, outlook.verdicts(), strict=True)
        ]
        runs = []
        for place, regret in planned:
            system, after = self.systems[place], now.after(outlook.readings[place])
            told = {name: after.left(now, places) for name, places in groups.items()}
            runs.append(PlannedRun(
                *_named(system), regret,
                tuple(sorted((n for n in told if told[n] < MOVED), key=lambda n: told[n])),
                *self._command(system),
            ))
            now = after
        return RunPlan(
            self.asked.objective, SETTLED, outlook.regret, outlook.regret <= SETTLED,
            tuple(decisions), tuple(measured), tuple(sorted(unknowns, key=lambda u: -u.worth)),
            tuple(runs), self.written_for, tuple(notes),
        )

    def _command(self, system: System) -> tuple[str | None, str]:
        """(what starts the server, '') or (None, why there is nothing)."""
        flags, why = flags_of(system, self.offer.names)
        if flags is not None:
            self.written_for = flags.written_for
        return (flags.command if flags is not None else None), why

    # --- runs -------------------------------------------------------------------------------

    def told(self, runs: Sequence[BenchRun]) -> tuple[list[SeenRun], list[MeasuredRun]]:
        """What the runs say of settings, of a load besides those asked for too."""
        seen, measured = [], []
        for run in runs:
            choice = self._choice(run)
            system = self.systems[choice]
            k, method = system.setup.k, system.setup.method
            counted = measured_acceptance(run, k, method) if system.speculative else None
            point = point_of(run, system)
            load = max(1, round(point.concurrency))
            place = self._place(choice, load)
            setting = self.settings[place]
            ratio = _ratio(replace(point, measured={
                name: value for name, value in point.measured.items() if name != "ttft_s"}))
            expected = predict_point(setting.point, system)[self.metric]
            lengths = self._lengths(run, system, counted)
            speed = expected * ratio**setting.sign
            seen.append(SeenRun(place, speed, lengths))
            measured.append(MeasuredRun(
                setting_name(system), load, speed, speed / expected - 1,
                lengths.get(k), run.source))
        return seen, measured

    def _place(self, choice: int, load: int) -> int:
        """The setting of a choice at a load, a new one for a load that was not asked for."""
        if load in self.loads:
            return choice * len(self.loads) + self.loads.index(load)
        self.settings.append(self._setting(self.systems[choice], load))
        return len(self.settings) - 1

    @staticmethod
    def _lengths(run: BenchRun, system: System, counted: Acceptance | None) -> dict[int, float]:
        """Acceptance length by draft length, as the run counted it."""
        if counted is None or system.setup.drafting.lookup or system.setup.tree_topk > 1:
            return {}
        k = system.setup.k
        if run.acceptance is not None and len(run.acceptance.per_position) == k:
            return {j: counted.expected_tokens(j) for j in range(1, k + 1)}
        return {k: counted.expected_tokens(k)}

    def _choice(self, run: BenchRun) -> int:
        """Which choice a run was of: as its name or its folder's says, else as its file does."""
        names = [setting_name(system) for system in self.systems]
        args, counted = run.server_args, run.acceptance
        k = args.num_speculative_tokens or (len(counted.per_position) if counted else 0)
        try:
            drafts = side_of(run) == SPEC
        except CalibrationError:  # it does not tell
            drafts = None
        where = " ".join((*Path(run.source).parts[-2:], run.label or ""))
        for place in sorted(range(len(names)), key=lambda i: -len(names[i])):
            told = re.search(rf"(?<![a-z0-9]){re.escape(names[place])}(?![0-9])", where)
            if told and (self.systems[place].speculative or drafts is not True):
                return place
        method = known_method(args.method) if args.method else None
        found = [i for i, s in enumerate(self.systems) if s.speculative is drafts
                 and (not s.speculative or (s.setup.k == k and tree_of(s) is None
                                     and method in (None, s.setup.method)))]
        if len(found) == 1:
            return found[0]
        raise UsageError(
            f"{run.source} does not tell which of the choices it was; name the file or its folder "
            f"after it ({', '.join(names[:4])}, ...), as the script of --script does"
        )


def _named(system: System) -> tuple[str, str, int, tuple[int, int] | None]:
    drafts = system.speculative
    return (setting_name(system), system.setup.method if drafts else "none",
            system.setup.k if drafts else 0, tree_of(system))


def _groups(causes: Mapping[str, int]) -> dict[str, list[int]]:
    """Places of the causes of each unknown."""
    found: dict[str, list[int]] = {}
    for cause, place in causes.items():
        kind, _, drafter = cause.partition(":")
        name = f"acceptance of {drafter}" if drafter else next(
            (words for words, members in UNKNOWNS.items() if kind in members), kind)
        found.setdefault(name, []).append(place)
    return found


def _ratio(point: FewShotPoint) -> float:
    """How much faster a run was than predicted for its own lengths and acceptance as expected."""
    (metric, value), *_ = point.measured.items()
    predicted = predict_point(point, point.system)[metric]
    return predicted / value if metric == "tpot_s" else value / predicted


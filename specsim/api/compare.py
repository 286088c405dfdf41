"""`specsim.compare`: any list of deployments at the same loads, ranked, with what is real of their
differences."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specsim.analytic.apart import Apart
from specsim.analytic.paired import Powers, figure_interval
from specsim.analytic.predict import load_point
from specsim.analytic.system import System
from specsim.api.apart import apart_of
from specsim.api.deployment import build_request
from specsim.api.functions import named_function
from specsim.api.predict import prepared
from specsim.api.results import Result, flat
from specsim.api.sweep_task import option_name, option_value, run_tasks
from specsim.errors import CapacityError, ModelConfigError, ProfileError, SpecSimError, UsageError
from specsim.formats.server_command import parse_command
from specsim.jsonable import Key
from specsim.latency.engine import find_engine
from specsim.model.catalogue import has_model
from specsim.options.analytic import CompareOptions
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.prediction import PredictOptions
from specsim.options.serving import SimulateOptions
from specsim.options.values import Numbers, parse_concurrency, parse_rates, shown
from specsim.planning import ranking as planning
from specsim.planning.compare_file import Entry, read_deployments
from specsim.planning.ranking import OBJECTIVES, Contender, Rejected, Served
from specsim.planning.tune_choices import broken_gate, gate_values, mean_gates
from specsim.sim.figures import value_at
from specsim.sim.slo import judge, parse_slo

Report = Callable[[int, int], None]
KINDS: tuple[tuple[type[SpecSimError], str], ...] = (
    (CapacityError, "memory"), (ModelConfigError, "model"), (ProfileError, "profile"))


class Comparison(Result, planning.ComparisonFigures):
    """Deployments ranked at each of `loads`; `rejected`: what cannot be built."""

    BLOCKS = "comparison.comparison_section"
    unit = Key[str]()
    more_is_better = Key[bool]()

    def to_rows(self) -> list[dict[str, object]]:
        return [flat({"load": load.load, **row.to_dict()})
                for load in self.loads for row in load.ranked]


class ComparisonStudy:
    """A checked file; `run` looks at every deployment."""

    def __init__(self, options: CompareOptions) -> None:
        self.options = options
        self.file = file = read_deployments(str(options.file))
        clients: Numbers | None = _listed(file.concurrency)
        rate: Numbers | None = _listed(file.rate)
        if options.rate is not None:
            clients, rate = None, options.rate
        elif options.concurrency is not None:
            clients, rate = options.concurrency, None
        if clients is not None and rate is not None:
            raise UsageError("the file has concurrency and rate; a comparison has one of them")
        self.closed = rate is None
        self.loads: list[float] = (
            [*map(float, parse_concurrency(clients, (1, 16, 64)))] if rate is None
            else parse_rates(rate))
        self.objective = options.objective or file.objective or (
            "throughput" if self.closed else "tpot")
        if self.objective not in OBJECTIVES:
            raise UsageError(
                f"objective is {shown(self.objective)}; it must be {', '.join(OBJECTIVES)}")
        if self.objective == "throughput" and not self.closed:
            raise UsageError(
                "objective is 'throughput', but at a rate all that keep up serve the same tokens; "
                "take tpot, ttft, e2el, throughput_per_gpu or cost")
        asked = file.slo if options.slo is None else options.slo
        if isinstance(asked, Mapping):
            asked = ",".join(f"{gate}={limit}" for gate, limit in asked.items())
        self.gates = parse_slo(str(asked or ""))
        self.warnings = [
            f"SLO {gate} is compared with the mean; run = \"simulate\" has percentiles"
            for gate in (mean_gates(self.gates) if file.run == "predict" else ())]
        self.defaults = self._read(file, "on top")

    def run(self, report: Report | None = None) -> Comparison:
        """report: told (done, all) while it goes on."""
        found: list[Contender] = []
        rejected: list[Rejected] = []
        total, partial = len(self.file.deployment), False
        try:
            for entry in self.file.deployment:
                try:
                    found.append(self._contender(entry))
                except SpecSimError as error:
                    kind = next((k for known, k in KINDS if isinstance(error, known)), "options")
                    rejected.append(Rejected(entry.name, kind, str(error)))
                if report is not None:
                    report(len(found) + len(rejected), total)
        except KeyboardInterrupt:
            if not found:
                raise
            partial = True
        done = len(found) + len(rejected)
        unlike = len({one.output_len for one in found}) > 1
        figures = planning.ComparisonFigures(
            self.objective, "clients" if self.closed else "requests/s", self.gates, tuple(found),
            tuple(planning.ranking(load, i, found, self.objective, closed=self.closed)
                  for i, load in enumerate(self.loads)),
            tuple(rejected), partial,
            (*self.warnings, *(["the deployments serve answers of unlike length"] * unlike),
             *([f"interrupted after {done} of {total} deployments"] * partial)),
        )
        return Comparison.of(figures, repeat(self.options))

    def _read(self, entry: Entry, where: str) -> dict[str, object]:
        """The options of a table."""
        run, out = self.file.run, {}
        for name, value in entry.options.items():
            plain = option_name(name, run, where)
            if plain in ("concurrency", "rate", "slo"):
                raise UsageError(f"{where}: {plain} is one for all deployments; give it on top")
            out[plain] = option_value(plain, value, run, where)
        return out

    def _contender(self, entry: Entry) -> Contender:
        own = self._read(entry, "[[deployment]]")
        defaults = dict(self.defaults)
        if isinstance(own.get("command"), str):
            own, defaults = _as_started(own, defaults)
        price = entry.price_per_gpu_hour or self.file.price_per_gpu_hour
        if self.objective == "cost" and price is None:
            raise UsageError("cost needs price_per_gpu_hour; give it with the deployment or on top")
        values = {**defaults, **own}
        if self.file.run == "predict":
            found = self._predicted(entry.name, values)
        else:
            found = self._simulated(entry.name, values)
        return replace(found, price_per_gpu_hour=price)

    def _predicted(self, name: str, values: Mapping[str, object]) -> Contender:
        first = f"{self.loads[0]:.17g}"
        options = PredictOptions.of_values(
            {**values, "concurrency" if self.closed else "rate": first})
        request, workload, apart = prepared(options)
        system, served = request.system, []
        for load in self.loads:
            at = load_point(system, workload, int(load) if self.closed else 1,
                            None if self.closed else load, apart)
            means = gate_values(
                at.ttft_s, at.tpot_s, at.queue_s, at.output_tok_s, at.request_rate,
                system.tokens_per_step, workload.output_len)
            reason = broken_gate(self.gates, means)
            kind = "slo" if reason else ""
            if not at.stable:
                reason, kind = "the queue grows without end", "overload"
            served.append(Served(
                at.output_tok_s, at.ttft_s, at.tpot_s, at.request_rate, at.running, at.speedup,
                reason, kind, _open(system, self.gates, means)))
        return Contender(name, system, _gpus(system, apart), workload.output_len, tuple(served),
                         warnings=request.warnings)

    def _simulated(self, name: str, values: Mapping[str, object]) -> Contender:
        """Of `specsim simulate`: the seed is the same for all, and so are the requests."""
        options = SimulateOptions.of_values(values)
        request = build_request(DeploymentOptions.of(options))
        served = []
        for load in self.loads:
            at = {"concurrency": int(load)} if self.closed else {"rate": load}
            [told] = run_tasks("simulate", [{
                "options": {"baseline": False, **values, **at}, "seed": options.seed,
            }])
            if "error" in told:
                raise UsageError(str(told["error"]))
            found: Any = told["result"]
            output, ttft, tpot, rate, running = (value_at(found, path) for path in (
                "output_tok_s", "ttft_s.mean", "tpot_s.mean", "request_rate", "running_mean"))
            broken = [f"{gate} is {_figure(item['value'])}; its limit is {item['limit']:g}"
                      for gate, item in judge(self.gates, found).items()
                      if isinstance(item, dict) and not item["pass"]]
            if not (output and ttft and tpot):
                broken = ["no request was answered in time"]
            served.append(Served(
                output or 0.0, ttft or 0.0, tpot or 0.0, rate or 0.0, running or 0.0,
                reason="; ".join(broken), kind="slo" if broken else ""))
        return Contender(
            name, request.system, _gpus(request.system, apart_of(options, request.system),
                                        options.replicas),
            request.workload.output_len, tuple(served), warnings=request.warnings)


def run(options: CompareOptions) -> Comparison:
    """Rank the deployments of `file` (a path, or what it would hold as a dict) at every load."""
    return ComparisonStudy(options).run()


compare = named_function(CompareOptions, run)


def _listed(value: object) -> str | None:
    """A number, a list of them, or text as the command line has it."""
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    return ",".join(str(item) for item in items)


def _as_started(
    own: dict[str, object], defaults: dict[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """The options of a deployment with a command, and those on top, less what its command says."""
    told = parse_command(str(own["command"]))
    said = {*told.values, "method", "draft", "k", "speculative_config", "tree"}
    if has_model(told.model or ""):
        said.add("model")
    if find_engine(str(defaults.get("engine", "vllm"))).name == told.engine:
        said.discard("engine")  # a version may stand on top
    if not {"method", "draft", "speculative_config"} & {*told.values, *own}:
        plain = DeploymentOptions().plain()
        own = {**{name: getattr(plain, name) for name in plain.model_fields_set}, **own}
    return own, {name: value for name, value in defaults.items() if name not in said}


def _figure(value: float | None) -> str:
    return "beyond the run" if value is None else f"{value:.3g}"


def _gpus(system: System, apart: Apart | None, replicas: int = 1) -> int:
    return apart.gpus(system) if apart is not None else replicas * system.parallel.all_gpus


def _open(
    system: System, gates: Mapping[str, float], means: Mapping[str, float]
) -> tuple[str, ...]:
    """Gates on times per token or to the first that lie within the interval of what is held
    against them."""
    found = []
    for gate, limit in gates.items():
        metric = gate if gate in means else gate.rpartition("_")[0]
        power = {"tpot": Powers(1.0), "ttft": Powers(ttft=1.0), "stream_tok_s": Powers(-1.0)}
        if metric not in power or not 0 < means[metric] < float("inf"):
            continue
        ends = figure_interval(system, power[metric])
        over = limit / means[metric]
        if ends is not None and over > 0 and ends[0] < math.log(over) < ends[1]:
            found.append(gate)
    return tuple(found)

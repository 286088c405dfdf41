"""From files of records to a fitted hardware profile, with its errors and its ledger.

    outcome = calibrate(read_all(paths), base, name="my-machine")
    outcome.profile          usable wherever a GPU name is asked for
    outcome.engine           the bundled decoder's own time per step, where steps were measured

Kernel points and prompts are fitted (parts A to D, F, G); whole steps are predicted from them and
judge the fit (part E). Several model sizes are fitted together: one size alone cannot tell weights
from overhead. Errors are relative: predicted / measured - 1.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from specsim.calibrate.fit import Fit, FitPoint, FitProblem
from specsim.calibrate.host import HostFit, fit_host
from specsim.calibrate.parameters import Parameter, free_parameters, starting_tables, with_values
from specsim.calibrate.peaks import own_figures
from specsim.calibrate.price import Models, RecordPricer, tables_of
from specsim.calibrate.records import Measurement, RunHeader, read_records
from specsim.calibrate.samples import FIT_PARTS, FitSample, faults, run_id, samples
from specsim.errors import CalibrationError
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.latency.engine_profile import EngineProfile

NOT_PRICED = "not priced by the model (a CPU's ceilings, sampling at a temperature)"


@dataclass(frozen=True)
class Data:
    """All records of some files. truncated: files whose last line was cut short."""

    records: tuple[Measurement, ...]
    headers: tuple[RunHeader, ...]
    truncated: tuple[str, ...] = ()


def read_all(paths: Sequence[Path]) -> Data:
    """Read files of records; CalibrationError when they are of more than one machine."""
    records: list[Measurement] = []
    headers: list[RunHeader] = []
    truncated = []
    for path in paths:
        found = read_records(path)
        records += found.points
        headers += found.headers
        if found.truncated:
            truncated.append(str(path))
    devices = {(str(h.device.get("kind")), str(h.device.get("name"))) for h in headers}
    if len(devices) > 1:
        names = " and ".join(sorted(name[:60] for _, name in devices))
        raise CalibrationError(
            f"the records are of several devices ({names}); calibrate each from its own files"
        )
    threads = {h.threads for h in headers if h.device.get("kind") != "cuda"}
    if len(threads) > 1:
        raise CalibrationError(
            f"the records were made with {' and '.join(map(str, sorted(threads)))} threads; a "
            "profile stands for one number of threads, calibrate each from its own files"
        )
    return Data(tuple(records), tuple(headers), tuple(truncated))


@dataclass(frozen=True)
class Outcome:
    """A finished calibration. left_out: samples not used, by reason. by_kind: (points, errors) of
    fitted points by kind. groups: errors of each shape's points when fitted without it. steps:
    (record, predicted seconds) of the held-out whole steps."""

    profile: HardwareProfile
    base: HardwareProfile
    engine: EngineProfile | None
    host: HostFit | None
    fit: Fit
    fitted: tuple[FitSample, ...]
    left_out: Mapping[str, int]
    groups: Mapping[str, tuple[float, ...]]
    steps: tuple[tuple[FitSample, float], ...]
    data: Data
    statistic: str

    @property
    def by_kind(self) -> dict[str, list[float]]:
        out: dict[str, list[float]] = {}
        for sample, error in zip(self.fitted, self.fit.errors, strict=True):
            out.setdefault(sample.record.kind, []).append(error)
        return out

    @property
    def step_errors(self) -> list[float]:
        return [predicted / sample.seconds - 1 for sample, predicted in self.steps]


def calibrate(
    data: Data, base: HardwareProfile, engine: EngineProfile, name: str, *,
    statistic: str = "median", leave_out: bool = True,
    tell: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """Fit a profile called `name` to the records, starting from `base`.

    engine: that of the decoder that was measured; its overheads are fitted on a few whole steps.
    tell: called with what is done, how far, of how much. CalibrationError when nothing is left to
    fit, or the base is of another kind of device.
    """
    run = data.headers[-1]
    _check_kind(base, run)
    start = starting_tables(own_figures(base, run, data.records, name))
    bare = RecordPricer(start, engine, Models())
    left_out: Counter[str] = Counter()
    usable: list[FitSample] = []
    for sample in samples((r for r in data.records if r.part in FIT_PARTS), statistic):
        priced = sample.record.kind in _PRICED and bare.seconds(sample.record) is not None
        if reason := sample.fault if priced else NOT_PRICED:
            left_out[reason] += 1
        else:
            usable.append(sample)
    if not usable:
        words = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise CalibrationError(
            f"no record of a kernel can be used ({words or 'the files hold none'}); run "
            "`specsim measure` until parts A to D are done, on a quiet machine"
        )
    observations = [_observation(sample) for sample in usable]
    tables = {table for o in observations for table in o.tables}
    parameters, models = free_parameters(start, tables), Models()

    def predict(values: Mapping[Parameter, float], which: Sequence[int]) -> list[float]:
        pricer = RecordPricer(with_values(start, values), engine, models)
        return [pricer.seconds(usable[i].record) or 0.0 for i in which]

    problem = FitProblem(observations, parameters, predict)
    if tell is not None:
        tell("fitting", 0, 1)
    fit = problem.fit()
    groups = problem.leave_out(
        fit, None if tell is None else lambda done, of: tell("leaving shapes out", done, of)
    ) if leave_out else {}
    fitted = with_values(start, fit.values)
    profile = _sourced(fitted, base, fit, parameters, tables, observations, groups, data)
    steps = samples((r for r in data.records if r.kind == "step"), statistic)
    for reason, count in faults(steps).items():
        left_out[f"whole steps: {reason}"] = count
    steps = [sample for sample in steps if not sample.fault]
    host = fit_host(steps, RecordPricer(profile, engine, Models()))
    own_engine = None if host is None else host.engine
    judged = RecordPricer(profile, own_engine or engine, Models())
    anchors = set() if host is None else {id(record) for record in host.anchors}
    held = [sample for sample in steps if id(sample.record) not in anchors]
    return Outcome(
        profile, base, own_engine, host, fit, tuple(usable), left_out,
        {name: tuple(errors) for name, errors in groups.items()},
        tuple((sample, judged.step(sample.record)) for sample in held), data, statistic,
    )


_PRICED = ("gemm", "gemm_peak", "attention", "sample", "moe", "launch", "stream", "prefill")


def _check_kind(base: HardwareProfile, run: RunHeader) -> None:
    kind = "gpu" if run.device.get("kind") == "cuda" else "cpu"
    if base.kind != kind:
        other = "h200-sxm" if kind == "gpu" else "cpu-generic"
        raise CalibrationError(
            f"the records are of a {kind.upper()} ({str(run.device.get('name'))[:60]}), but the "
            f"base {base.name} is a {base.kind.upper()}; use --base {other} or a profile like it"
        )


def _observation(sample: FitSample) -> FitPoint:
    record = sample.record
    return FitPoint(record.key, record.kind, _group(record), sample.seconds, sample.noise,
                    tables_of(record.kind))


_GROUPS = {
    "gemm": "product {n} x {k}",
    "attention": "attention {heads}/{kv_heads} x {head_dim}, {q_len} queries",
    "sample": "sampling {rows} rows", "moe": "experts, {tokens} tokens",
    "prefill": "prompts of {model}",
}


def _group(record: Measurement) -> str:
    """The shape that is left out together."""
    return _GROUPS.get(record.kind, record.kind).format_map(record.shape)


def _sourced(
    fitted: HardwareProfile, base: HardwareProfile, fit: Fit, parameters: Sequence[Parameter],
    tables: set[str], observations: Sequence[FitPoint],
    groups: Mapping[str, Sequence[float]], data: Data,
) -> HardwareProfile:
    """Every kernel table with what it was fitted on, and what it was not."""
    run = data.headers[-1]
    runs = ", ".join(sorted({f"run {run_id(h)}" for h in data.headers}))
    software = ", ".join(f"{k} {v}" for k, v in run.software.items() if k in ("torch", "cuda"))
    kernels: dict[str, KernelTable] = {}
    for name, table in fitted.kernels.items():
        own = [p for p in parameters if any(target == name for target, _ in p.targets)]
        errors = [e for o, e in zip(observations, fit.errors, strict=True) if name in o.tables]
        if name not in tables or not own or not errors:
            kernels[name] = replace(table, assumed=True, inherited_from=(
                table.inherited_from or base.name if name in base.kernels else None
            ))
            continue
        blind = [p.name.split(": ")[1] for p in own if p in fit.blind]
        outside = [e for o in dict.fromkeys(o.group for o in observations if name in o.tables)
                   for e in groups.get(o, ())]
        source = (
            f"specsim calibrate, {runs}: {len(errors)} points, median error "
            f"{100 * median(map(abs, errors)):.1f}%"
        )
        if outside:
            source += f", {100 * median(map(abs, outside)):.1f}% on shapes left out"
        if blind:
            source += f"; not seen by the data and kept from {base.name}: {', '.join(blind)}"
        measured = f"{str(run.device.get('name', ''))[:120]}, {software}, {run.date[:10]}"
        kernels[name] = KernelTable(name, {k: float(f"{v:.5g}") for k, v in table.params.items()},
                                    source, measured, assumed=len(blind) == len(own))
    return replace(fitted, kernels=kernels)


def parameter_rows(outcome: Outcome) -> list[dict[str, object]]:
    """One row per parameter: prior, value, relative standard error, whether the data saw it."""
    fit = outcome.fit
    return [
        {
            "parameter": p.name, "prior": p.start, "prior_rel_sd": p.width,
            "value": fit.values[p], "rel_sd": fit.sd[p], "seen": p not in fit.blind,
        }
        for p in fit.values
    ]

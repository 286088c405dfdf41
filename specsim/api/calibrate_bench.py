"""`specsim calibrate --from FILES MODEL`: an engine profile fitted to points of one server."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.calibrate.fewshot import CALIBRATED, FewShotFit, FewShotPoint, PointError, fit
from specsim.calibrate.fewshot_bench import (
    PLAIN,
    SPEC,
    drafts_of,
    measured_acceptance,
    point_of,
    said_of,
    sides,
    with_acceptance,
    with_statements,
)
from specsim.errors import CalibrationError, UsageError
from specsim.files import check_writable, write_whole
from specsim.formats.bench import BenchRun, scan
from specsim.jsonable import json_text, picked
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.engine_text import write_engine
from specsim.methods.registry import is_plain
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import CalibrateOptions
from specsim.options.values import paths_of
from specsim.speculation.acceptance import Acceptance
from specsim.units import counted


def fit_from(model: str, asked: CalibrateOptions) -> dict[str, object]:
    """Reads the files, fits, writes --out and --report; what was found, as `--json` prints it."""
    options = DeploymentOptions.of(asked).but(model=model)
    out = None if asked.out is None else Path(asked.out)
    report = None if asked.report is None else Path(asked.report)
    if out is not None and out.suffix.lower() != ".toml":
        raise UsageError(f"--out is {str(out)!r}; an engine profile is a .toml file")
    from_, plain = paths_of(asked.from_), paths_of(asked.plain)
    spec, holdout = paths_of(asked.spec), paths_of(asked.holdout)
    given = [said_of(path)[0] for path in (*from_, *plain, *spec, *holdout)]
    check_writable(out, "--out", given)
    check_writable(report, "--report", [*given, out])
    warnings: list[str] = []
    seen = ServerSeen(
        options, read_runs(from_, warnings), read_runs(plain, warnings),
        read_runs(spec, warnings), warnings,
    )
    points = seen.points()
    judged = seen.holdout(read_runs(holdout, warnings)) if holdout else []
    engine = points[0].system.engine
    result = fit(points, engine)
    held = result.errors(judged) if judged else ()
    titled = _titled(result, seen, points)
    if out is not None:
        write_engine(titled, out, _comment(seen, points))
    document = _document(result, held, seen, points, judged, out)
    if report is not None:
        write_whole(report, json_text(document, indent=2) + "\n")
    return document


class ServerSeen:
    """What the files say together, and the systems they were measured on."""

    def __init__(
        self, options: DeploymentOptions, untold: list[BenchRun], plain: list[BenchRun],
        spec: list[BenchRun], warnings: list[str],
    ) -> None:
        self.options, self.warnings = options, warnings
        self.plain, self.spec, only = sides({"": untold, PLAIN: plain, SPEC: spec})
        if not self.plain and not self.spec:
            raise CalibrationError(
                "none of the files has times to fit, only acceptance; add a benchmark result"
            )
        drafting = [*self.spec, *only]
        self.acceptances: dict[str, Acceptance] = {}
        self.system: System | None = None
        self.base = self._plain_system()
        if drafting:
            self.system = self._spec_system(drafting, only)
        for run in (*self.plain, *self.spec):
            self._same_server(run)

    def _plain_system(self) -> System:
        request = build_request(self.options.plain())
        self.warnings += [w for w in request.warnings if w not in self.warnings]
        return request.system

    def _spec_system(self, drafting: list[BenchRun], only: list[BenchRun]) -> System:
        """The speculative system with the acceptance the files agree on, or an expected one."""
        options = self.options
        method = options.method or next(
            (run.server_args.method for run in drafting if run.server_args.method), None
        )
        if is_plain(method):
            raise UsageError(
                "--method is 'none', but a file was measured with speculation; leave it out of "
                "--from, or name the method"
            )
        k = options.k if options.k is not None else drafts_of(drafting)
        options = options.but(method=method, k=k)
        # A placeholder, so that a method whose acceptance nobody published can be priced.
        given = options.but(acceptance_length=1.5)
        setup = build_request(given).system.setup
        for run in drafting:
            found = measured_acceptance(run, setup.k, setup.method)
            if found is not None:
                self.acceptances[_key(run)] = found
        for run in only:
            if _key(run) in self.acceptances:
                self.acceptances.setdefault("shared", self.acceptances[_key(run)])
        if any(self.stated(run) is None for run in self.spec):
            self.warnings.append(
                "not every speculative file holds an acceptance: it was fitted together with the "
                "overheads, and the two cannot be told apart well; state it as "
                "FILE@acceptance_length=2.4, or add a /metrics dump"
            )
        if not self.acceptances:
            try:
                request = build_request(options)
            except UsageError:
                request = build_request(options.but(acceptance_length=1 + setup.k / 2))
                self.warnings.append(
                    "no file holds an acceptance and the catalogue has none: half of the drafts "
                    "were expected"
                )
        else:
            request = build_request(given)
        self.warnings += [w for w in request.warnings if w not in self.warnings]
        return request.system

    def _same_server(self, run: BenchRun) -> None:
        name = self.base.engine.name
        if run.engine and run.engine.lower().replace("-", "") not in (name, "tensorrtllm"):
            self.warnings.append(
                f"{run.source} was measured on {run.engine}, but the fit starts from the profile "
                f"of {name}; give --engine"
            )
        if run.server_args.tp not in (None, self.base.parallel.tp):
            self.warnings.append(
                f"{run.source} says tp {run.server_args.tp}, but --tp is {self.base.parallel.tp}"
            )

    def points(self) -> list[FewShotPoint]:
        return [*(point_of(run, self.base) for run in self.plain),
                *(self._spec_point(run) for run in self.spec)]

    def holdout(self, runs: list[BenchRun]) -> list[FewShotPoint]:
        plain, spec, _ = sides({"": runs})
        if spec and self.system is None:
            raise CalibrationError(
                f"{spec[0].source} was measured with speculation, but none of the fitted files "
                "was; add a speculative one"
            )
        if self.system is not None:
            for run in spec:
                found = measured_acceptance(run, self.system.setup.k, self.system.setup.method)
                if found is not None:
                    self.acceptances.setdefault(_key(run), found)
        return [*(point_of(run, self.base) for run in plain),
                *(self._spec_point(run) for run in spec)]

    def _spec_point(self, run: BenchRun) -> FewShotPoint:
        assert self.system is not None
        found = self.stated(run)
        if found is not None:
            return point_of(run, with_acceptance(self.system, found))
        system = self.system
        for other in self.acceptances.values():  # another load of the server: expected, not known
            system = with_acceptance(system, other)
            break
        return replace(point_of(run, system), acceptance_group="unknown")

    def stated(self, run: BenchRun) -> Acceptance | None:
        """The acceptance of the run, or what a file without times says of the server."""
        return self.acceptances.get(_key(run)) or self.acceptances.get("shared")


def _key(run: BenchRun) -> str:
    return f"{run.source}|{run.label}|{run.load.max_concurrency}|{run.load.request_rate}"


def read_runs(
    files: Sequence[Path], warnings: list[str], *, remarks: bool = True
) -> list[BenchRun]:
    """The runs of FILE or FILE@NAME=VALUE; what was left out is added to `warnings`, and with
    `remarks` what the files' readers say of each run."""
    runs: list[BenchRun] = []
    for given in files:
        file, said = said_of(given)
        found = scan(file)
        runs += (with_statements(run, said) for run in found.runs)
        warnings += [f"{path} was left out: {reason}" for path, reason in found.skipped]
        if remarks:
            warnings += [f"{run.source}: {text}" for run in found.runs for text in run.warnings]
    return runs


def _titled(result: FewShotFit, seen: ServerSeen, points: Sequence[FewShotPoint]) -> EngineProfile:
    engine, base = result.engine, seen.base
    title = (engine.title or engine.name).split(", calibrated for ")[0]
    title = f"{title}, calibrated for {base.spec.name} on {base.profile.name}"
    moved = [e.name for e in result.estimates if e.moved and not e.name.startswith("acceptance:")]
    sources = {
        **engine.sources,
        CALIBRATED: f"specsim calibrate --from, {counted(len(points), 'point')} of one server: "
        f"{', '.join(p.name for p in points)}; moved: {', '.join(moved) or 'nothing'}",
    }
    return replace(engine, title=title, sources=sources)


def _comment(seen: ServerSeen, points: Sequence[FewShotPoint]) -> str:
    base = seen.base
    return (
        f"Written by `specsim calibrate --from`: the engine as it serves {base.spec.name} on "
        f"{base.profile.name}.\nFitted on {counted(len(points), 'point')}; kernel_scale belongs to "
        "this model on this device."
    )


def _row(item: PointError, split: str) -> dict[str, object]:
    side = SPEC if item.speculative else PLAIN
    return {**picked(item, "point metric"), "split": split, "side": side,
            **picked(item, "measured before after error_before error_after sd")}


def _document(
    result: FewShotFit, held: Sequence[PointError], seen: ServerSeen,
    points: Sequence[FewShotPoint], judged: Sequence[FewShotPoint], out: Path | None,
) -> dict[str, object]:
    base = seen.base
    flags = _flags(result, seen, points)
    return {
        "kind": "calibration",
        "what": "engine",
        **base.summary("model", "gpu", "tp", "engine", "engine_version"),
        "written": str(out) if out is not None else None,
        "parameters": [
            picked(e, "name before value sd_before sd moved") for e in result.estimates
        ],
        **picked(result, "kept not_moved unseen"),
        "points": [*(_row(item, "fitted") for item in result.fitted),
                   *(_row(item, "held-out") for item in held)],
        "loads": [
            {"point": p.name, "concurrency": p.concurrency,
             **picked(p.workload, "input_len output_len cached_share"), "note": p.note}
            for p in (*points, *judged)
        ],
        "acceptance_flags": flags,
        "command": _command(seen, out, flags),
        "warnings": seen.warnings,
    }


def _flags(result: FewShotFit, seen: ServerSeen, points: Sequence[FewShotPoint]) -> str:
    """The measured acceptance as options of predict and simulate; '' without speculation."""
    if seen.system is None:
        return ""
    setup = seen.system.setup
    spec = next((p for p in points if p.speculative), None)
    if spec is None or spec.system.acceptance is None:
        found = seen.acceptances.get("shared")
        if found is None:
            return ""
        acceptance = found
    else:
        acceptance = spec.system.acceptance
    parts = [f"--method {setup.method} --k {setup.k}"]
    if "unknown" in result.acceptance_rates:
        parts.append(f"--acceptance-length {1 + setup.k * result.acceptance_rates['unknown']:.3f}")
    else:
        rates = acceptance.unconditional[: setup.k]
        parts.append("--acceptance " + ",".join(f"{rate:.4g}" for rate in rates))
    if acceptance.draft_probability < 1:
        parts.append(f"--draft-share {acceptance.draft_probability:.3g}")
    return " ".join(parts)


def _command(seen: ServerSeen, out: Path | None, flags: str) -> str:
    options, base = seen.options, seen.base
    parts = ["specsim predict", str(options.model), f"--gpu {options.gpu}",
             f"--engine {out if out is not None else 'my-engine.toml'}"]
    for name, value, default in (("tp", base.parallel.tp, 1), ("ep", base.parallel.ep, 1),
                                 ("weights", options.weights, None), ("kv", options.kv, None),
                                 ("draft", options.draft, None)):
        if value != default:
            parts.append(f"--{name} {value}")
    return " ".join([*parts, *([flags] if flags else [])])


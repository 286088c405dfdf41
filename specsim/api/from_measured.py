"""`specsim predict --from-measured RESULT --to gpu=b200`: a benchmark carried to another system.

Both systems are predicted; what the prediction missed the measured one by is carried over as far as
public pairs bear out (`specsim.analytic.carry_over`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specsim.analytic.carry_over import Seen, Setting, carried, distances
from specsim.api.calibrate_bench import ServerSeen, read_runs
from specsim.api.deployment import build_request
from specsim.api.predict import Prediction, predicted
from specsim.api.sweep_task import parse_value
from specsim.api.validate_bench import model_of_files
from specsim.api.verdicts import deployment_of
from specsim.calibrate.fewshot import METRICS, FewShotPoint, predict_point
from specsim.calibrate.fewshot_bench import PLAIN, SPEC, said_of, with_acceptance
from specsim.errors import CalibrationError, UsageError
from specsim.jsonable import picked
from specsim.methods.registry import is_plain
from specsim.options import apart, groups
from specsim.options.declare import declared, repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.prediction import PredictOptions, RunOptions, TransferOptions
from specsim.options.values import parse_concurrency, paths_of, shown

LOAD = ("concurrency", "input_len", "output_len")
CHANGES = ("gpu", "link", "tp", "engine", "k", *LOAD)
THEIRS = {name for group in (groups.AcceptanceOptions, groups.DraftShareOptions,
                             groups.LengthsOptions, groups.CachedShareOptions, groups.LoadOptions,
                             groups.LengthRangeOptions, apart.ApartOptions, RunOptions)
          for name in declared(group)}
FAR = math.log(16)  # of loads, beyond which public pairs were predicted no better with one
LIKE = 0.05  # of logarithms, up to which two runs are of one load


def run(options: TransferOptions) -> Prediction:
    """The prediction of the other system, with `from_measured`: what was carried over to it."""
    if options.from_measured is None:
        raise UsageError("--to says what differs from a measurement; give --from-measured FILE")
    changes = changes_of(options.to)
    _check_said(options)
    warnings: list[str] = []
    files = paths_of(options.from_measured)
    runs = read_runs(files, warnings)
    if options.model is None and options.command is None:
        options = options.but(model=model_of_files(runs))
    there = deployment_of(options)
    sizes = {run.server_args.tp for run in runs} - {None}
    if len(sizes) == 1 and "tp" not in options.typed and there.tp == 1:
        there = there.but(tp=sizes.pop())
    plain = runs if is_plain(there.method) else []
    points = measured_points(ServerSeen(there, [] if plain else runs, plain, [], warnings))
    ours = {name: value for name, value in changes.items() if name not in LOAD}
    if "gpu" in ours:
        ours = {"link": None, **ours}
    here = there.but(**ours)
    _check_drafts(points, changes, files[0].name)
    targets = _targets(points, here, changes, warnings)
    warnings += _far(points, targets, changes)
    told = {
        "files": [str(said_of(path)[0]) for path in files],
        **points[-1].system.summary("model", "gpu", "tp", "attention_dp", "engine",
                                    "engine_version", "method", "k"),
        "changes": changes, "figures": list(carried_figures(points, targets)),
    }
    found = predicted(_asked(here, targets))
    return found.with_measured(told, warnings, repeat(options))


def _check_drafts(points: Sequence[FewShotPoint], changes: Mapping[str, Any], file: str) -> None:
    """k is changed only of what was measured with speculation, and not to none. UsageError."""
    k = changes.get("k")
    if k is not None and (not k or not any(point.speculative for point in points)):
        was, other = ("with", "a plain") if not k else ("without", "a speculative")
        raise UsageError(
            f"--to says k={k}, but {file} was measured {was} speculation; leave k out, or give "
            f"{other} result"
        )


def _far(
    points: Sequence[FewShotPoint], targets: Sequence[FewShotPoint], changes: Mapping[str, Any]
) -> list[str]:
    """What to say of a load far from all that were measured. UsageError where nothing differs."""
    if not any(distances(_setting(a), _setting(b)) for a, b in zip(points, targets, strict=True)):
        raise UsageError(
            f"--to says {', '.join(f'{name}={value}' for name, value in changes.items())}, as it "
            f"was measured; change one of {', '.join(CHANGES)}"
        )
    if all(min(distances(_setting(p), _setting(t)).get("concurrency", 0.0) for p in points) <= FAR
           for t in targets):
        return []
    return ["the load asked about is more than 16 times apart from any that was measured: so far "
            "one measurement did not help on public pairs"]


def changes_of(text: str | None) -> dict[str, Any]:
    """--to as options by name. UsageError for what it cannot change, or no value of it."""
    if text is None:
        raise UsageError("--from-measured needs --to: what is to be another, such as gpu=b200,tp=4")
    known = {spelling.lstrip("-").replace("-", "_"): name for name in CHANGES
             for spelling in (name, *declared(PredictOptions)[name].spellings)}
    found = {}
    for word in text.split(","):
        name, sign, value = word.partition("=")
        key = known.get(name.strip().lstrip("-").replace("-", "_"))
        if key is None or not sign:
            raise UsageError(
                f"--to has {shown(word)}; write NAME=VALUE,... with {', '.join(CHANGES)}: only of "
                "these do public pairs of measurements tell what is carried over; all else is as "
                "it was measured"
            )
        found[key] = parse_value(key, value, "predict", "--to")
    clients: Any = found.get("concurrency")
    parse_concurrency(clients)  # its range; all others are checked where they are used
    return found


def _check_said(options: TransferOptions) -> None:
    """What the files say, options do not."""
    for name, item in declared(TransferOptions).items():
        if name in options.typed and name in THEIRS:
            raise UsageError(
                f"{item.flag} is given, but load and acceptance are those of the file; write "
                "--to concurrency=64, input_len=8000 or output_len=500 for another load, "
                "FILE@acceptance_length=2.4 or FILE@cached_share=0.5 for what the file leaves out"
            )


def measured_points(seen: ServerSeen) -> list[FewShotPoint]:
    """The files' figures, each load with the system as it was served. CalibrationError for a
    speculative run without its acceptance."""
    points = []
    for point, run in zip(seen.points(), (*seen.plain, *seen.spec), strict=True):
        if point.acceptance_group:
            raise CalibrationError(
                f"{run.source} was measured with speculation and holds no acceptance; state it as "
                "FILE@acceptance_length=2.4, or give its /metrics dump beside it"
            )
        rate = {"output_tok_s": run.output_tok_s} if run.output_tok_s else {}
        points.append(replace(point, measured={**point.measured, **rate}))
    plain = [point for point in points if not point.speculative]
    return [*plain, *(_with_gain(p, plain) for p in points if p.speculative)]


def _with_gain(point: FewShotPoint, plain: Sequence[FewShotPoint]) -> FewShotPoint:
    """With the speedup, where the same load was measured without speculation too."""
    rate = point.measured.get("output_tok_s")
    for base in plain:
        far = distances(replace(_setting(point), system=base.system), _setting(base))
        beside = base.measured.get("output_tok_s")
        if rate and beside and all(value <= LIKE for value in far.values()):
            return replace(point, measured={**point.measured, "speedup": rate / beside})
    return point


def _setting(point: FewShotPoint) -> Setting:
    return Setting(point.system, point.workload, point.concurrency)


def _targets(
    points: Sequence[FewShotPoint], here: DeploymentOptions, changes: Mapping[str, Any],
    warnings: list[str],
) -> list[FewShotPoint]:
    """Every point on the other system, with the acceptance that was measured."""
    systems = {False: build_request(here.plain()).system}
    if any(point.speculative for point in points):
        setup = points[-1].system.setup
        asked = here.but(method=setup.method, k=here.k or setup.k, acceptance_length=1.5)
        systems[True] = build_request(asked).system
    lengths = {name: changes[name] for name in LOAD[1:] if name in changes}
    out = []
    for point in points:
        system, accepted = systems[point.speculative], point.system.acceptance
        if accepted is not None:
            accepted = accepted.at(system.setup.k)
            if accepted.extrapolated:
                warnings.append(f"acceptance of {point.name}: {accepted.source}")
            system = with_acceptance(system, accepted)
        out.append(replace(
            point, system=system, workload=replace(point.workload, **lengths),
            concurrency=float(changes.get("concurrency", point.concurrency)),
        ))
    return out


def carried_figures(
    points: Sequence[FewShotPoint], targets: Sequence[FewShotPoint]
) -> Iterator[dict[str, object]]:
    """Every metric at every load of the other system, from all points of its side: measured and
    predicted_there at the load that tells most, `nearest`; predicted here; value and interval_90
    with the measurements; share of their misses (logarithms) carried over; value / predicted - 1.
    """
    there = [predict_point(point, point.system) for point in points]
    done = set()
    for target in targets:
        key = (target.speculative, target.workload, target.concurrency)
        here = {} if key in done else predict_point(target, target.system)
        done.add(key)
        for metric in METRICS:
            mine = [i for i, point in enumerate(points)
                    if point.speculative == target.speculative and metric in point.measured]
            if not mine or not here.get(metric, 0.0) > 0:  # one output token has no time per token
                continue
            found = carried(metric, _setting(target), here[metric], [
                Seen(_setting(points[i]), points[i].measured[metric], there[i][metric])
                for i in mine])
            if found is None:
                raise UsageError("--fidelity datasheet gives bounds, which no measurement moves; "
                                 "leave it out")
            i = mine[found.nearest]
            yield {
                "side": SPEC if target.speculative else PLAIN, "metric": metric,
                "concurrency": target.concurrency,
                **picked(target.workload, "input_len output_len"), "nearest": points[i].name,
                "measured": points[i].measured[metric], "predicted_there": there[i][metric],
                "predicted": here[metric], **picked(found, "value interval_90 share"),
                "moved": found.value / here[metric] - 1,
            }


def _asked(here: DeploymentOptions, targets: Sequence[FewShotPoint]) -> PredictOptions:
    """What `specsim predict` would be asked of the other system: the last target's, which
    speculates where any does."""
    last = targets[-1]
    loads = sorted({max(1, round(target.concurrency)) for target in targets})
    given = {name: getattr(here, name) for name in here.model_fields_set}
    drafting: dict[str, object] = {"method": "none"}
    if last.system.acceptance is not None:
        setup = last.system.setup
        drafting = {"method": setup.method, "k": setup.k, "draft_share": setup.draft_share,
                    "acceptance": list(last.system.acceptance.unconditional)}
    return PredictOptions.of_values({
        **given, **drafting, "concurrency": loads, "input_len": last.workload.input_len,
        "output_len": last.workload.output_len, "cached_share": last.workload.cached_share,
    })

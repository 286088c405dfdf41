"""`specsim validate run`: measure this machine, calibrate, predict, then serve and compare.

The engine gets the loads of `accuracy.run_serving`: equal requests of random tokens with forced
acceptance. Each run is timed as a client in the same process sees it.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.commands import decoder_setup as d
from specsim.commands.bind import INTERRUPTED, Ended, command
from specsim.commands.output import end_if_over, text_of
from specsim.errors import UsageError
from specsim.files import check_writable, write_whole
from specsim.options.local import ValidateRunCommand
from specsim.report.tables import to_json
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.accuracy.compare import AccuracyReport
    from specsim.accuracy.run_plan import RunPlan, WorkFolder
    from specsim.accuracy.run_serving import ServingLoad
    from specsim.calibrate.records_fit import Outcome
    from specsim.decoder.config import ModelConfig
    from specsim.decoder.engine import Engine
    from specsim.decoder.slots import RequestResult
    from specsim.decoder.transformer import Transformer
    from specsim.measure.run import MeasurePlan
    from specsim.measure.session import MeasureJob


def make_engine(target: "Transformer", load: "ServingLoad", seed: int) -> "Engine":
    """An engine for loads like this one, warmed up."""
    import random

    from specsim.calibrate.price import HEAD_VOCAB
    from specsim.decoder.drafters.eagle import EagleWeights
    from specsim.decoder.engine import Engine
    from specsim.measure.serving import options_for
    from specsim.speculation.acceptance import Acceptance

    forced = Acceptance.from_rate(load.alpha, load.k) if load.k else None
    head = None
    if load.method == "eagle":
        head = EagleWeights.random(target, seed, min(HEAD_VOCAB, target.config.vocab_size))
    engine = Engine(target, options_for(load, seed), draft=head, acceptance=forced)
    rng = random.Random(seed)
    engine.run([(0.0, _request(engine, load, i, rng)) for i in range(2)])
    return engine


def _request(engine: "Engine", load: "ServingLoad", number: int, rng: Any) -> Any:
    from specsim.measure.serving import any_request

    return any_request(load, engine.target.config.vocab_size, number, rng)


def serve(engine: "Engine", load: "ServingLoad", seed: int) -> dict[str, object]:
    """Serve a load; its figures, and one value per request. KeyboardInterrupt leaves the engine
    unusable for further loads."""
    import random

    from specsim.accuracy.run_serving import measured_figures
    from specsim.measure.serving import series_of

    rng = random.Random(f"prompts {seed}")
    rows_before = engine.stats.num_row_steps
    cpu, begun = time.process_time(), time.perf_counter()
    if load.arrivals:
        done = engine.run([
            (at, _request(engine, load, i, rng)) for i, at in enumerate(load.arrivals)
        ])
    else:
        done = _closed(engine, load, rng)
    wall = time.perf_counter() - begun
    busy = (time.process_time() - cpu) / wall
    rows = engine.stats.num_row_steps - rows_before
    tokens_per_step = sum(len(r.token_ids) - 1 for r in done) / max(1, rows)
    series = series_of(done)
    return {
        "figures": measured_figures(series, load.output_len, tokens_per_step),
        "cpu_over_wall": round(busy, 3), "wall_s": wall, "requests": len(done), "series": series,
    }


def _closed(engine: "Engine", load: "ServingLoad", rng: Any) -> "list[RequestResult]":
    """Clients that send the next request when the last one is answered."""
    waiting = [_request(engine, load, i, rng) for i in range(load.requests)]
    waiting.reverse()
    done: list[RequestResult] = []
    open_now = 0
    while waiting or open_now:
        while waiting and open_now < load.concurrency:
            engine.add(waiting.pop())
            open_now += 1
        for output in engine.step():
            if output.finished:
                done.append(engine.finished.pop(output.request_id))
                open_now -= 1
    return sorted(done, key=lambda r: r.arrival_s)


Tell = Callable[[str], None]
SHORT_SCALE = 10.0  # of the bars, for --short: tiny models, seconds of serving


@command(
    ValidateRunCommand,
    "specsim validate run --budget 10m",
)
def run(options: ValidateRunCommand) -> None:
    """Measure this machine, fit on one part, predict the rest. Simulates serving first, then serves
    and compares. On the CPU; a GPU is validated with `measure`, `calibrate` and `validate records`.
    Ctrl-C keeps what is done; the same command goes on. Exit code 1 if a metric's median error is
    above --max-error, or with --short above its wide bar."""
    from specsim.accuracy.run_plan import WorkFolder, full_plan, short_plan, verdicts
    from specsim.options.values import parse_duration
    from specsim.report.doc import Doc
    from specsim.report.live import validated_section
    from specsim.report.progress import words_line

    if options.short and (options.model or options.records):
        raise UsageError("--short brings its own tiny models; leave out --model and --records")
    check_writable(options.out, "--out", [options.records])
    d.need({"torch": "torch", "safetensors": "safetensors"}, "validate run")
    used = d.prepare_torch(options.threads)
    budget_s = parse_duration(options.budget, "--budget")
    plan = short_plan(options.seed) if options.short else full_plan(
        budget_s, tuple(options.model or _models(options.grid)), options.seed, options.grid,
        options.repeats,
    )
    place = WorkFolder(options.work)
    place.open(plan)
    interrupted = False
    with words_line(sys.stderr.isatty(), "starting") as line:
        tell = line or (lambda text: None)
        measuring = _measure_plan(plan, used)
        if options.records is not None:
            _check_same_machine(options.records, measuring)
        interrupted = _measure(plan, measuring, place, options.records, tell)
        outcome = None if interrupted else _calibrate(place, options.records, tell)
        if outcome is not None:
            interrupted = _serve_all(plan, measuring, place, outcome, tell)
        found = _comparison(plan, place, outcome, used)
    if found is None:
        sys.stderr.write("specsim: interrupted; run the same command again to go on\n")
        raise Ended(INTERRUPTED)
    bars = verdicts(found, SHORT_SCALE if options.short else 1.0)
    result = found.to_dict() | {"bars": bars}
    text = to_json(result) if options.json_out else (
        text_of(validated_section(Doc(result), rows_out=True), options))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    if options.out is not None:
        found.write(options.out)
    if interrupted:
        sys.stderr.write("specsim: interrupted; run the same command again to go on\n")
        raise Ended(INTERRUPTED)
    judged = sum(item["count"] for item in found.summary().values())
    if options.max_error is not None:
        end_if_over(found.over(options.max_error), "above the limit", judged)
    elif options.short:
        missed = [name for name, item in bars.items() if not item["inside"]]
        end_if_over(missed, "above the limit", judged)


def _models(grid: str) -> tuple[str, ...]:
    from specsim.measure.models import default_models

    return default_models("cpu", grid)


def _measure_plan(plan: "RunPlan", threads: int) -> "MeasurePlan":
    """What `specsim measure` would do: the same grid, without its serving part."""
    from specsim.measure.models import MeasuredModel, check_together, find_model
    from specsim.measure.run import MeasurePlan

    if plan.short:
        models = tuple(MeasuredModel(name, config) for name, config in _tiny().items())
    else:
        models = tuple(find_model(name) for name in plan.models)
        check_together(models)
    return MeasurePlan("cpu", plan.grid, models, None, "bf16", plan.seed, threads)


def _check_same_machine(records: Path, measuring: "MeasurePlan") -> None:
    """Refuse records that say nothing about what is served here."""
    from specsim.calibrate.records import read_records

    found, here = read_records(records).headers[-1], measuring.header()
    for what, theirs, ours in (
        ("on", found.device.get("name"), here.device.get("name")),
        ("with threads", found.threads, here.threads),
    ):
        if theirs != ours:
            raise UsageError(
                f"--records {records.name} was measured {what} {theirs}, this run is {what} {ours};"
                " measure here, or leave out --records"
            )
    if measuring.models[0].name not in found.models:
        raise UsageError(
            f"--records {records.name} holds no model {measuring.models[0].name}, which is to be "
            f"served; it has {', '.join(map(str, found.models))}"
        )


def _tiny() -> "dict[str, ModelConfig]":
    """Two small random models of one vocabulary."""
    from dataclasses import replace

    from specsim.decoder.config import ModelConfig

    small = ModelConfig(
        family="llama", hidden_size=192, num_layers=6, num_heads=3, num_kv_heads=3, head_dim=64,
        intermediate_size=512, vocab_size=4096, tie_word_embeddings=True, max_position=1024,
    )
    wide = replace(small, hidden_size=512, num_layers=8, num_heads=8, num_kv_heads=8,
                   intermediate_size=1536)
    return {"tiny": small, "tiny-wide": wide}


def _jobs(plan: "RunPlan", measuring: "MeasurePlan") -> "list[MeasureJob]":
    """The grid's jobs but for serving; a few of them for a short run."""
    from dataclasses import replace

    from specsim.measure.grid import grid_for, jobs_for
    from specsim.measure.preload import StepCase

    grid = grid_for("cpu", plan.grid)
    if plan.short:
        mib = 1 << 20
        grid = replace(
            grid, stream_bytes=(64 * mib, 256 * mib), cube=512, gemm_rows=(1, 4, 16, 64),
            attention=tuple((b, q, 64) for b in (1, 4) for q in (1, 4)),
            sampling=((1, 0), (4, 3)), prompts=((16, 16), (128, 128)), draft_steps=(),
            steps=tuple(StepCase(m, k, b, 32) for m, k in (("none", 0), ("ngram", 3), ("eagle", 3))
                        for b in (1, 2, 4)),
        )
    found = jobs_for(grid, measuring.models, measuring.experts, "bf16", "cpu")
    return [job for job in found if job.part != "H"]


def _measure(
    plan: "RunPlan", measuring: "MeasurePlan", place: "WorkFolder", records: Path | None, tell: Tell
) -> bool:
    """Measure what the work folder lacks; whether it was interrupted."""
    from specsim.measure.run import measure

    if records is not None or place.calibration.exists():
        return False
    tell("measuring kernels and steps")
    summary = measure(
        measuring, place.records, plan.measure_s, jobs=_jobs(plan, measuring),
        on_progress=lambda p: tell(f"measuring: {p.what[:50]} ({p.done}/{p.total})"),
    )
    return summary.interrupted


def _calibrate(place: "WorkFolder", records: Path | None, tell: Tell) -> "Outcome":
    """Fit the profile and write it with its engine and report."""
    from specsim.api.calibrate import DECODER, base_profile
    from specsim.calibrate.records_fit import calibrate, read_all
    from specsim.calibrate.write import report, write_outcome
    from specsim.latency.engine import find_engine

    tell("calibrating")
    data = read_all([records or place.records])
    base = base_profile("", data.headers[-1], None)
    outcome = calibrate(data, base, find_engine(DECODER), place.profile.stem, leave_out=False)
    if not place.calibration.exists():
        write_outcome(outcome, place.profile)
        write_whole(place.calibration, to_json(report(outcome)) + "\n")
    return outcome


def _serve_all(
    plan: "RunPlan", measuring: "MeasurePlan", place: "WorkFolder", outcome: "Outcome", tell: Tell
) -> bool:
    """Predict and serve every load that is not done yet; whether it was interrupted."""
    import torch

    from specsim.accuracy.run_plan import load_for, load_key
    from specsim.accuracy.run_serving import predict_serving, seeds_for, serving_system
    from specsim.api.calibrate import DECODER
    from specsim.calibrate.price import Models
    from specsim.commands.validate_run import make_engine, serve
    from specsim.latency.engine import find_engine
    from specsim.measure.environment import now
    from specsim.measure.session import Session
    from specsim.measure.timer import RepeatLimits

    predicted, measured = place.done()
    target = measuring.models[0]
    models, header = Models(), outcome.data.headers[-1]
    spec = models.spec(header, target.name, "bf16")
    engine_profile = outcome.engine or find_engine(DECODER)
    session = Session(torch.device("cpu"), "bf16", measuring.models, RepeatLimits(), plan.seed)
    try:
        for method in plan.methods:
            full = load_for(plan, method, clients=plan.max_num_seqs)
            head = models.head(header, target.name, spec) if method[0] == "eagle" else None
            system = serving_system(spec, outcome.profile, engine_profile, full, drafter=head)
            speed = predict_serving(system, full, seeds_for(full))["output_tok_s"]
            capacity = speed / plan.output_len
            engine = None
            loads: list[tuple[str, dict[str, Any]]] = [
                (f"{c} clients", {"clients": c}) for c in plan.closed
            ]
            loads += [(f"Poisson at {s:.0%}", {"share": s}) for s in plan.shares]
            for repeat in range(plan.repeats):
                for how, settings in loads:
                    key = load_key(method, how, repeat)
                    if key in measured and key in predicted:
                        continue
                    load = load_for(plan, method, capacity_req_s=capacity, repeat=repeat,
                                    **settings)
                    if key not in predicted:
                        tell(f"predicting: {key}")
                        line = {"what": "predicted", "load": key, "date": now(),
                                "capacity_req_s": capacity,
                                "figures": predict_serving(
                                    system, load, seeds_for(load, repeat))}
                        place.add(line)
                        predicted[key] = line
                    tell(f"serving: {key}")
                    rate = session.probe()
                    session.release_probe()
                    with torch.inference_mode():
                        if engine is None:
                            engine = make_engine(session.model(target.name), full, plan.seed)
                        served = serve(engine, load, repeat)
                    line = {"what": "measured", "load": key, "date": now(),
                            "stream_bytes_per_s": rate, **served}
                    place.add(line)
                    measured[key] = line
    except KeyboardInterrupt:
        return True
    return False


def _comparison(
    plan: "RunPlan", place: "WorkFolder", outcome: "Outcome | None", threads: int
) -> "AccuracyReport | None":
    """What there is so far; None before anything could be predicted."""
    from specsim.accuracy.compare import Row
    from specsim.accuracy.records import name_of
    from specsim.accuracy.run_plan import run_comparison, serving_rows
    from specsim.measure.environment import git_sha, now

    if outcome is None:
        return None
    steps = [
        Row(name_of(sample.record), "step_s", sample.seconds, predicted,
            spread=sample.record.timing.spread / 2.563)
        for sample, predicted in outcome.steps
    ]
    predicted, measured = place.done()
    run = outcome.data.headers[-1]
    provenance = {
        "command": "specsim validate run" + (" --short" if plan.short else ""),
        "plan": plan.to_dict(), "date": now(), "git_sha": git_sha(), "threads": threads,
        "device": dict(run.device), "software": dict(run.software),
        "measured": sorted({h.date for h in outcome.data.headers}),
        "predicted_before_serving": {k: v["date"] for k, v in predicted.items()},
        "served": {
            k: {"date": v["date"], "cpu_over_wall": v["cpu_over_wall"],
                "stream_bytes_per_s": v["stream_bytes_per_s"]} for k, v in measured.items()
        },
    }
    warnings = [f"{counted(count, 'point')} left out: {reason}"
                for reason, count in outcome.left_out.items()]
    return run_comparison(steps, serving_rows(predicted, measured), provenance, warnings)

"""`specsim.validate_live`: drive a server, simulate the same requests, compare."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specsim.accuracy.compare import AccuracyReport
from specsim.accuracy.live import Settings, judge
from specsim.accuracy.live_replay import MeasuredLoad
from specsim.accuracy.split import check_pinned
from specsim.api.functions import named_function
from specsim.api.judged_server import JudgedServer, check_fitted, drafts, names_of
from specsim.api.validation import Validation
from specsim.api.verdicts import served_names
from specsim.client.http import Target, connect, run_to_end
from specsim.client.load import LiveLoad, LoadProgress, Report, drive
from specsim.client.metrics import Scraper
from specsim.client.prompts import Prompt, builtin_prompts, random_prompts, read_prompts, take
from specsim.client.result import LiveRun
from specsim.client.stream import Sampling
from specsim.errors import FormatError, ModelConfigError, ServerError, UsageError
from specsim.files import check_writable, write_whole
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.load_model import load_model
from specsim.formats.traces import TraceOptions, detect_format, read_trace
from specsim.jsonable import json_text
from specsim.methods.registry import is_plain
from specsim.model.spec import ModelSpec
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import MAX_LIVE_REQUESTS, ValidateLiveOptions
from specsim.options.values import parse_concurrency, parse_numbers, parse_rates, shown
from specsim.planning.pinned import pinned_command
from specsim.report.progress import live_bar
from specsim.sim.arrivals import bench_serve_times

FEWEST, PER_CLIENT = 16, 4


def run(
    options: ValidateLiveOptions, save_bench: Path | None = None, bar: bool = False
) -> Validation:
    """Drive the server at `url`, simulate the same requests with the acceptance measured there,
    and put the measured figures beside the predicted ones.

    Every option is checked before anything is sent; a server that fails after some points ends the
    session with those."""
    asked = options
    target = Target(
        options.url, options.api_key_env, stall_s=options.stall_timeout,
        request_s=options.request_timeout,
    )
    _check(options)
    try:
        served, before = run_to_end(_look(target))
    except ServerError as error:
        if options.pinned is None or options.model is None:
            raise
        start = _told(_server(options, str(options.model)), options)
        raise ServerError(f"{error}; {start}") from None
    notes: list[str] = []
    drafted = before.server_args.num_speculative_tokens if before is not None else None
    name = options.served_model_name or served[0]
    model = _model(None if options.model is None else str(options.model), name)
    named = options.method is not None and not is_plain(options.method)
    if drafted and named and options.k is None:
        options = options.but(k=drafted)
    server = _server(options, model)
    server.check_drafts(drafted, target.base)
    start, accepted = "", list[dict[str, object]]()
    if options.pinned is not None:
        start = _told(server, options.but(model=model))
        if before is not None and before.acceptance is not None:
            check_pinned(before, options.pinned, f"{target.base} so far", start)
    loads = _loads(options, load_model(model))
    fitted = names_of(options.fitted)
    check_fitted(fitted, [load.name for load in loads])
    sampling = Sampling(
        chat=options.chat, ignore_eos=options.ignore_eos,
        temperature=options.temperature if options.temperature >= 0 else None,
    )
    _check_folder(save_bench)
    runs: list[LiveRun] = []
    partial, stopped = False, ""
    order = [(r, n) for r in range(options.repeats) for n in range(len(loads))]
    with _progress(bar, loads, options.repeats) as report:
        for round_, number in order:
            try:
                found = drive(
                    target, loads[number], sampling, model=name, report=report(round_, number),
                    sample_every_s=options.sample_every,
                )
            except ServerError as error:
                if not runs:
                    raise
                stopped = f"{loads[number].name}: {error}"
                break
            except KeyboardInterrupt:  # between two points, or in the warm-up of one
                if not runs:
                    raise
                partial = True
                break
            partial = found.partial
            if found.finished and options.pinned is not None:
                seen = check_pinned(
                    found.bench(), options.pinned, f"{target.base} at {found.name}", start)
                accepted.append({"name": found.name, "acceptance_length": seen})
            if found.finished:
                runs.append(found)
                lost = _save(save_bench, found, round_, server)
                notes += [lost] if lost else []
            if partial:
                break
    if not runs:
        raise KeyboardInterrupt
    if server.base.speculative and not any(drafts(r.bench()) for r in runs):
        notes.append("the server shows no drafts at all: simulated as plain decoding")
    if any(point["acceptance_length"] is None for point in accepted):
        notes.append("too few drafts were counted to see that the acceptance is pinned: send more")
    compared = _compare(options, runs, server, fitted, notes)
    if options.pinned is not None:
        compared = replace(compared, pinned={
            "length": options.pinned, "points": accepted, "start": start})
    return Validation(compared, repeat(asked), partial=partial, stopped=stopped)


validate_live = named_function(ValidateLiveOptions, run)


def _check(options: ValidateLiveOptions) -> None:
    sources = [n for n in ("prompts", "trace", "random") if getattr(options, n) is not None]
    if len(sources) > 1:
        raise UsageError(f"--{sources[0]} and --{sources[1]} are both given; choose one")
    paced = [n for n in ("concurrency", "rate") if getattr(options, n) is not None]
    if options.trace is not None:
        if paced:
            raise UsageError(f"--trace has its own send times; leave out --{paced[0]}")
    elif not paced:
        raise UsageError("no load is given; name --concurrency 1,2,4 or --rate 0.5,1")
    elif len(paced) == 2:
        rule = "give one concurrency with --rate (the most requests open at once)"
        if len(parse_concurrency(options.concurrency)) > 1:
            raise UsageError(f"--rate and several --concurrency are given; {rule}")
    if options.chat and (options.trace is not None or options.random is not None):
        raise UsageError("--chat sends texts, not token ids; leave it out or give --prompts")


async def _look(target: Target) -> tuple[list[str], BenchRun | None]:
    """(models, counters so far) of the server, before anything is sent."""
    async with connect(target) as connection:
        served = await connection.models()
        scraper = Scraper(connection, 0.0)
        await scraper.before()
        return served, None if scraper.first is None else run_of(scraper.first)


def _server(options: ValidateLiveOptions, model: str) -> JudgedServer:
    server = JudgedServer.of(DeploymentOptions.of(options).but(model=model))
    return server if options.pinned is None else server.pinned(options.pinned)


def _told(server: JudgedServer, options: ValidateLiveOptions) -> str:
    """How the server is started with --pinned."""
    assert options.pinned is not None
    try:
        names = served_names(DeploymentOptions.of(options))
        return f"start it so, {pinned_command(server.base, options.pinned, names)}"
    except UsageError as error:
        return f"how to pin it is not known here: {error}"


def _model(given: str | None, served: str) -> str:
    """The model that is simulated: as given, or by the server's name for it."""
    if given is not None:
        return given
    name = served.rsplit("/", 1)[-1]
    try:
        load_model(name)
    except ModelConfigError:
        raise UsageError(
            f"the server calls its model {shown(served)}, which is not in the catalogue; give "
            "MODEL: a name from `specsim models`, a config.json or its folder"
        ) from None
    return name


def _prompts(options: ValidateLiveOptions, spec: ModelSpec, count: int) -> list[Prompt]:
    if options.prompts is not None:
        return read_prompts(Path(options.prompts), options.output_len)
    if options.random is not None:
        lengths = [int(x) for x in parse_numbers(options.random, "--random")]
        if len(lengths) != 2 or min(lengths) < 1:
            raise UsageError(
                f"--random is {shown(options.random)}; it must be PROMPT,OUTPUT such as 512,128"
            )
        return random_prompts([(lengths[0], lengths[1])] * count, spec.vocab, options.seed)
    return builtin_prompts(options.output_len)


def _loads(options: ValidateLiveOptions, spec: ModelSpec) -> list[LiveLoad]:
    """One load per point. Points take prompts one after the other, so that a prefix cache does
    not know them from the point before as long as the file has enough."""
    warmups = options.warmups
    if options.trace is not None:
        return [_trace_load(Path(options.trace), options.requests, spec, options.seed, warmups)]
    limit = 0
    if options.rate is not None:
        if options.concurrency is not None:
            limit = parse_concurrency(options.concurrency)[0]
        paces: list[tuple[float, int]] = [(rate, limit) for rate in parse_rates(options.rate)]
    else:
        paces = [(math.inf, c) for c in parse_concurrency(options.concurrency)]
    counts = [
        options.requests or max(FEWEST, PER_CLIENT * (c if math.isinf(rate) else 4))
        for rate, c in paces
    ]
    prompts = _prompts(options, spec, sum(counts))
    loads, used = [], 0
    for (rate, clients), count in zip(paces, counts, strict=True):
        chosen = tuple(take(prompts, count, used))
        used += count
        times: tuple[float, ...] = ()
        if math.isfinite(rate):
            drawn = bench_serve_times(count, rate, burstiness=options.burstiness, seed=options.seed)
            times = tuple(float(t) for t in drawn)
        name = f"c={clients}" if not times else f"rate={rate:g}"
        if times and clients:
            name += f" c<={clients}"
        loads.append(LiveLoad(chosen, times, clients, rate, options.burstiness, warmups, name))
    return loads


def _trace_load(
    path: Path, limit: int | None, spec: ModelSpec, seed: int, warmups: int
) -> LiveLoad:
    kind = detect_format(path)
    found = list(read_trace(path, kind, TraceOptions(limit=limit or MAX_LIVE_REQUESTS)))
    if not found:
        raise FormatError(f"{path} holds no request")
    lengths = [(r.prompt_tokens, max(1, r.output_tokens)) for r in found]
    prompts = tuple(random_prompts(lengths, spec.vocab, seed))
    times = tuple(r.arrival_s - found[0].arrival_s for r in found)
    rate = len(times) / times[-1] if times[-1] > 0 else 1.0
    return LiveLoad(prompts, times, 0, rate, 1.0, warmups, "trace")


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder} for --save-bench: {error.strerror}") from None
    check_writable(folder / "point.json", "--save-bench")


def _save(folder: Path | None, found: LiveRun, repeat: int, server: JudgedServer) -> str:
    """One point as `vllm bench serve` would have saved it; what went wrong, in words: a full disk
    is no reason to lose the run."""
    if folder is None:
        return ""
    setup = server.base.setup
    extra = {"repeat": str(repeat)}
    if server.base.speculative:
        extra |= {"method": setup.method, "num_speculative_tokens": str(setup.k)}
    name = "".join(ch if ch.isalnum() or ch in "=.-" else "_" for ch in found.name)
    path = folder / f"{name}.{repeat}.json"
    try:
        write_whole(path, json_text(found.vllm_bench(extra)) + "\n")
    except FormatError as error:
        return str(error)
    return ""


def point_of(found: LiveRun, prompts: tuple[Prompt, ...]) -> MeasuredLoad:
    """A run with what only the client knows: which prompts were equal."""
    done = [r for r in found.finished if r.record.output_tokens]
    done.sort(key=lambda r: r.record.arrival_s)
    keys: dict[Any, int] = {}
    contents = tuple(keys.setdefault(prompts[r.record.request_id].content, len(keys)) for r in done)
    return MeasuredLoad(found.name, found.bench(), contents)


def _compare(
    options: ValidateLiveOptions, runs: list[LiveRun], server: JudgedServer,
    fitted: tuple[str, ...], notes: list[str],
) -> AccuracyReport:
    by_name = {load.name: load.prompts for load in _loads(options, server.base.spec)}
    points = [point_of(found, by_name[found.name]) for found in runs]
    base = server.base
    title = (
        f"{runs[0].model} at {runs[0].url}"
        f"{' (' + runs[0].version + ')' if runs[0].version else ''} beside the simulation of the "
        f"same requests on {base.profile.title or base.profile.name}, "
        f"{base.engine.described}"
    )
    given = {key: value for key, value in options.values().items() if value is not None}
    provenance = {
        "options": {key: _plain(value) for key, value in given.items()},
        "runs": [found.to_dict() for found in runs],
    }
    settings = Settings(
        server.assumed, options.prefix_caching, fitted, options.explain, server.expected)
    for found in runs:
        for reason, count in found.failures().items():
            notes.append(f"{found.name}: {count} x {reason}")
    if options.random is not None or options.trace is not None:
        notes.append("prompts were random tokens: what is accepted on them says nothing about text")
    return judge(
        "live", title, points, server.system, settings, provenance, (*server.warnings, *notes)
    )


def _plain(value: object) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    return value


@contextmanager
def _progress(wanted: bool, loads: list[LiveLoad], repeats: int) -> Iterator[Any]:
    """report(repeat, number): the listener of one run; a bar on stderr if wanted."""
    total = repeats * sum(len(load.prompts) for load in loads)
    columns = ("{task.description}", "bar", "count", "time")
    with live_bar(wanted, *columns, begin="measuring") as update:

        def listener(repeat: int, number: int) -> Report | None:
            if update is None:
                return None
            before = repeat * sum(len(x.prompts) for x in loads)
            before += sum(len(x.prompts) for x in loads[:number])

            def told(now: LoadProgress) -> None:
                words = f"{loads[number].name}, {now.running} open"
                if repeats > 1:
                    words += f", repeat {repeat + 1} of {repeats}"
                update(description=words, completed=before + now.ended, total=total)

            return told

        yield listener



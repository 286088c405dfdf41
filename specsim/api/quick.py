"""`specsim quick`: a live server looked at, driven for a minute with few clients, and judged.

An idle server is driven with 1, then 4, then 8 clients; one that others use with a single client;
one where requests wait already is only watched, and so is any with `--watch-only`. The first
request that fails ends the driving. What a server does not tell is assumed and said; for the GPU,
whether another one would change the answer is computed.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specsim.api.command_line import engine_of_both, same_engine
from specsim.api.diagnose import live_evidence
from specsim.api.functions import named_function
from specsim.api.quick_judge import assumptions, decided, judged_at, smallest_split, to_type
from specsim.api.results import Documented
from specsim.client.load import LiveLoad, drive
from specsim.client.look import OWN, ServerLook, look
from specsim.client.prompts import builtin_prompts, take
from specsim.client.stream import Sampling
from specsim.diagnose.evidence import FEW_DRAFTS, Evidence, evidence_of
from specsim.diagnose.scrape import metrics_url
from specsim.errors import ServerError, SpecSimError, UsageError
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import ServerCommand
from specsim.hardware.local import local_gpu
from specsim.hardware.store import find_profile
from specsim.jsonable import picked
from specsim.latency.engine import find_engine, list_engines
from specsim.model.catalogue import has_model
from specsim.options.declare import declared, repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import QuickOptions
from specsim.options.values import profile_folder

CLIENTS = (1, 4, 8)
OUTPUT_TOKENS = 128
MOST_REQUESTS = 1000  # of one load; a server that answers more in its time is as well known
LOCAL = ("127.0.0.1", "localhost", "::1")
DRIVEN, GENTLY, WATCHED = "driven", "gently", "watched"


@dataclass(frozen=True, repr=False)
class QuickLook(Documented):
    """The answer: `document`, as `specsim quick --json` prints it. partial: ended by Ctrl-C;
    stopped: why the driving ended early, '' where it did not."""

    BLOCKS = "quick.quick_section"

    partial: bool = False
    stopped: str = ""

    @property
    def verdict(self) -> dict[str, Any]:
        return dict(self.document["verdict"])

    @property
    def loads(self) -> list[dict[str, Any]]:
        return list(self.document["loads"])


@dataclass
class _Measured:
    loads: list[tuple[dict[str, int], Evidence]] = field(default_factory=list)
    partial: bool = False
    stopped: str = ""


Tell = Callable[[str], None] | None


def run(asked: QuickOptions, tell: Tell = None) -> QuickLook:
    """Look at the server at `url`, drive it, judge it. tell: hears what is being done."""
    seen = look(asked.url, asked.api_key_env)
    options, gpu_from, notes = described(asked, seen)
    how, why, clients = _plan(options, seen)
    found = _watched(options, seen, tell) if how == WATCHED else _driven(
        options, seen, clients, tell)
    *before, lead = found.loads
    stages = [*(judged_at(options, *load, []) for load in before), judged_at(options, *lead, notes)]
    said, (flags, words) = decided(options, stages), to_type(options, stages[-1])
    said = said.with_command(flags)
    own = evidence_of(run_of(seen.metrics)) if seen.metrics is not None else None
    document: dict[str, object] = {
        "kind": "quick",
        "verdict": said.to_dict(),
        "to_type": words or None,
        "server": picked(seen, "url=target.base engine version model=name told=command others"),
        "deployment": {**picked(options, "model gpu tp"), "gpu_from": gpu_from},
        "drive": {"how": how, "why": why, "seconds": options.seconds, **picked(
            found, "stopped partial")},
        "loads": [stage.to_dict() for stage in stages],
        "own_traffic": picked(own, "num_drafts yield_per_step")
        if own is not None and (own.num_drafts or 0) >= FEW_DRAFTS else None,
        "assumed": assumptions(options, stages[-1], gpu_from),
        "warnings": list(dict.fromkeys([*notes, *said.notes])),
        "command": repeat(asked),
    }
    return QuickLook(document, found.partial, found.stopped)


quick = named_function(QuickOptions, run)


def described(asked: QuickOptions, seen: ServerLook) -> tuple[QuickOptions, str, list[str]]:
    """The options with what the server tells filled in, where the GPU's name is from ('' where it
    is assumed), and notes. Typed options win over --command, and that over the server."""
    notes: list[str] = []
    if seen.others:
        notes.append(f"also found: {', '.join(seen.others)}; name one to ask it")
    changes: dict[str, object] = {}
    model = asked.model
    for text in (seen.command, asked.command):
        try:
            told = parse_command(text) if text else None
        except SpecSimError as error:
            if text == asked.command:
                raise
            notes.append(f"the server's flags could not be read: {error}")
            continue
        if told is not None:
            changes |= told.values
            left_out = [*told.not_modelled, *told.unknown]
            if left_out:
                notes.append(f"not modelled: {', '.join(left_out)[:200]}")
            if text == asked.command:
                model = model or told.model
                _beside_command(asked, told, notes)
    changes["model"] = model or _catalogued(seen)
    if changes["model"] is None:
        notes.append(f"the model {seen.name[:80]!r} is not in the catalogue: nothing is predicted")
    changes["engine"] = _engine(asked, changes.get("engine"), seen, notes)
    gpu, gpu_from = _gpu(asked, seen, notes)
    changes["gpu"] = gpu
    typed = asked.model_fields_set - {"command"}
    kept = {name: value for name, value in changes.items()
            if name in ("gpu", "engine") or (name not in typed and value is not None)}
    options = asked.but(**kept, command=None)
    try:
        return smallest_split(options, notes) if options.model else options, gpu_from, notes
    except SpecSimError as error:
        if asked.typed & (declared(DeploymentOptions).keys() - {"profiles"}):
            raise
        notes.append(f"nothing is predicted: {error}")
        return options.but(model=None), gpu_from, notes


def _engine(
    asked: QuickOptions, of_command: object, seen: ServerLook, notes: list[str]
) -> str | None:
    """The engine: that of --engine, else of the server, else of --command; of two that are the same
    one, with the version that is said first. notes: gets what is not taken."""
    runs = None
    if seen.engine in {known.name for known in list_engines()}:
        number = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", seen.version)
        runs = f"{seen.engine}=={number[1]}" if number and seen.engine != OWN else seen.engine
    told = runs or (str(of_command) if of_command else None)
    for flag, said in (("--engine", asked.engine), ("--command", of_command)):
        if said and runs and not same_engine(str(said), seen.engine):
            taken = asked.engine or runs
            notes.append(f"{flag} says {said}, the server that it is {runs}; {taken} is taken")
    if asked.engine and told and same_engine(asked.engine, find_engine(told).name):
        return engine_of_both(asked.engine, told, notes)
    return asked.engine or told


def _beside_command(asked: QuickOptions, told: ServerCommand, notes: list[str]) -> None:
    """What is typed beside --command and says something else: an engine of another kind is refused,
    of the rest the notes tell which is taken."""
    for name, value in told.values.items():
        given = getattr(asked, name, None)
        if name not in asked.typed or given in (None, value):
            continue
        if name != "engine":
            notes.append(f"{declared(QuickOptions)[name].flag} {given} is taken, though --command "
                         f"says {str(value)[:80]}")
        elif not same_engine(str(given), told.engine):
            raise UsageError(
                f"--engine {given!r} contradicts --command, which says {value!r}; change one of "
                "them"
            )


def _catalogued(seen: ServerLook) -> str | None:
    """The model by one of the server's names for it; a folder only where it lies here, too."""
    for name in (seen.path, seen.name, seen.path.rsplit("/", 1)[-1], seen.name.rsplit("/", 1)[-1]):
        if name and has_model(name):
            return name
    with suppress(OSError, ValueError):
        if seen.path.startswith("/") and (Path(seen.path) / "config.json").is_file():
            return seen.path
    return None


def _gpu(asked: QuickOptions, seen: ServerLook, notes: list[str]) -> tuple[str, str]:
    if "gpu" in asked.model_fields_set:
        return asked.gpu, "as given"
    if urlsplit(seen.target.base).hostname in LOCAL:
        name = local_gpu()
        if name:
            with suppress(SpecSimError):
                folder = profile_folder(asked.profiles)
                return find_profile(name, folder).stem, f"nvidia-smi here: {name}"
            notes.append(f"this machine's GPU, {name!r}, has no profile; `specsim gpus` lists them")
        elif seen.engine == OWN:
            return "cpu-generic", "specsim serve on this machine, which has no NVIDIA GPU"
    return asked.gpu, ""


def _plan(options: QuickOptions, seen: ServerLook) -> tuple[str, str, tuple[int, ...]]:
    """(how, why, clients one after the other): nobody's traffic is crowded out."""
    if seen.metrics is None:
        if options.watch_only:
            raise UsageError(
                f"--watch-only reads {seen.target.base}/metrics, which shows nothing of an engine; "
                "SGLang needs --enable-metrics, or leave --watch-only out"
            )
        return GENTLY, "it shows no /metrics, so not whether others use it", CLIENTS[:1]
    side = run_of(seen.metrics).server
    running, waiting = (side.running or 0.0, side.waiting or 0.0) if side else (0.0, 0.0)
    if options.watch_only:
        return WATCHED, "as asked", ()
    if waiting >= 1:
        return WATCHED, f"{waiting:.0f} requests of others wait there already", ()
    if running >= 1:
        return GENTLY, f"others have {running:.0f} requests running", CLIENTS[:1]
    return DRIVEN, "nobody else used it", CLIENTS


def _watched(options: QuickOptions, seen: ServerLook, tell: Tell) -> _Measured:
    seconds = len(CLIENTS) * options.seconds
    if tell is not None:
        tell(f"watching {seen.target.base} for {seconds:g} s")
    evidence = live_evidence(metrics_url(seen.target.base), seconds)
    return _Measured([({}, evidence)])


def _with_others(run: BenchRun, clients: int) -> Evidence:
    """The evidence of a load; the batch by the server's gauge where others are in it."""
    evidence = evidence_of(run)
    gauge = run.server.running if run.server is not None else None
    if gauge is not None and gauge > clients and evidence.running_from != "steps":
        return replace(evidence, running=gauge, running_from="gauge")
    if evidence.running is None:
        return replace(evidence, running=float(clients), running_from="clients")
    return evidence


def _driven(
    options: QuickOptions, seen: ServerLook, clients: tuple[int, ...], tell: Tell
) -> _Measured:
    """One load after the other, until one fails, makes requests wait, or Ctrl-C."""
    found, prompts, used = _Measured(), builtin_prompts(OUTPUT_TOKENS), 0
    for count in clients:
        if tell is not None:
            tell(f"{seen.target.base}: {count} of at most {clients[-1]} clients")
        load = LiveLoad(
            tuple(take(prompts, MOST_REQUESTS, used)), max_concurrency=count, name=f"c={count}",
            until_s=options.seconds,
        )
        try:
            live = drive(
                seen.target, load, Sampling(), model=seen.name,
                sample_every_s=min(0.5, options.seconds / 4),
            )
        except (ServerError, KeyboardInterrupt) as error:
            if not found.loads:
                raise
            found.partial = isinstance(error, KeyboardInterrupt)
            found.stopped = str(error)
            break
        found.partial = live.partial
        used += len(live.requests)
        if live.finished:
            sent = {"clients": count, "requests": len(live.requests),
                    "failed": sum(live.failures().values())}
            found.loads.append((sent, _with_others(live.bench(), count)))
        failed = live.failures()
        if failed and not live.partial:
            found.stopped = f"at {count} clients: {', '.join(failed)[:200]}"
        waiting = found.loads[-1][1].waiting if found.loads else None
        if found.partial or found.stopped or (waiting or 0.0) >= 1:
            break
    if not found.loads:
        raise KeyboardInterrupt
    return found

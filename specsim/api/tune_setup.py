"""From the options of `specsim tune` to the systems it compares, the mix and the ranges."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from specsim.analytic.system import System
from specsim.analytic.workload import Workload, find_workload
from specsim.api.acceptance import KNOWN, WORK_OF_WORKLOAD, catalogued
from specsim.api.command_line import expand_command
from specsim.api.deployment import DeploymentRequest, build_request
from specsim.api.verdicts import served_names
from specsim.errors import SpecSimError, UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import asked_version, find_engine
from specsim.methods.base import find_method
from specsim.methods.registry import is_plain, method_name
from specsim.options.groups import DeploymentOptions, LengthsOptions
from specsim.options.tuning import TuneOptions
from specsim.options.values import Numbers, Words, as_text, parse_numbers, profile_folder, shown
from specsim.planning.tune import Offer
from specsim.planning.tune_choices import draft_lengths
from specsim.planning.tune_robust import TrafficCase, range_scenarios
from specsim.units import GB

MAX_PARTS = 20  # of --mix and --methods
# Depth, top-k and tokens of the trees that are compared: SGLang's own default (5, 4, 8) and the
# shapes on which the rank model was fitted; nothing larger was measured.
_TREES = ((3, 4, 8), (5, 3, 6), (5, 4, 8), (7, 4, 8), (6, 4, 12), (4, 4, 16))


def build_offer(asked: TuneOptions) -> Offer:
    """Checks everything. SpecSimError where plain decoding cannot run, or nothing was found that
    was asked for by name."""
    options, notes = expand_command(DeploymentOptions.of(asked))
    options = _limited(options, asked.max_memory)
    shares = _parse_mix(asked.mix)
    if shares and asked.acceptance_range is not None:
        raise UsageError("--mix and --acceptance-range both say what is accepted; give one")
    if shares:
        _check_beside_mix(options)
    bounds = _range(asked.acceptance_range)
    given = options.acceptance_flags
    if bounds is not None and not given:
        options = options.but(acceptance_length=sum(bounds) / 2)
        given = options.acceptance_flags
    base = build_request(options.plain())
    base = replace(base, workload=_mean_workload(shares, base.workload))
    named = options.asks_to_draft
    names = _methods(asked.methods, options)
    requests: list[DeploymentRequest] = []
    skipped: list[tuple[str, str]] = []
    if names is None and (named or given):
        requests.append(build_request(options, unknown=True))
    else:
        if names is not None and len(names) > 1 and (given or options.draft):
            flag = "--draft" if options.draft else given[0]
            raise UsageError(f"{flag} is for one method, but --methods names {len(names)}")
        wanted = base.system.engine.methods if names is None else names
        for name in wanted:
            if names is None and not find_method(name).servable:
                continue
            _try(options, name, requests, skipped)
    requests, unknown = _apart(requests, names is not None or named, skipped)
    systems = tuple(r.system for r in requests if r.system.speculative)
    for system in systems:
        if not draft_lengths(system, asked.max_k):
            k = system.setup.k
            raise UsageError(
                f"--max-k is {asked.max_k}, but the tree asked for is {k} deep; give at least {k}"
            )
    warnings = dict.fromkeys([*notes, *base.warnings, *_warnings(requests)])
    if not systems and unknown is None and not all(map(is_plain, names or ())):
        raise UsageError(f"none of --methods can run: {skipped[0][0]}: {skipped[0][1]}")
    scenarios: tuple[TrafficCase, ...] = ()
    spreads: dict[str, tuple[float, float]] = {}
    if bounds is not None:
        _check_inside(systems, bounds)
        scenarios, spreads = _of_range(systems, base.workload, bounds)
    elif shares:
        scenarios = tuple(_scenario(options, systems, part, warnings) for part in shares)
    return Offer(
        systems, base.workload, base.system, scenarios, spreads, tuple(skipped), tuple(warnings),
        served_names(options), unknown, _trees(options, systems, asked.max_k),
    )


def _trees(
    options: DeploymentOptions, systems: tuple[System, ...], deepest: int | None
) -> tuple[System, ...]:
    """The trees of `_TREES` up to `deepest` for every method that drafts them on an engine that
    serves them, where the options leave shape and acceptance open."""
    found = []
    if options.tree is not None or options.k is not None or options.acceptance_flags:
        return ()
    for system in systems:
        server, drafting = system.engine.server, system.setup.drafting
        if not (server.dialect == "sglang" and drafting.trees) or options.speculative_config:
            continue
        for k, topk, tokens in _TREES:
            if deepest is not None and k > deepest:
                continue
            try:
                asked = options.but(method=drafting.name, k=k, tree=f"{topk},{tokens}")
                found.append(build_request(asked).system)
            except SpecSimError:
                continue
    return tuple(system for system in found if system.speculative)


def _try(
    options: DeploymentOptions, name: str, requests: list[DeploymentRequest],
    skipped: list[tuple[str, str]],
) -> None:
    if is_plain(name):
        return
    missing = find_engine(options.engine).missing(name, asked_version(options.engine))
    if missing:
        skipped.append((name, missing))
        return
    try:
        requests.append(build_request(options.but(method=name), unknown=True))
    except SpecSimError as error:
        skipped.append((name, str(error)))


def _apart(
    requests: list[DeploymentRequest], named: bool, skipped: list[tuple[str, str]]
) -> tuple[list[DeploymentRequest], System | None]:
    """(the requests of known acceptance, the first other one where there are none). The others are
    skipped; a lookup that nobody named stands for a target only where no network can draft."""
    known = [found for found in requests if found.unknown is None]
    others = [found.unknown for found in requests if found.unknown is not None]
    for system in others:
        skipped.append((system.setup.method, "no acceptance of it is known for this model"))
    if known and (named or any(found.system.speculative for found in known)):
        return known, None
    others.sort(key=lambda s: (s.setup.drafting.lookup, s.setup.drafting.default_rank or MAX_PARTS))
    return known, others[0] if others else None


def _methods(asked: Words | None, options: DeploymentOptions) -> tuple[str, ...] | None:
    if asked is None:
        return None
    text = as_text(asked)
    for name, flag in (("method", "--method"), ("speculative_config", "--speculative-config")):
        if getattr(options, name) is not None:
            raise UsageError(f"{flag} and --methods contradict each other; give one of them")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or len(parts) > MAX_PARTS:
        raise UsageError(f"--methods is {shown(text)}; name methods such as mtp,eagle3,ngram")
    return tuple(dict.fromkeys(method_name(part) for part in parts))


def _limited(options: DeploymentOptions, max_memory: float | None) -> DeploymentOptions:
    """--max-memory as the share that the engine may use."""
    if max_memory is None:
        return options
    if options.gpu_memory_utilization is not None:
        raise UsageError(
            "--max-memory and --gpu-memory-utilization both limit the memory; give one of them"
        )
    profile = load_profile(options.gpu, profile_folder(options.profiles))
    share = max_memory * GB / profile.mem_bytes
    if not 0.05 <= share <= 1:
        raise UsageError(
            f"--max-memory is {max_memory:g}; {profile.name} has {profile.mem_bytes / GB:.0f} GB, "
            f"so give from {0.05 * profile.mem_bytes / GB:.0f} to {profile.mem_bytes / GB:.0f}"
        )
    return options.but(gpu_memory_utilization=share)


def _range(asked: Numbers | None) -> tuple[float, float] | None:
    if asked is None:
        return None
    values = parse_numbers(asked, "--acceptance-range", whole=False)
    if len(values) != 2 or not 1 <= values[0] < values[1]:
        raise UsageError(
            f"--acceptance-range is {shown(as_text(asked))}; give two acceptance lengths at k, the "
            "lower first, e.g. 2.1,3.2 (mean tokens per step, at least 1)"
        )
    return values[0], values[1]


def _check_inside(systems: tuple[System, ...], bounds: tuple[float, float]) -> None:
    """The choice is made at the acceptance given; one outside its own range is a slip."""
    for system in systems:
        accepted, low, high = system.acceptance, *bounds
        if accepted is None or accepted.kind == "catalogue":
            continue
        length = accepted.expected_tokens(system.setup.k)
        if not low - 1e-6 <= length <= high + 1e-6:
            raise UsageError(
                f"--acceptance-range is {low:g},{high:g}, but the acceptance given is {length:.3g} "
                f"tokens per step at k = {system.setup.k}; leave it out or widen the range"
            )


def _of_range(
    systems: tuple[System, ...], workload: Workload, bounds: tuple[float, float]
) -> tuple[tuple[TrafficCase, ...], dict[str, tuple[float, float]]]:
    if len(systems) != 1:
        raise UsageError(
            "--acceptance-range is for one method; name it with --method (found "
            f"{', '.join(s.setup.method for s in systems) or 'none'})"
        )
    setup = systems[0].setup
    return range_scenarios(workload, *bounds, setup.k, setup.method), {setup.method: bounds}


# --- a mix of workloads -------------------------------------------------------------------------

_Part = tuple[str, float, float | None]


def _parse_mix(text: str | None) -> list[_Part]:
    """'chat=0.6,code=0.4@3.5' as (workload, share, acceptance length or None)."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    out: list[_Part] = []
    for part in parts[: MAX_PARTS + 1]:
        match = re.fullmatch(r"([\w-]+)=([\d.eE+-]+)(?:@([\d.eE+-]+))?", part)
        try:
            if match is None:
                raise ValueError
            share, length = float(match[2]), float(match[3]) if match[3] else None
        except ValueError:
            raise UsageError(
                f"--mix has {shown(part)}; write WORKLOAD=SHARE or WORKLOAD=SHARE@LENGTH, e.g. "
                "chat=0.6,code=0.4@3.5"
            ) from None
        find_workload(match[1])
        if any(name == match[1].lower() for name, _, _ in out):
            raise UsageError(f"--mix has {match[1].lower()} twice; give each workload one share")
        if not 0 < share <= 1 or (length is not None and not length >= 1):
            raise UsageError(
                f"--mix has {shown(part)}; shares are above 0 and at most 1, acceptance lengths "
                "at least 1"
            )
        out.append((match[1].lower(), share, length))
    total = sum(share for _, share, _ in out)
    if not 2 <= len(out) <= MAX_PARTS or abs(total - 1) > 0.01:
        raise UsageError(
            f"--mix has {len(out)} parts whose shares add up to {total:g}; give from 2 to "
            f"{MAX_PARTS} parts that add up to 1"
        )
    return out


def _check_beside_mix(options: DeploymentOptions) -> None:
    for name in LengthsOptions.model_fields:
        if getattr(options, name) is not None:
            raise UsageError(
                f"--mix and --{name.replace('_', '-')} both say what requests look like; give one "
                "of them"
            )


def _mean_workload(parts: list[_Part], default: Workload) -> Workload:
    """Mean lengths of a mix: what the load as a whole looks like."""
    if not parts:
        return default
    loads = [(find_workload(name), share) for name, share, _ in parts]
    total = sum(share for _, share in loads)
    return replace(
        default, input_len=round(sum(w.input_len * share for w, share in loads) / total),
        output_len=round(sum(w.output_len * share for w, share in loads) / total), name="mix",
    )


def _warnings(requests: Sequence[DeploymentRequest]) -> Iterator[str]:
    """What is to be known of the methods: with the name of the one it is about, if not of all."""
    for request in requests:
        for text in request.warnings:
            shared = all(text in other.warnings for other in requests)
            yield text if shared else f"{request.system.setup.method}: {text}"


def _scenario(
    options: DeploymentOptions, systems: tuple[System, ...], part: _Part, warnings: dict[str, None]
) -> TrafficCase:
    from specsim.speculation.acceptance import Acceptance

    name, share, length = part
    found: dict[str, Acceptance] = {}
    sources = []
    for system in systems:
        setup = system.setup
        if length is not None:
            found[setup.method] = Acceptance.from_mean_length(length, setup.k)
            sources.append(f"acceptance length {length:g} at k = {setup.k}")
            continue
        work = WORK_OF_WORKLOAD.get(name)
        estimate = catalogued(options, system.spec, setup, options.draft, work)
        if estimate.level in KNOWN and work is not None:
            found[setup.method] = estimate.acceptance
            sources.append(f"{setup.method}: {estimate.acceptance.source}")
        else:
            warnings[
                f"--mix: no acceptance of {setup.method} was measured for {name}; its general one "
                f"stands for it ({name}=SHARE@LENGTH gives your own)"
            ] = None
    return TrafficCase(name, share, find_workload(name), found, "; ".join(dict.fromkeys(sources)))

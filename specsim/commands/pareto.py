"""`specsim pareto`: speed for one user against throughput of a GPU, over all that can be set."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specsim.commands import options as o

if TYPE_CHECKING:
    from specsim.analytic.system import System
    from specsim.planning.pareto import Axes

INTERRUPTED = 130
SHOW_BAR_FROM = 3000  # combinations: about two seconds
MAX_VALUE = 10_000_000

Ks = Annotated[
    str | None, typer.Option("--ks", help="Draft lengths, e.g. 0,1,2,3; 0: plain decoding.")
]
Tps = Annotated[str | None, typer.Option("--tps", help="GPUs per replica, e.g. 1,2,4,8.")]
WeightList = Annotated[
    str | None, typer.Option("--weights", help="Weight formats, e.g. bf16,fp8.")
]
KvList = Annotated[str | None, typer.Option("--kv", help="Cache dtypes, e.g. bf16,fp8.")]
SeqsList = Annotated[
    str | None, typer.Option("--max-num-seqs", help="Running sequences, e.g. 1,8,64.")
]
TokensList = Annotated[
    str | None, typer.Option("--max-num-batched-tokens", help="Token budgets, e.g. 2048,8192.")
]
MaxTtft = Annotated[
    float | None, typer.Option("--max-ttft", help="Leave out points with a longer mean TTFT, s.")
]
Floor = Annotated[
    float | None, typer.Option("--stream-floor", help="Leave out points slower per user, tok/s.")
]
All = Annotated[bool, typer.Option("--all", help="With --json: every point, not the frontiers.")]
Plot = Annotated[str | None, typer.Option("--plot", help="Draw into a file: .svg or .png.")]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="No plot in the terminal.")]


def register(app: typer.Typer) -> None:
    app.command(name="pareto")(pareto)


def pareto(
    context: typer.Context,
    model: o.Model = None,
    ks: Ks = None,
    tps: Tps = None,
    weights: WeightList = None,
    kv: KvList = None,
    max_num_seqs: SeqsList = None,
    max_num_batched_tokens: TokensList = None,
    max_ttft: MaxTtft = None,
    stream_floor: Floor = None,
    gpu: o.Gpu = "h200-sxm",
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    engine: o.Engine = "vllm",
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    acceptance: o.Acc = None,
    acceptance_conditional: o.AccCond = None,
    acceptance_rate: o.AccRate = None,
    acceptance_mean: o.AccMean = None,
    acceptance_length: o.AccLen = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    plot: Plot = None,
    no_plot: NoPlot = False,
    every_point: All = False,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Every combination of draft length, GPUs, formats and limits: which give one user the most
    speed and a GPU the most throughput. --k is the draft length that an acceptance length or rate
    was given for; --ks are those tried."""
    values = dict(locals())
    from specsim.api.simulate_load import check_writable
    from specsim.commands.crossover import terminal_plot
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.planning.pareto import pareto as run
    from specsim.report.paretos import (
        pareto_json,
        pareto_panel,
        pareto_picture,
        pareto_rows,
        pareto_text,
    )
    from specsim.report.plots_file import check_plot, write_picture
    from specsim.report.progress import task_bar
    from specsim.report.tables import to_csv, to_json

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    if every_point and not json_out:
        raise UsageError("--all belongs to --json; --csv has every point anyway")
    if model is None:
        raise UsageError("a MODEL is needed; `specsim models` lists them")
    for flag, limit in (("--max-ttft", max_ttft), ("--stream-floor", stream_floor)):
        if limit is not None and not 0 < limit < float("inf"):
            raise UsageError(f"{flag} is {limit:g}; it must be above 0 and finite")
    check_plot(plot)
    check_writable(plot, "--plot")
    base, axes, options, warnings = _axes(values)
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    with task_bar(not quiet and axes.count >= SHOW_BAR_FROM, "combinations") as report:
        result = run(
            base.system, base.workload, axes, builder(options), max_ttft_s=max_ttft,
            stream_floor_tok_s=stream_floor, warnings=warnings, report=report,
        )  # fmt: skip
    if plot is not None:
        write_picture(pareto_picture(result), plot)
    if json_out:
        found = {**pareto_json(result, every_point), "command": repeat_command(context)}
        text = to_json(found)
    elif csv_out:
        text = to_csv(pareto_rows(result)).rstrip("\n")
    else:
        text = pareto_text(result)
        if not no_plot:
            text = f"{text}\n\n{terminal_plot(pareto_panel(result, clouds=False))}"
        if plot is not None:
            text = f"{text}\n\nplot: {plot}"
    sys.stdout.write(text + "\n")
    if result.partial:
        raise typer.Exit(INTERRUPTED)


def _axes(values: dict[str, Any]) -> tuple[Any, "Axes", o.Options, tuple[str, ...]]:
    """The deployment that the options name, what is varied around it, and its options."""
    from dataclasses import fields

    from specsim.api.deployment import build_request
    from specsim.errors import CapacityError
    from specsim.planning.pareto import Axes

    lists = ("weights", "kv", "max_num_seqs", "max_num_batched_tokens")
    names = {item.name for item in fields(o.Options)}
    plain_values = {
        name: value for name, value in values.items() if name in names and name not in lists
    }
    options = o.Options(**plain_values)
    tps = _numbers(values["tps"], "--tps", 1, 1024) if values["tps"] is not None else None
    weights = _words(values["weights"], "--weights")
    kv = _words(values["kv"], "--kv")
    base = None
    for tp in tps or (1, 2, 4, 8):
        # The smallest replica that holds the model says what can be varied.
        try:
            base = build_request(replace(options, tp=tp, weights=weights[0] if weights else None))
            break
        except CapacityError as error:
            refusal = error
    if base is None:
        raise refusal
    system = base.system
    node = system.profile.gpus_per_node if system.profile.link_bytes_per_s > 0 else 1
    axes = Axes(
        k=_ks(values["ks"], system),
        tp=tps or tuple(tp for tp in (1, 2, 4, 8) if tp <= max(1, node)),
        weights=_weights(weights, system),
        kv_dtype=_kv(kv, system),
        max_num_seqs=_numbers(
            values["max_num_seqs"] or "1,2,4,8,16,32,64,128,256,512", "--max-num-seqs", 1, MAX_VALUE
        ),
        max_num_batched_tokens=_budgets(values["max_num_batched_tokens"], system),
    )
    # What the base warns of by its own tp or dtype is not said of all.
    return base, axes, options, base.warnings


def _ks(text: str | None, system: "System") -> tuple[int, ...]:
    from specsim.analytic.predict import candidate_k
    from specsim.errors import UsageError
    from specsim.speculation.methods import MAX_K

    if text is not None:
        found = _numbers(text, "--ks", 0, MAX_K)
        if any(found) and not system.speculative:
            raise UsageError(
                f"--ks is {text}, but there is no speculation to vary; name a --method with its "
                "acceptance (--acceptance-length)"
            )
        return found
    if not system.speculative:
        return (0,)
    return (0, *(candidate_k(system) or [system.setup.k]))


def _weights(names: tuple[str, ...], system: "System") -> tuple[str, ...]:
    """Formats by name, as the models that have them are labelled."""
    from specsim.model.catalogue import variant

    if names:
        return tuple(dict.fromkeys(variant(system.spec, name).weights for name in names))
    own = system.spec.weights
    return (own, "fp8") if own == "bf16" and "fp8" in system.profile.flops else (own,)


def _kv(names: tuple[str, ...], system: "System") -> tuple[str, ...]:
    from specsim.model.counts import kv_dtype_bytes

    for name in names:
        kv_dtype_bytes(system.spec, name)  # refuses an unknown one
    if names:
        return names
    return tuple(dict.fromkeys((system.kv_dtype, "fp8")))


def _budgets(text: str | None, system: "System") -> tuple[int, ...]:
    if text is not None:
        return _numbers(text, "--max-num-batched-tokens", 1, MAX_VALUE)
    return tuple(sorted({2048, 8192, system.engine.max_num_batched_tokens}))


def _numbers(text: str, flag: str, low: int, high: int) -> tuple[int, ...]:
    from specsim.errors import UsageError

    found = o.parse_numbers(text, flag)
    for value in found:
        if not low <= value <= high:
            raise UsageError(f"{flag} has {value:.15g}; it must be from {low} to {high}")
    return tuple(sorted({int(value) for value in found}))


def _words(text: str | None, flag: str) -> tuple[str, ...]:
    from specsim.errors import UsageError

    if text is None:
        return ()
    found = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if not all(found):
        raise UsageError(f"{flag} is {o.shown(text)}; it must be names separated by commas")
    return found


def builder(options: o.Options) -> Callable[[int, str, str, int], "System"]:
    """The system with a tp, weight format, cache dtype and draft length; see `planning.pareto`.

    The acceptance is that of the options' own k, followed to other draft lengths. All draft
    lengths of one deployment share what prices its target's passes."""
    from specsim.api.deployment import build_request
    from specsim.errors import SpecSimError
    from specsim.speculation.methods import resolve_setup

    built: dict[tuple[int, str, str, bool], Any] = {}

    def sided(tp: int, weights: str, kv: str, plain: bool) -> "System":
        key = (tp, weights, kv, plain)
        if key not in built:
            asked = replace(options, tp=tp, weights=weights, kv=kv)
            if plain:
                asked = replace(
                    asked, method="none", draft=None, k=None, acceptance=None,
                    acceptance_conditional=None, acceptance_rate=None, acceptance_mean=None,
                    acceptance_length=None, draft_share=1.0, exit_layers=0,
                )  # fmt: skip
            try:
                built[key] = build_request(asked).system
            except SpecSimError as error:
                built[key] = error
        found = built[key]
        if isinstance(found, SpecSimError):
            raise found
        return found  # type: ignore[no-any-return]

    def build(tp: int, weights: str, kv: str, k: int) -> "System":
        if k == 0:
            return sided(tp, weights, kv, True)
        system = sided(tp, weights, kv, False)
        if k == system.setup.k:
            return system
        setup = system.setup
        resolve_setup(
            system.spec, system.engine, setup.method, k, draft=setup.drafter,
            exit_layers=setup.exit_layers, draft_share=setup.draft_share,
            parallel_drafting=setup.parallel_drafting,
        )  # fmt: skip
        return system.with_k(k)

    return build

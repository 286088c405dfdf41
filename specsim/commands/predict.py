"""`specsim predict`: the gain of speculation for a model, or the MindRouter table."""

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from specsim.commands import options as o


def register(app: typer.Typer) -> None:
    app.command(name="predict")(predict)


def predict(
    context: typer.Context,
    model: o.Model = None,
    command: o.Command = None,
    gpu: o.Gpu = "h200-sxm",
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    weights: o.Weights = None,
    kv: o.Kv = None,
    engine: o.Engine = "vllm",
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    speculative_config: o.SpecConfig = None,
    acceptance: o.Acc = None,
    acceptance_conditional: o.AccCond = None,
    acceptance_rate: o.AccRate = None,
    acceptance_mean: o.AccMean = None,
    acceptance_length: o.AccLen = None,
    tree: o.Tree = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw the speedup over the load in the terminal.")
    ] = False,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Predict what speculative decoding does. Without MODEL: the MindRouter cluster's six models
    beside what that cluster reported."""
    from specsim.errors import UsageError

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    if plot and (json_out or csv_out):
        raise UsageError("--plot draws in the terminal; leave it out with --json and --csv")
    given = dict(locals())
    for name in ("UsageError", "context", "plot", "json_out", "csv_out", "concurrency", "rate"):
        given.pop(name)
    if model is None and command is None:
        if plot:
            raise UsageError("--plot needs a MODEL; `specsim models` lists them")
        for flag, value in (("--concurrency", concurrency), ("--rate", rate)):
            if value is not None:
                raise UsageError(f"{flag} needs a MODEL; `specsim models` lists them")
        from specsim.commands.config_file import from_file

        # Defaults of specsim.toml are for models of one's own, not for this table.
        built_in = vars(o.Options(model=""))
        given.update({name: built_in[name] for name in from_file(context) & built_in.keys()})
        _mindrouter(given, json_out, csv_out)
        return
    from specsim.api.predict import run
    from specsim.commands.repeat import repeat_command
    from specsim.report.predictions import prediction_text
    from specsim.report.tables import to_csv, to_json

    result = run({**given, "model": model, "concurrency": concurrency, "rate": rate})
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(point.to_dict() for point in result.points).rstrip("\n")
    else:
        text = prediction_text(result)
        if plot:
            from specsim.commands.crossover import terminal_plot
            from specsim.report.predictions import terminal_panel

            text = f"{text}\n\n{terminal_plot(terminal_panel(result))}"
    sys.stdout.write(text + "\n")


def _mindrouter(given: dict[str, Any], json_out: bool, csv_out: bool) -> None:
    """The six endpoints as served, on one H200 each, beside the reported speedups."""
    from specsim.analytic.mindrouter import predict_table
    from specsim.errors import UsageError
    from specsim.report.mindrouter import mindrouter_text
    from specsim.report.tables import to_csv, to_json

    default = o.Options(model="")
    allowed = ("model", "gpu", "engine", "fidelity", "profiles")
    for name, value in given.items():
        if name not in allowed and value != getattr(default, name):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} needs a MODEL; `specsim models` lists them")
    options = replace(
        default, gpu=given["gpu"], engine=given["engine"], fidelity=given["fidelity"],
        profiles=given["profiles"],
    )
    o.profile_folder(options.profiles)
    rows = predict_table(options.gpu, options.engine, options.fidelity, options.profiles)
    if json_out:
        text = to_json({"kind": "mindrouter", "table": [row.to_dict() for row in rows]})
    elif csv_out:
        text = to_csv(row.to_dict() for row in rows).rstrip("\n")
    else:
        text = mindrouter_text(rows)
    sys.stdout.write(text + "\n")

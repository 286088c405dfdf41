"""`specsim validate bench`: a benchmark's result file beside the simulation of its load."""

from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o
from specsim.commands import validate_deployment as d

Files = Annotated[
    list[Path],
    typer.Argument(
        parser=o.named_path, metavar="FILES",
        help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
        "genai-perf, inference-perf or llmperf; files or folders."
    ),
]
ModelOpt = Annotated[
    str | None,
    typer.Option("--model", help="Model: a name from `specsim models`, a config.json, or its "
                 "folder. Default: the name in the file."),
]


def bench(
    files: Files,
    model: ModelOpt = None,
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
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    prefix_caching: d.PrefixCaching = None,
    fitted: d.Fitted = None,
    explain: d.Explain = True,
    max_error: d.MaxError = None,
    out: d.Out = None,
    json_out: o.JsonOut = False,
) -> None:
    """Simulate the load of every run in FILES with the acceptance that was measured there, and put
    the measured figures beside the predicted ones."""
    values = dict(locals())
    from specsim.accuracy.bench import points_of
    from specsim.accuracy.live import Settings, judge
    from specsim.api.values import options_of
    from specsim.errors import UsageError
    from specsim.files import check_writable
    from specsim.formats.bench import read_bench
    from specsim.formats.load_model import load_model
    from specsim.methods.registry import is_plain

    d.check_max_error(max_error)
    check_writable(out, "--out", files)
    runs = [run for file in files for run in read_bench(file)]
    points = points_of(runs)
    names = sorted({run.model for run in runs if run.model})
    if model is None:
        if len(names) != 1:
            raise UsageError(
                f"the files name {len(names)} models; give --model with a name from "
                "`specsim models`, a config.json or its folder"
            )
        model = names[0].rsplit("/", 1)[-1]
    load_model(model)
    found_k = {run.server_args.num_speculative_tokens for run in runs} - {None}
    if values["k"] is None and speculative_config is None and len(found_k) == 1 and (
        method is not None and not is_plain(method)
    ):
        values["k"] = found_k.pop()
    chosen = d.names_of(fitted)
    d.check_fitted(chosen, [point.name for point in points])
    deployer = d.Deployer.of(options_of({**values, "model": model}))
    settings = Settings(deployer.assumed, prefix_caching, chosen, explain)
    title = (
        f"{deployer.base.spec.name}: {len(points)} measured run{'s' * (len(points) > 1)} beside "
        f"the simulation of the same requests on {deployer.base.profile.title or gpu}, "
        f"{deployer.base.engine.title or engine}"
    )
    provenance = {
        "files": [str(file) for file in files],
        "options": {name: values[name] for name in
                    ("model", "gpu", "engine", "method", "draft", "k", "tp", "weights", "kv")},
    }
    notes = list(deployer.warnings)
    if deployer.base.speculative and not deployer.assumed:
        notes += [
            f"{point.name}: {point.run.source} shows no drafts: simulated as plain decoding; give "
            "--acceptance-length if it did draft"
            for point in points if not d.drafts(point.run)
        ]
    found = judge("bench", title, points, deployer.system, settings, provenance, notes)
    d.finish(found, max_error, json_out, out)

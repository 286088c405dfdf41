"""`specsim explain`: where the time of one engine step goes, op by op."""

import sys

import typer

from specsim.commands import options as o


def register(app: typer.Typer) -> None:
    app.command(name="explain")(explain)


def explain(
    ctx: typer.Context,
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
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
) -> None:
    """Show where a decode step's time goes: bytes, FLOP, bound and a bar per op."""
    given = dict(locals())
    for name in ("ctx", "json_out", "concurrency"):
        given.pop(name)
    from specsim.errors import UsageError

    if model is None and command is None:
        raise UsageError("explain needs a MODEL or a --command; `specsim models` lists them")
    from specsim.analytic.closed import running_limit
    from specsim.api.deployment import build_request
    from specsim.commands.repeat import repeat_command
    from specsim.report.explanation import explanation_text
    from specsim.report.tables import to_json

    request = build_request(o.Options(**{**given, "model": model or ""}))
    system = request.system
    batches = o.parse_concurrency(concurrency, (1,))
    limit = running_limit(system, request.workload)
    context = request.workload.mean_context
    out = []
    for batch in batches:
        running = min(batch, limit)
        sides = [("plain decode step", system.plain())]
        if system.speculative:
            sides.append((f"verify step, k = {system.setup.k}", system))
        for title, side in sides:
            step = side.latency.step(side.decode_shape(running, context))
            rows = [
                {
                    "op": item.op.name,
                    "phase": item.phase,
                    "count": item.op.count,
                    "seconds": item.seconds,
                    "share": item.seconds / step.total_s,
                    "bytes": item.op.bytes * item.op.count,
                    "flops": item.op.flops * item.op.count,
                    "bound": item.time.bound,
                }
                for item in step.ops
            ]
            out.append(
                {
                    "step": title,
                    "running": running,
                    "context_tokens": context,
                    **step.to_dict(),
                    "ops": rows,
                }
            )
    top = {
        "kind": "explanation",
        "model": system.spec.name,
        "gpu": system.profile.name,
        "engine": system.engine.name,
        "fidelity": system.fidelity,
        "steps": out,
        "warnings": list(request.warnings),
        "command": repeat_command(ctx),
    }
    sys.stdout.write((to_json(top) if json_out else explanation_text(top)) + "\n")

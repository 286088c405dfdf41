"""`specsim calibrate`: a profile of your own, from records of `specsim measure` or from benchmarks.

Two forms. `specsim calibrate RECORDS... --base h200-sxm -o my.toml` fits a hardware profile on
kernel times. `specsim calibrate --from bench.json MODEL -o my-engine.toml` fits an engine's
overheads on a few points of one server (see `specsim.api.calibrate_bench`).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o

FilesOpt = list[Path] | None


def register(app: typer.Typer) -> None:
    app.command(name="calibrate")(calibrate)


def calibrate(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORDS...",
            help="Files of `specsim measure`; with --from: the MODEL that was served.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The profile to write (.toml). Without: only the report."),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            help="Profile whose peaks and kernel parameters the fit starts from. Default: "
            "cpu-generic for records of a CPU, the profile of the device's name for a GPU.",
        ),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the whole report, with what was fitted, as JSON."),
    ] = None,
    statistic: Annotated[
        str,
        typer.Option(
            "--statistic",
            help="Which time of a record is fitted: median, p10 or min (a busy machine).",
        ),
    ] = "median",
    from_: Annotated[
        FilesOpt,
        typer.Option("--from", parser=o.named_path, metavar="FILE",
                     help="Result file of a benchmark of one server; repeatable."),
    ] = None,
    plain: Annotated[
        FilesOpt,
        typer.Option("--plain", parser=o.named_path, metavar="FILE",
                     help="As --from, and said to be without speculation."),
    ] = None,
    spec: Annotated[
        FilesOpt,
        typer.Option("--spec", parser=o.named_path, metavar="FILE",
                     help="As --from, and said to be with speculation."),
    ] = None,
    holdout: Annotated[
        FilesOpt,
        typer.Option("--holdout", parser=o.named_path, metavar="FILE",
                     help="With --from: files that judge the fit, not part of it."),
    ] = None,
    gpu: o.Gpu = "h200-sxm",
    engine: o.Engine = "vllm",
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    weights: o.Weights = None,
    kv: o.Kv = None,
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
) -> None:
    """Fit a hardware profile on RECORDS, or an engine profile on --from files."""
    from specsim.errors import UsageError

    given = inputs or []
    if from_ or plain or spec:
        if len(given) != 1:
            found = f"{len(given)} names" if given else "none"
            raise UsageError(
                f"--from needs the one model that was served, got {found}; write "
                "`specsim calibrate --from FILE MODEL`"
            )
        from specsim.api.calibrate_bench import fit_from
        from specsim.report.fewshot import fewshot_text
        from specsim.report.tables import printable, to_json

        options = o.Options(
            model=given[0], gpu=gpu, engine=engine, tp=tp, ep=ep, attention_dp=attention_dp,
            weights=weights, kv=kv, method=method, draft=draft, k=k, max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens, profiles=profiles,
        )
        fitted = fit_from(
            options, from_ or [], plain or [], spec or [], holdout or [], out, report
        )
        sys.stdout.write(
            (to_json(fitted) if json_out else printable(fewshot_text(fitted))) + "\n"
        )
        return
    if holdout:
        raise UsageError("--holdout judges a fit of --from files; give those, or leave it out")
    if not given:
        raise UsageError(
            "no records are given; name files of `specsim measure`, or benchmark results with "
            "--from FILE MODEL"
        )
    from specsim.commands.calibrate_records import run_records

    run_records([Path(name) for name in given], base, out, report, profiles, json_out,
                statistic)

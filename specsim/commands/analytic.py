"""What formulas answer: explain, crossover, pareto, matrix, compare."""

import sys

from specsim.commands.bind import Ended, command
from specsim.commands.output import end_if_partial, quiet, show, show_drawn
from specsim.options.analytic import (
    CompareCommand,
    CrossoverCommand,
    ExplainCommand,
    MatrixCommand,
    ParetoCommand,
)


@command(
    ExplainCommand,
    "specsim explain llama-3.1-8b --gpu h100-sxm --concurrency 16",
    "specsim explain deepseek-v3 -tp 8 --concurrency 1,64",
)
def explain(options: ExplainCommand) -> None:
    """Show where a decode step's time goes. Bytes, FLOP, bound (memory or compute) and a bar per
    operation."""
    from specsim.api.explain import run

    show(run(options), options)


@command(
    CrossoverCommand,
    "specsim crossover qwen3.6-27b --weights fp8 --contexts 1k,8k,32k",
    "specsim crossover deepseek-v3 -tp 8 --plot crossover.svg",
    "specsim crossover llama-3.1-8b --engine sglang --rates auto",
)
def crossover(options: CrossoverCommand) -> None:
    """Find the load up to which speculation pays. Compares ordinary and speculative decoding
    while concurrency grows: up to which load speculative work is cheap, and up to which it pays, by
    context length. --rates: the same by requests per second, with queues, and why it ends."""
    from specsim.api.crossover import run
    from specsim.report.crossovers import crossover_picture, panels
    from specsim.report.doc import Doc

    result = run(options)
    doc = Doc(result.to_dict())
    show_drawn(result, options, result.rows, lambda: crossover_picture(doc),
               lambda: panels(doc)[0])


@command(
    ParetoCommand,
    "specsim pareto llama-3.1-8b --gpu h100-sxm --tps 1,2 --ks 0,3",
    "specsim pareto qwen3.6-27b --weights bf16,fp8 --max-ttft 1",
    "specsim pareto llama-3.3-70b --at 50tok/s --price-per-gpu-hour 3",
)
def pareto(options: ParetoCommand) -> None:
    """Find the trade-offs of speed per user and throughput per GPU. Over every combination of
    draft length, GPUs, formats and limits. --k is the draft length that an acceptance length or
    rate was given for; --ks are those tried."""
    from specsim.api.pareto import run
    from specsim.report.paretos import pareto_picture, pareto_rows, terminal_panel

    result = run(options, bar=not quiet(options))
    show_drawn(
        result, options, lambda: pareto_rows(result), lambda: pareto_picture(result),
        lambda: terminal_panel(result),
        document=lambda: result.to_dict(options.every_point),
    )
    end_if_partial(result.partial)


@command(
    MatrixCommand,
    "specsim matrix --models qwen3.6-27b:fp8,llama-3.1-8b --gpus h200-sxm,l40s",
)
def matrix(options: MatrixCommand) -> None:
    """Compare models x GPUs at one operating point. Sustained tokens/s per GPU and users per GPU,
    with speculation and without."""
    from specsim.api.matrix import run

    result = run(options, bar=not quiet(options))
    show(result, options, lambda: (cell.row() for cell in result.cells))
    end_if_partial(result.partial)


SHOW_BAR_FROM = 20  # deployments; about two seconds


@command(
    CompareCommand,
    "specsim compare deployments.toml --concurrency 1,16,64",
    "specsim compare deployments.toml --slo ttft_mean=1 --plot compare.svg",
)
def compare(options: CompareCommand) -> None:
    """Rank any list of deployments, and say which differences are real. Methods, drafters, GPUs,
    engines, formats: each is a few options, or a server's whole command line. What cannot run is
    left out with its reason.

    \b
    A file:
      model = "llama-3.1-8b"        # options of all
      [[deployment]]
      method = "none"
      [[deployment]]
      method = "eagle3"
      [[deployment]]
      command = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
    """
    from specsim.api.compare import ComparisonStudy
    from specsim.report.comparison import comparison_picture, over_loads
    from specsim.report.doc import Doc
    from specsim.report.progress import task_bar

    study = ComparisonStudy(options)
    many = len(study.file.deployment) >= SHOW_BAR_FROM or study.file.run == "simulate"
    with task_bar(many and not quiet(options), "deployments") as report:
        result = study.run(report)
    show_drawn(
        result, options, result.to_rows, lambda: comparison_picture(Doc(result.to_dict())),
        lambda: over_loads(Doc(result.to_dict())),
    )
    end_if_partial(result.partial)
    if not result.any_ranked:
        sys.stdout.flush()
        sys.stderr.write("specsim: no deployment is left at any load; the reasons are above\n")
        raise Ended(2)

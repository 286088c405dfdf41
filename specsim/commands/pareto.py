"""`specsim pareto`: speed for one user against throughput of a GPU, over all that can be set."""

from specsim.commands.bind import command
from specsim.commands.output import check_drawing, end_if_partial, quiet, show_drawn
from specsim.options.analytic import ParetoCommand


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

    check_drawing(options)
    result = run(options, bar=not quiet(options))
    show_drawn(
        result, options, lambda: pareto_rows(result), lambda: pareto_picture(result),
        lambda: terminal_panel(result),
        document=lambda: result.to_dict(options.every_point),
    )
    end_if_partial(result.partial)

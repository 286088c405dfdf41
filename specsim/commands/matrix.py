"""`specsim matrix`: what one GPU sustains, for models x GPUs."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.analytic import MatrixCommand


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

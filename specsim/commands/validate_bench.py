"""`specsim validate bench`: a benchmark's result file beside the simulation of its load."""

from specsim.commands.bind import command
from specsim.commands.output import check_drawing, finish
from specsim.files import check_writable
from specsim.options.measured import ValidateBenchCommand


@command(
    ValidateBenchCommand,
    "specsim validate bench result.json --model qwen3-8b --gpu h100-sxm",
)
def bench(options: ValidateBenchCommand) -> None:
    """Compare benchmark results with the prediction. Simulates the load of every run in FILES
    with the acceptance that was measured there, and puts the measured figures beside the
    predicted ones."""
    from specsim.api.validate_bench import run
    from specsim.options.values import paths_of

    check_drawing(options)
    check_writable(options.out, "--out", paths_of(options.files))
    finish(run(options), options, options.max_error)

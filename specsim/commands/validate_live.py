"""`specsim validate live`: drive a server, simulate the same requests, compare."""

from specsim.commands.bind import command
from specsim.commands.output import check_drawing, finish, quiet
from specsim.files import check_writable
from specsim.options.measured import ValidateLiveCommand


@command(
    ValidateLiveCommand,
    "specsim validate live --url http://localhost:8000 qwen3-8b --concurrency 1,8",
    "specsim validate live --url http://gpu1:8000 qwen3-8b --pinned 2.5 --rate 1",
)
def live(options: ValidateLiveCommand) -> None:
    """Measure a live server and compare with the prediction. Drives the server at URL, simulates
    the same requests with the acceptance measured there, and puts the measured figures beside the
    predicted ones, with what explains the gap. Ctrl-C keeps what was finished."""
    from specsim.api.validate_live import run

    check_drawing(options)
    check_writable(options.out, "--out", [options.prompts, options.trace])
    finish(run(options, options.save_bench, bar=not quiet(options)), options, options.max_error)

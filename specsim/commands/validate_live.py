"""`specsim validate live`: drive a server, simulate the same requests, compare."""

from specsim.commands.bind import command
from specsim.commands.output import finish, quiet
from specsim.files import check_writable
from specsim.options.measured import ValidateLiveCommand


@command(ValidateLiveCommand)
def live(options: ValidateLiveCommand) -> None:
    """Drive the server at URL, simulate the same requests with the acceptance measured there, and
    put the measured figures beside the predicted ones, with what explains the gap.

    Ctrl-C keeps what was finished.
    """
    from specsim.api.validate_live import run

    check_writable(options.out, "--out", [options.prompts, options.trace])
    finish(run(options, options.save_bench, bar=not quiet(options)), options, options.max_error)

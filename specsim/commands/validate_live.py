"""`specsim validate live`: drive a server, simulate the same requests, compare."""

import sys

from specsim.commands import validate_deployment as d
from specsim.commands.bind import command
from specsim.options.measured import ValidateLiveCommand


@command(ValidateLiveCommand)
def live(options: ValidateLiveCommand) -> None:
    """Drive the server at URL, simulate the same requests with the acceptance measured there, and
    put the measured figures beside the predicted ones, with what explains the gap.

    Ctrl-C keeps what was finished.
    """
    from specsim.commands.validate_live_run import run

    bar = not options.json_out and sys.stdout.isatty() and sys.stderr.isatty()
    found, partial, stopped = run(options, bar=bar)
    d.finish(found, options.max_error, options.json_out, options.out, partial, stopped)

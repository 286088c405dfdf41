"""`specsim diagnose`: what a benchmark, a pair of /metrics dumps or a live server says about its
speculation."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.measured import DiagnoseCommand


@command(DiagnoseCommand)
def diagnose(options: DiagnoseCommand) -> None:
    """Name what speculation is doing in a run or a live server, with evidence and next steps."""
    from specsim.api.diagnose import run

    show(run(options), options)

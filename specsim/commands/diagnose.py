"""`specsim diagnose`: what a benchmark, a pair of /metrics dumps or a live server says about its
speculation."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.measured import DiagnoseCommand


@command(
    DiagnoseCommand,
    "specsim diagnose result.json qwen3-8b --gpu h100-sxm",
    "specsim diagnose --url http://localhost:8000 qwen3-8b",
)
def diagnose(options: DiagnoseCommand) -> None:
    """Say what speculation does in a benchmark or a live server. With evidence and next
    steps."""
    from specsim.api.diagnose import run

    show(run(options), options)

"""`specsim explore`: predictions on a page of this machine."""

import sys

from specsim.commands import decoder_setup as d
from specsim.commands.bind import command
from specsim.options.prediction import ExploreCommand

PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn", "plotly": "plotly"}


@command(
    ExploreCommand,
    "specsim explore",
    "specsim explore llama-3.1-8b --gpu h100-sxm --concurrency 1,8,64",
    "specsim explore --command 'vllm serve Qwen/Qwen3-8B' --no-browser --port 8050",
)
def explore(options: ExploreCommand) -> None:
    """Predict on a local page while settings are changed. It starts with the options given; Ctrl-C
    ends it. Nothing leaves this machine."""
    d.need(PACKAGES, "explore", "explore")
    from specsim.explore.fields import start
    from specsim.explore.server import serve

    serve(start(options), options.port, options.browser, _say)


def _say(address: str) -> None:
    sys.stdout.write(f"specsim explore: {address}\nCtrl-C ends it.\n")
    sys.stdout.flush()

"""`specsim watch`: a live server's batch, acceptance and steps beside the prediction. Read-only."""

import sys

from specsim.commands.bind import command
from specsim.options.measured import WatchCommand


@command(
    WatchCommand,
    "specsim watch --url http://localhost:8000 qwen3-8b --gpu h100-sxm",
)
def watch(options: WatchCommand) -> None:
    """Watch a live vLLM, SGLang or TensorRT-LLM server. Batch, acceptance, step time, and, with
    MODEL, whether speculation pays at this load and which k would. Only reads /metrics."""
    from specsim.api.watch import line_show, screen_show
    from specsim.api.watch import watch as run

    drawn = sys.stdout.isatty() and not options.once and not options.json_out
    run(options, screen_show(options.url) if drawn else line_show(options.json_out))

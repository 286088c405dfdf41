"""Predictions of one deployment: predict, and explore, which puts them on a page."""

import sys

from specsim.commands import decoder_setup as d
from specsim.commands.bind import command
from specsim.commands.output import show, terminal_plot, text_of
from specsim.options.prediction import ExploreCommand, PredictCommand


@command(
    PredictCommand,
    "specsim predict qwen3.6-27b --quantization fp8 --concurrency 1,8,64",
    "specsim predict llama-3.3-70b -tp 4 --method eagle3 -k 3 --isl 2000 --osl 500",
    "specsim predict llama-3.1-8b --method eagle3 --acceptance-length 2.4 --rate 5",
    "specsim predict --command 'vllm serve Qwen/Qwen3-8B --max-num-seqs 64'",
    "specsim predict qwen3-8b --gpu l40s --from-measured run.json --to gpu=b200",
)
def predict(options: PredictCommand) -> None:
    """Predict what speculative decoding does: speed, throughput, energy. Always beside the same
    deployment without it. With --from-measured: from your benchmark of another. Without
    MODEL: the MindRouter cluster's six models beside what that cluster reported."""
    if options.model is None and options.command is None and not options.from_measured:
        from specsim.api.mindrouter import run as run_table

        table = run_table(options)
        show(table, options, table.to_rows)
        return
    from specsim.api.predict import run

    result = run(options)

    def text() -> str:
        if not options.plot:
            return text_of(result.section(), options)
        from specsim.report.doc import Doc
        from specsim.report.predictions import terminal_panel

        drawn = terminal_plot(terminal_panel(Doc(result.to_dict())))
        return f"{text_of(result.section(), options)}\n\n{drawn}"

    points = [point.to_dict() for point in result.points]
    show(result, options, result.to_rows if result.from_measured else lambda: points, text=text)


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
    from specsim.explore.app import serve
    from specsim.explore.fields import start

    serve(start(options), options.port, options.browser, _say)


def _say(address: str) -> None:
    sys.stdout.write(f"specsim explore: {address}\nCtrl-C ends it.\n")
    sys.stdout.flush()

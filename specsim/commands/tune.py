"""`specsim tune`: the best method and draft length for a load, and what to type for it."""

from specsim.commands.bind import command
from specsim.commands.output import quiet, show
from specsim.options.tuning import TuneCommand

SHOW_BAR_FROM = 20  # loads; some seconds


@command(
    TuneCommand,
    "specsim tune qwen3.6-27b --weights fp8 --concurrency 1,16,64",
    "specsim tune llama-3.1-8b --methods eagle3,ngram --concurrency 16",
    "specsim tune qwen3.6-27b --concurrency 32 --slo stream_tok_s_mean=40",
)
def tune(options: TuneCommand) -> None:
    """Choose the method and the draft length. The best per load, a table by batch size, what would
    change the answer, and the flags to type."""
    from specsim.api.tune import loads_of, run
    from specsim.report.progress import task_bar

    many = len(loads_of(options)) >= SHOW_BAR_FROM
    with task_bar(many and not quiet(options), "loads") as report:
        result = run(options, report)
    show(result, options, result.candidate_rows)

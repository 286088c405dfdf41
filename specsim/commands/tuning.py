"""`specsim tune`: the best method and draft length for a load, and what to type for it."""

from specsim.commands.bind import command
from specsim.commands.output import quiet, show
from specsim.options.tuning import TuneCommand


@command(
    TuneCommand,
    "specsim tune qwen3.6-27b --weights fp8 --concurrency 1,16,64",
    "specsim tune llama-3.1-8b --methods eagle3,ngram --concurrency 16",
    "specsim tune qwen3.6-27b --concurrency 32 --slo stream_tok_s_mean=40",
    "specsim tune qwen3.6-27b --by batch,context --contexts 1k,8k,32k",
    "specsim tune qwen3.6-27b --concurrency 16 --plan --script runs.sh",
    "specsim tune qwen3.6-27b --concurrency 16 --from results",
)
def tune(options: TuneCommand) -> None:
    """Choose the method and the draft length. The best per load, a table by batch size, and the
    flags to type. With --by, a map over batch and context; with --plan, the few runs on your own
    server that settle the choice, with --from what they decide."""
    from specsim.api.tune import run
    from specsim.report.doc import Doc
    from specsim.report.plots_file import write_picture
    from specsim.report.tuning import tuning_picture

    result = run(options, bar=not quiet(options))
    if options.plot is not None:
        write_picture(tuning_picture(Doc(result.to_dict())), options.plot)
    show(result, options, result.to_rows if options.by else result.candidate_rows)

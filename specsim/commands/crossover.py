"""`specsim crossover`: with and without speculation while concurrency grows, by context length."""

from specsim.commands.bind import command
from specsim.commands.output import check_drawing, show_drawn
from specsim.options.analytic import CrossoverCommand


@command(
    CrossoverCommand,
    "specsim crossover qwen3.6-27b --weights fp8 --contexts 1k,8k,32k",
    "specsim crossover deepseek-v3 -tp 8 --plot crossover.svg",
    "specsim crossover llama-3.1-8b --engine sglang --rates auto",
)
def crossover(options: CrossoverCommand) -> None:
    """Find the load up to which speculation pays. Compares ordinary and speculative decoding
    while concurrency grows: up to which load speculative work is cheap, and up to which it pays, by
    context length. --rates: the same by requests per second, with queues, and why it ends."""
    from specsim.api.crossover import run
    from specsim.report.crossovers import crossover_picture, panels
    from specsim.report.doc import Doc

    check_drawing(options)
    result = run(options)
    doc = Doc(result.to_dict())
    show_drawn(result, options, result.rows, lambda: crossover_picture(doc),
               lambda: panels(doc)[0])

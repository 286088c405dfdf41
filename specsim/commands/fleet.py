"""`specsim fleet FILE`: several models with their demand on a pool of GPUs."""

from specsim.commands.bind import command
from specsim.commands.output import check_drawing, end_if_partial, quiet, show, show_drawn
from specsim.options.sizing import FleetCommand


@command(
    FleetCommand,
    "specsim fleet fleet.toml --quick",
    "specsim fleet fleet.toml --quick --day --plot day.svg --export kubernetes",
)
def fleet(options: FleetCommand) -> None:
    """Place several models on a stock of GPUs. Which endpoints, how many replicas, tensor
    parallelism, draft length and request slots serve the models of a file on its GPUs, what happens
    when a replica fails, and what does not fit.

    \b
    A file (more keys: docs/capacity.md):
      [[gpus]]
      type = "h200-sxm"
      count = 10
      [[models]]
      name = "chat"
      model = "llama-3.1-8b"
      users = 400               # or rate = 5 (requests per second)
      slo = { ttft_p95 = 2 }
      profile = "office"        # for --day: or 24 numbers
    """
    from specsim.api.fleet import run
    from specsim.report.doc import Doc
    from specsim.report.fleet_day import day_panels, day_picture

    if options.plot is not None:
        check_drawing(options)
        options = options.but(day=True)
    result = run(options, bar=not quiet(options))
    if result.day is None or not result.day.models:
        show(result, options, result.to_rows)
    else:
        doc = Doc(result.to_dict())
        show_drawn(result, options, result.to_rows, lambda: day_picture(doc),
                   lambda: day_panels(doc.at("day"))[0])
    end_if_partial(result.partial, "not everything was simulated")

"""`specsim compare`: any list of deployments at the same loads."""

import sys

from specsim.commands.bind import Ended, command
from specsim.commands.output import check_drawing, end_if_partial, quiet, show_drawn
from specsim.options.analytic import CompareCommand

SHOW_BAR_FROM = 20  # deployments; about two seconds


@command(
    CompareCommand,
    "specsim compare deployments.toml --concurrency 1,16,64",
    "specsim compare deployments.toml --slo ttft_mean=1 --plot compare.svg",
)
def compare(options: CompareCommand) -> None:
    """Rank any list of deployments, and say which differences are real. Methods, drafters, GPUs,
    engines, formats: each is a few options, or a server's whole command line. What cannot run is
    left out with its reason.

    \b
    A file:
      model = "llama-3.1-8b"        # options of all
      [[deployment]]
      method = "none"
      [[deployment]]
      method = "eagle3"
      [[deployment]]
      command = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
    """
    from specsim.api.compare import ComparisonStudy
    from specsim.report.comparison import comparison_picture, over_loads
    from specsim.report.doc import Doc
    from specsim.report.progress import task_bar

    check_drawing(options)
    study = ComparisonStudy(options)
    many = len(study.file.deployment) >= SHOW_BAR_FROM or study.file.run == "simulate"
    with task_bar(many and not quiet(options), "deployments") as report:
        result = study.run(report)
    show_drawn(
        result, options, result.to_rows, lambda: comparison_picture(Doc(result.to_dict())),
        lambda: over_loads(Doc(result.to_dict())),
    )
    end_if_partial(result.partial)
    if not result.any_ranked:
        sys.stdout.flush()
        sys.stderr.write("specsim: no deployment is left at any load; the reasons are above\n")
        raise Ended(2)

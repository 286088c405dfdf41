"""What the requests asked about look like."""

from dataclasses import replace

from specsim.analytic.workload import Workload, find_workload
from specsim.options.groups import DeploymentOptions


def build_workload(options: DeploymentOptions) -> Workload:
    """The requests asked for: a named workload, with the lengths given in its place."""
    base = find_workload(options.workload) if options.workload is not None else None
    start = base or find_workload("chat")
    given = options.input_len is not None or options.output_len is not None
    return replace(
        start,
        input_len=start.input_len if options.input_len is None else options.input_len,
        output_len=start.output_len if options.output_len is None else options.output_len,
        cached_share=options.cached_share or start.cached_share,
        name="custom" if given else start.name,
    )

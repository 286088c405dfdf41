"""What the requests asked about look like."""

from dataclasses import replace

from specsim.analytic.workload import Workload, find_workload
from specsim.errors import UsageError
from specsim.options.groups import DeploymentOptions


def build_workload(options: DeploymentOptions) -> Workload:
    """The requests asked for: a named workload, with the lengths given in its place."""
    base = find_workload(options.workload) if options.workload is not None else None
    start = base or find_workload("chat")
    given = options.input_len is not None or options.output_len is not None
    return replace(
        start, input_len=start.input_len if options.input_len is None else options.input_len,
        output_len=start.output_len if options.output_len is None else options.output_len,
        cached_share=options.cached_share or start.cached_share,
        name="custom" if given else start.name,
    )


def check_longest(options: DeploymentOptions) -> None:
    """UsageError where the requests asked about are longer than the server takes."""
    workload, limit = build_workload(options), options.max_model_len
    if limit is not None and workload.input_len + workload.output_len > limit:
        raise UsageError(
            f"requests of {workload.input_len} + {workload.output_len} tokens are asked about, but "
            f"the server takes at most {limit} (--max-model-len); shorten them with --input-len "
            "and --output-len, or raise its limit"
        )

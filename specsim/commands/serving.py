"""Loads that are simulated request by request: simulate, policies."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.serving import PoliciesCommand, SimulateCommand


@command(
    SimulateCommand,
    "specsim simulate qwen3.6-27b --weights fp8 --rate 2 --requests 200",
    "specsim simulate llama-3.1-8b --concurrency 32 --isl 4000 --osl 200",
    "specsim simulate qwen3.6-27b --rate 2 --slo ttft_p95=1,stream_tok_s_p10=40",
    "specsim simulate --scenario coding-agent --duration 200",
)
def simulate(options: SimulateCommand) -> None:
    """Simulate a load request by request. Tails, queues, bursts, prefix caches, several replicas;
    always beside the same load without speculation."""
    from specsim.api.simulate import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.rows)
    end_if_partial(result.partial, "the figures are partial")


@command(
    PoliciesCommand,
    "specsim policies llama-3.1-8b --method eagle3 -k 5 --concurrency 64",
    "specsim policies qwen3.6-27b --rate 2 --policy static --policy adaptive",
)
def policies(options: PoliciesCommand) -> None:
    """Compare policies that set the draft length while serving. Goodput, latencies, wasted drafts,
    and which differences are real. Each policy sees the same requests and random draws."""
    from specsim.api.policies import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.to_rows)
    end_if_partial(result.partial, "the figures are partial")

"""`specsim simulate`: a load on a deployment, with and without speculation, request by request."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.serving import SimulateCommand


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

"""`specsim.crossover`: with and without speculation while concurrency or the rate grows."""

from specsim.api.deployment import build_request, refused
from specsim.api.functions import python_function
from specsim.api.results import Decided, DeployedAs
from specsim.api.verdicts import deployment_of, served_names
from specsim.jsonable import Key
from specsim.options.analytic import CrossoverOptions
from specsim.options.declare import repeat
from specsim.options.values import parse_contexts, parse_rates
from specsim.planning import crossover as planning
from specsim.planning.rates import crossover_rates
from specsim.planning.verdict_results import of_crossover
from specsim.report.deployment import live


class Crossover(Decided, planning.CrossoverFigures, DeployedAs):
    """Up to which load speculative work is cheap, and up to which it pays: `curves`, or `rates`."""

    BLOCKS = "crossovers.crossover_section"
    method = Key[str]()
    draft = Key[str | None]()
    k = output_len = Key[int]()

    def live(self) -> dict[str, object]:
        return live(self.system)


def run(options: CrossoverOptions) -> Crossover:
    """Compare ordinary and speculative decoding of `model` while concurrency, or with `rates` the
    rate of requests, grows."""
    request = build_request(options, unknown=True)
    if request.unknown is not None:
        raise refused(request.unknown)
    contexts = options.contexts
    lengths = [request.workload.input_len] if contexts is None else parse_contexts(contexts)
    if options.rates is not None:
        rates = None if options.rates == "auto" else parse_rates(options.rates, "--rates")
        found = crossover_rates(
            request.system, request.workload, lengths, rates, options.ttft_slack, request.warnings
        )
    else:
        found = planning.crossover(
            request.system, request.workload, lengths, options.max_concurrency,
            options.cheap_share, request.warnings,
        )
    verdict = of_crossover(found, served_names(deployment_of(options)))
    return Crossover.of(found, repeat(options)).with_verdict(verdict)


crossover = python_function(CrossoverOptions, run)

"""`specsim.predict`: what speculative decoding does for one deployment, at one or several loads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from specsim.analytic import predict as analytic
from specsim.analytic.apart import Apart
from specsim.analytic.workload import Workload
from specsim.api.apart import apart_of
from specsim.api.deployment import DeploymentRequest, build_request
from specsim.api.functions import python_function
from specsim.api.results import Decided, DeployedAs, flat
from specsim.api.verdicts import deployment_of, served_names, unmeasured
from specsim.errors import UsageError
from specsim.jsonable import Key
from specsim.methods.registry import is_plain
from specsim.options.declare import repeat
from specsim.options.prediction import PredictOptions, TransferOptions
from specsim.options.values import parse_concurrency, parse_rates
from specsim.planning.verdict import of_prediction
from specsim.report.deployment import live
from specsim.rows import rows_at


class Prediction(Decided, analytic.PredictionFigures, DeployedAs):
    """A prediction: `points`, `break_even_concurrency`, `best_k`, `max_concurrency`, ..."""

    BLOCKS = "predictions.prediction_section"
    ep = attention_dp = k = input_len = output_len = Key[int]()
    method = Key[str]()
    draft = Key[str | None]()
    acceptance = Key[dict[str, Any] | None]()
    memory = Key[dict[str, Any]]()
    from_measured: Mapping[str, object] | None = None  # what was carried over, and from where

    def to_dict(self) -> dict[str, object]:
        carried = {} if self.from_measured is None else {"from_measured": self.from_measured}
        return {**super().to_dict(), **carried}

    def live(self) -> dict[str, object]:
        return {**live(self.system), "workload": f" ({self.workload.name})"}

    def with_measured(
        self, told: Mapping[str, object], warnings: Sequence[str], command: str
    ) -> Self:
        """This prediction, with what a measurement of another system says of it."""
        for name, value in (("from_measured", told), ("command", command),
                            ("warnings", (*warnings, *self.warnings))):
            object.__setattr__(self, name, value)  # the results are frozen
        return self

    def to_rows(self) -> list[dict[str, object]]:
        if self.from_measured is not None:
            return [flat(row) for row in rows_at(self.from_measured, "figures")]
        rows = []
        for point in self.points:
            row = point.to_dict()
            del row["interval_90"]
            for name, pair in point.interval_90.items():
                row[f"{name}.low_90"], row[f"{name}.high_90"] = pair or (None, None)
            rows.append(flat(row))
        return rows


def run(options: PredictOptions) -> Prediction:
    """Predict what speculative decoding does for `model` (a name, a config.json, its folder, a
    .gguf), or for the server of `command`; with `from_measured` for what `to` makes of it."""
    if isinstance(options, TransferOptions) and (options.from_measured or options.to is not None):
        from specsim.api.from_measured import run as run_from

        return run_from(options)
    return predicted(options)


def predicted(options: PredictOptions, *, search_k: bool = True) -> Prediction:
    """The same. search_k: whether the best draft length is looked for, most of the work."""
    request, load, apart = prepared(options, unknown=True)
    rates = clients = None
    if options.rate is not None:
        rates = parse_rates(options.rate)
    else:
        clients = parse_concurrency(options.concurrency)
    found = analytic.predict(
        request.system, load, clients, rates, request.warnings, search_k, apart
    )
    deployment = deployment_of(options)
    case = None if is_plain(deployment.method) else unmeasured(request)
    verdict = of_prediction(found, served_names(deployment), case)
    return Prediction.of(found, repeat(options)).with_verdict(verdict)


def prepared(
    options: PredictOptions, *, unknown: bool = False
) -> tuple[DeploymentRequest, Workload, Apart | None]:
    """The deployment, its load and what computes the prompts, checked. unknown: as of
    `build_request`."""
    request = build_request(options, unknown=unknown)
    load = replace(
        _varied(request.workload, options), requests_per_client=options.requests_per_client
    )
    if options.rate is not None and (options.equal_lengths or options.requests_per_client):
        raise UsageError(
            "--equal-lengths and --requests-per-client say how clients that wait for their "
            "answers move, but --rate is an open loop; leave them out or give --concurrency"
        )
    apart = apart_of(options, request.system)
    if apart is not None and options.rate is None:
        raise UsageError(
            "prefill and decode replicas are predicted at a rate; give --rate (requests per "
            "second), or `specsim simulate` clients with --concurrency"
        )
    return request, load, apart


def _varied(workload: Workload, options: PredictOptions) -> Workload:
    """Lengths as unlike as the options say; else unlike outputs, and prompts that are alike."""
    if not options.range_ratio:
        alike = options.equal_lengths or options.range_ratio is not None
        return replace(workload, spread=0.0) if alike else workload
    if options.equal_lengths:
        raise UsageError("--equal-lengths and --range-ratio contradict each other; leave one out")
    return workload.ranging(options.range_ratio)


predict = python_function(TransferOptions, run)

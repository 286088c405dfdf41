"""`specsim.predict`: what speculative decoding does for one deployment, at one or several loads."""

from typing import Any, Unpack

from specsim.analytic import predict as analytic
from specsim.api.deployment import build_request
from specsim.api.options import parse_concurrency, parse_rates
from specsim.api.parameters import PredictOptions, filled
from specsim.api.repeat import command_of
from specsim.api.results import Result, flat
from specsim.api.values import options_of
from specsim.errors import UsageError


class Prediction(Result, analytic.Prediction):
    """A prediction: `points`, `break_even_concurrency`, `best_k`, `max_concurrency`, ..."""

    def to_rows(self) -> list[dict[str, Any]]:
        rows = []
        for point in self.points:
            row = point.to_dict()
            del row["interval_90"]
            for name, pair in point.interval_90.items():
                row[f"{name}.low_90"], row[f"{name}.high_90"] = pair or (None, None)
            rows.append(flat(row))
        return rows

    def to_text(self) -> str:
        from specsim.report.predictions import prediction_text

        return prediction_text(self)


def predict(model: str | None = None, **options: Unpack[PredictOptions]) -> Prediction:
    """Predict what speculative decoding does for `model` (a name, a config.json, its folder, a
    .gguf), or for the server of `command`.

    Options are those of `specsim predict` (`gpu`, `k`, `concurrency=[1, 8, 64]`, ...). Raises
    `specsim.errors.SpecSimError` for whatever a caller can correct."""
    values = filled("predict", model, options)
    return Prediction.of(run(values), command_of("predict", values))


def run(values: dict[str, Any]) -> analytic.Prediction:
    """The prediction for checked values of all options by name, as the command line has them."""
    if values["model"] is None and values["command"] is None:
        raise UsageError("a MODEL is needed; `specsim models` lists them")
    if values["concurrency"] is not None and values["rate"] is not None:
        raise UsageError("--concurrency is a closed loop and --rate an open one; give one of them")
    request = build_request(options_of(values))
    rates = clients = None
    if values["rate"] is not None:
        rates = parse_rates(values["rate"])
    else:
        clients = parse_concurrency(values["concurrency"])
    return analytic.predict(request.system, request.workload, clients, rates, request.warnings)

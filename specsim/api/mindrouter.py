"""The MindRouter cluster's six endpoints as served, beside the speedups that it reported.

Each row is `predict` of the deployment that `catalog/mindrouter.toml` states, at one client.
"""

from dataclasses import dataclass

from specsim.analytic.mindrouter import ReportedEndpoint
from specsim.api import predict
from specsim.data import data_table
from specsim.errors import UsageError
from specsim.options.declare import declared
from specsim.options.prediction import PredictCommand, PredictOptions
from specsim.report.blocks import Section
from specsim.report.doc import Doc

# What holds for the table too; all else describes a model of one's own.
_ALLOWED = ("gpu", "engine", "fidelity", "profiles", "json_out", "wide", "csv_out")


@dataclass(frozen=True)
class MindrouterTable:
    endpoints: tuple[ReportedEndpoint, ...]

    def to_dict(self) -> dict[str, object]:
        return {"kind": "mindrouter", "table": self.to_rows()}

    def to_rows(self) -> list[dict[str, object]]:
        return [row.to_dict() for row in self.endpoints]

    def section(self) -> Section:
        from specsim.report.scores import mindrouter_section

        first = self.endpoints[0].prediction.system
        head = (
            f"MindRouter cluster: predicted beside reported, one client, {first.profile.title}, "
            f"{first.engine.described}, fidelity: {first.fidelity}"
        )
        return mindrouter_section(Doc({**self.to_dict(), "live": {"head": head}}))


def run(options: PredictCommand) -> MindrouterTable:
    """The table on the GPU and engine asked for. Defaults of specsim.toml are for models of one's
    own, not for this table."""
    asked = PredictCommand(**{name: getattr(options, name) for name in options.typed})
    for name, item in declared(PredictCommand).items():
        if name not in _ALLOWED and getattr(asked, name) != item.default:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} needs a MODEL; `specsim models` lists them")
    return table(PredictOptions(
        gpu=asked.gpu, engine=asked.engine, fidelity=asked.fidelity, profiles=asked.profiles,
    ))


def table(priced: PredictOptions | None = None) -> MindrouterTable:
    """The six endpoints. priced: GPU, engine and what else holds for all of them."""
    rows = []
    for item in data_table("catalog", "mindrouter.toml")["endpoint"]:
        asked = (priced or PredictOptions()).but(concurrency="1", kv=item["kv_dtype"], **{
            name: item[name] for name in PredictOptions.model_fields if name in item
        })
        found = predict.run(asked)
        rows.append(ReportedEndpoint(
            item["name"], found, item["weights"], item["kv_dtype"], item["acceptance_source"],
            item["acceptance_assumed"], item["reported_speedup"], item["notes"], found.command,
        ))
    return MindrouterTable(tuple(rows))

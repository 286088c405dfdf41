"""The MindRouter cluster's six endpoints as served, beside the speedups that it reported."""

from dataclasses import dataclass

from specsim.analytic.mindrouter import ReportedEndpoint, predict_table
from specsim.errors import UsageError
from specsim.options.declare import declared
from specsim.options.prediction import PredictCommand
from specsim.options.values import profile_folder
from specsim.report.blocks import Section

# What holds for the table too; all else describes a model of one's own.
_ALLOWED = ("gpu", "engine", "fidelity", "profiles", "json_out", "csv_out")


@dataclass(frozen=True)
class MindrouterTable:
    endpoints: tuple[ReportedEndpoint, ...]

    def to_dict(self) -> dict[str, object]:
        return {"kind": "mindrouter", "table": self.to_rows()}

    def to_rows(self) -> list[dict[str, object]]:
        return [row.to_dict() for row in self.endpoints]

    def section(self) -> Section:
        from specsim.report.mindrouter import mindrouter_blocks

        return mindrouter_blocks(self.endpoints)


def run(options: PredictCommand) -> MindrouterTable:
    """The table on the GPU and engine asked for. Defaults of specsim.toml are for models of one's
    own, not for this table."""
    asked = PredictCommand(**{name: getattr(options, name) for name in options.typed})
    for name, item in declared(PredictCommand).items():
        if name not in _ALLOWED and getattr(asked, name) != item.default:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} needs a MODEL; `specsim models` lists them")
    folder = profile_folder(asked.profiles)
    rows = predict_table(asked.gpu, asked.engine, asked.fidelity, folder)
    return MindrouterTable(tuple(rows))

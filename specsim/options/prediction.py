"""Options of predict."""

from typing import ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import opt
from specsim.options.groups import (
    AcceptanceOptions,
    BatchLimitsOptions,
    DraftShareOptions,
    LoadOptions,
    MemoryShareOptions,
    ModelArgument,
    OutputOptions,
    PricingOptions,
    RequestOptions,
    ServerCommandOptions,
    ServerOptions,
    TreeOptions,
)


class SpeedupPlotOptions(OutputOptions):
    plot: bool = opt(
        False, help="Also draw the speedup over the load in the terminal.", output=True,
    )

    @model_validator(mode="after")
    def _plot_in_text(self) -> Self:
        if self.plot and (self.json_out or self.csv_out):
            raise UsageError("--plot draws in the terminal; leave it out with --json and --csv")
        return self


class PredictOptions(
    ModelArgument, ServerCommandOptions, ServerOptions, AcceptanceOptions, TreeOptions,
    DraftShareOptions, RequestOptions, LoadOptions, BatchLimitsOptions, MemoryShareOptions,
    PricingOptions,
):
    NAME: ClassVar = "predict"


class PredictCommand(PredictOptions, SpeedupPlotOptions):
    """`specsim predict`."""

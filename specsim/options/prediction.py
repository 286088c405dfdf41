"""Options of predict, and of explore, which asks for predictions on a page."""

from typing import ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options import apart, groups
from specsim.options.declare import OptionSet, opt
from specsim.options.values import FilePaths, named_path


class RunOptions(OptionSet, section="Advanced"):
    """A benchmark's run of a closed loop, where it is no steady state of unlike requests."""

    equal_lengths: bool = opt(
        False,
        help="All requests have exactly these lengths: clients that start together may stay "
             "together.",
    )
    requests_per_client: int = opt(
        0, help="Requests of each client in a run that starts with all at once, whose mean TTFT "
                "is given; 0: steady state.",
        ge=0, le=1_000_000,
    )


class PredictOptions(
    groups.ModelArgument, groups.ServerCommandOptions, groups.DescribedOptions,
    groups.RequestOptions, groups.LengthRangeOptions, RunOptions, groups.LoadOptions,
    apart.ApartOptions, groups.BatchLimitsOptions, groups.LongestRequestOptions,
    groups.PricedOptions,
):
    NAME: ClassVar = "predict"


class TransferOptions(PredictOptions, section="Measurements"):
    """A prediction, also of a system from a measurement of another."""

    from_measured: FilePaths | None = opt(
        None,
        help="Benchmark result of the system that the other options describe (as `specsim import` "
             "reads); repeatable. FILE@acceptance_length=2.4 states what it leaves out.",
        metavar="FILE", parser=named_path,
    )
    to: str | None = opt(
        None,
        help="With --from-measured: what is to be another. gpu, link, tp, engine, k, concurrency, "
             "input_len, output_len: gpu=b200,tp=4.",
        metavar="NAME=VALUE",
    )


class PredictCommand(TransferOptions, groups.OutputOptions):
    """`specsim predict`."""

    plot: bool = opt(
        False, help="Also draw the speedup over the load in the terminal.", output=True,
    )

    @model_validator(mode="after")
    def _plot_in_text(self) -> Self:
        if self.plot and (self.json_out or self.csv_out):
            raise UsageError("--plot draws in the terminal; leave it out with --json and --csv")
        return self


class ExploreCommand(PredictOptions, section="Server"):
    """`specsim explore`."""

    NAME: ClassVar = "explore"

    port: int = opt(0, help="Port on 127.0.0.1; 0 takes a free one.", ge=0, le=65535)
    browser: bool = opt(
        True, "--browser/--no-browser", help="Open the page in the browser.",
    )

"""Options of what asks many runs: capacity, fleet, sweep."""

from collections.abc import Sequence
from typing import ClassVar

from specsim.options import apart, groups, serving
from specsim.options.analytic import DrawnOptions
from specsim.options.declare import REQUIRED, OptionSet, opt
from specsim.options.values import FilePath, Numbers, TextPath

MAX_DEMAND = 1e8


class DemandOptions(OptionSet, section="Load"):
    """What is to be served."""

    users: int | None = opt(
        None, ge=1, le=MAX_DEMAND,
        help="People who chat at the same time that are to be served: their replicas are counted.",
    )
    rate: float | None = opt(
        None, help="Requests per second that are to be served.", also=("--request-rate",),
        gt=0, le=MAX_DEMAND, rule=f"requests per second, above 0 and at most {MAX_DEMAND:g}",
    )
    demand: TextPath | None = opt(
        None,
        help="File of a demand over time: CSV with a column users or rate, or TOML, JSON with "
             "such a list.",
    )
    unit: str | None = opt(
        None, help="Capacity in users or rate. Default: as the demand, else users.",
        choices=("users", "rate"),
    )


class CapacityAnswerOptions(OptionSet, section="Study"):
    """What is answered, and how exactly."""

    ladder: Numbers | None = opt(
        None, help="Only these stages, as a load test: 144,180,216 or FROM:TO:STEP.",
    )
    stream_floor: float | None = opt(
        None, gt=0, le=100_000, rule="tokens per second, above 0 and to 100000",
        help="Recommend the max_num_seqs that keeps so many tokens/s per stream (p10) with all "
             "request slots taken. Default: the SLO's stream_tok_s_p10.",
    )
    no_stream_floor: bool = opt(False, help="Recommend no max_num_seqs.")
    operating_share: float = opt(0.8, help="Share of the capacity to run at.", gt=0, le=1)
    price_per_gpu_hour: float | None = opt(
        None, help="Price of one GPU for one hour.",
        gt=0, lt=1e6, rule="above 0 and below 1000000 per hour",
    )
    resolution: float = opt(
        0.05, help="Width of the answer, a share of the capacity.", ge=0.001, le=1,
    )
    replications: int | None = opt(
        None, ge=2, le=1000,
        help="Most runs per load (fewer where the case is clear). Default: 16.",
    )
    quick: bool = opt(
        False, help="A rough answer: two runs per load, of this deployment alone, and the loads "
                    "between which its capacity lies.",
    )
    baseline: bool = opt(
        True, "--baseline/--no-baseline", help="Also the capacity without speculation.",
    )


class CapacityOptions(
    groups.ModelArgument, groups.ServerCommandOptions, DemandOptions, serving.ScenarioOptions,
    serving.GatesOptions, CapacityAnswerOptions, groups.JobsOptions, groups.SeedOptions,
    serving.StageOptions, serving.VariationOptions, groups.ServerOptions, groups.AcceptanceOptions,
    serving.AcceptanceSpreadOptions, groups.TreeOptions, groups.DraftShareOptions,
    groups.RequestOptions, apart.ApartOptions, serving.GatewayOptions, groups.BatchLimitsOptions,
    serving.CacheOptions, groups.PricedOptions,
):
    NAME: ClassVar = "capacity"


class CapacityCommand(CapacityOptions, groups.OutputOptions):
    """`specsim capacity`."""


class FleetOptions(groups.SeedOptions, groups.JobsOptions, groups.ProfilesOptions, section="Study"):
    NAME: ClassVar = "fleet"

    file: TextPath = opt(
        REQUIRED, help="Fleet file, TOML or JSON; see docs/capacity.md.", argument=True,
    )
    quick: bool = opt(False, help="Capacities by formulas, without simulation.")
    day: bool = opt(
        False, help="Also a day: GPUs by the hour with and without speculation, autoscaling, "
                    "failures. So too where FILE has [day].",
    )
    export: TextPath | None = opt(
        None, output=True,
        help="Folder to write the day for Kubernetes, KEDA, vLLM's Helm chart and Dynamo's "
             "planner to. It and --plot imply --day.",
    )


class FleetCommand(FleetOptions, DrawnOptions):
    """`specsim fleet`."""


class SweepOptions(OptionSet, section="Study"):
    NAME: ClassVar = "sweep"

    file: FilePath | None = opt(
        None, help="A .toml that defines the sweep (see docs/planning.md).", argument=True,
    )
    run: str | None = opt(None, help="simulate or predict; default: as in FILE, or simulate.")
    set_: Sequence[str] | None = opt(
        None, help="NAME=VALUE: an option of every task. Repeat for more.",
    )
    grid: Sequence[str] | None = opt(
        None,
        help="NAME=V1,V2,...: values to try (';' between values that hold commas). Repeat for "
             "more: all combinations.",
    )
    repeats: int | None = opt(None, help="Runs of each combination, each with its own seed.")
    executor: str = opt(
        "local",
        help="local, dask://HOST:PORT or ray://HOST:PORT; dask://local and ray://local start a "
             "private cluster.",
    )
    workers: int | None = opt(None, help="Worker processes; default: the cores there are.")
    journal: TextPath | None = opt(
        None, help="Where finished tasks are kept; default: FILE.journal.jsonl.",
    )
    restart: bool = opt(False, help="Forget what the journal has.")
    out: TextPath | None = opt(
        None, help="Write all rows to a .csv, .jsonl or .parquet file.", output=True,
    )
    rows: bool = opt(
        True, "--rows/--no-rows", help="Rows in --json; without them what is said of all.",
        output=True,
    )
    columns: str | None = opt(None, help="Results to show, e.g. output_tok_s,tpot_s.mean.")


class SweepCommand(SweepOptions, groups.PlotFileOptions, groups.OutputOptions):
    """`specsim sweep`."""

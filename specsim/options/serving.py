"""Options of what is simulated: simulate, capacity, fleet, sweep."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import Opt, OptionSet
from specsim.options.groups import (
    AcceptanceOptions,
    BatchLimitsOptions,
    DraftShareOptions,
    JobsOptions,
    MemoryShareOptions,
    ModelArgument,
    OutputOptions,
    PricingOptions,
    ProfilesOptions,
    RequestOptions,
    SeedOptions,
    ServerCommandOptions,
    ServerOptions,
    TreeOptions,
)
from specsim.options.values import FilePath, Numbers, TextPath

MAX_DURATION_S = 100_000_000  # three years
MAX_CLIENTS = 100_000
MAX_DEMAND = 1e8
FINITE = float("inf")


class ScenarioOptions(OptionSet):
    scenario: Annotated[
        TextPath | None, Opt(help="A scenario by name (mindrouter-chat) or a .toml.")
    ] = None


class GatesOptions(OptionSet):
    slo: Annotated[
        str | Mapping[str, float] | None,
        Opt(help="Gates, e.g. ttft_p95=2,stream_tok_s_p10=15."),
    ] = None


class StageOptions(OptionSet):
    """How long a run is, and what of it is measured."""

    duration: Annotated[
        float | None,
        Opt(help="Simulated seconds.", gt=0, lt=FINITE, rule="seconds, above 0 and finite"),
    ] = None
    warmup: Annotated[
        float | None,
        Opt(help="Seconds at the start that are not measured.", ge=0, lt=FINITE,
            rule="seconds, 0 or more, and finite"),
    ] = None

    @model_validator(mode="after")
    def _not_for_ever(self) -> Self:
        if self.duration is not None and self.duration > MAX_DURATION_S:
            raise UsageError(
                f"--duration is {self.duration:g}; it must be at most {MAX_DURATION_S} simulated "
                "seconds"
            )
        return self


class VariationOptions(OptionSet):
    burstiness: Annotated[
        float | None,
        Opt(help="Gamma shape of the gaps: 1 Poisson, inf even spacing.", gt=0,
            rule="above 0 (1: Poisson, below: bursts, inf: even)"),
    ] = None
    range_ratio: Annotated[
        float | None,
        Opt(help="Lengths vary by this share, uniformly.", ge=0, lt=1, rule="from 0 to below 1"),
    ] = None


class AcceptanceSpreadOptions(OptionSet):
    easiness: Annotated[
        str | None,
        Opt(help="How acceptance varies over requests and steps: a name from "
            "catalog/easiness.csv, or none."),
    ] = None


class GatewayOptions(OptionSet):
    max_concurrent: Annotated[
        int,
        Opt(help="Requests a gateway lets into one replica; 0: all.", ge=0, le=1_000_000),
    ] = 0


class CacheOptions(OptionSet):
    max_model_len: Annotated[
        int | None, Opt(help="Longest prompt + output, tokens.", ge=1, le=100_000_000)
    ] = None
    prefix_caching: Annotated[
        bool | None,
        Opt("--prefix-caching/--no-prefix-caching", help="Default: as the engine."),
    ] = None


class SimulatedLoadOptions(OptionSet):
    """The load: one of a rate, clients, people, a trace or a scenario."""

    rate: Annotated[
        float | None,
        Opt(help="Requests per second (open loop); inf: all at once.", gt=0,
            rule="above 0 requests per second, or inf for all at once"),
    ] = None
    concurrency: Annotated[
        int | None,
        Opt(help="Clients in a closed loop (or streams that never pause, with --scenario).",
            ge=1, le=MAX_CLIENTS),
    ] = None
    users: Annotated[
        int | None, Opt(help="Simulated people who chat.", ge=1, le=MAX_CLIENTS)
    ] = None
    trace: Annotated[
        TextPath | None,
        Opt(help="Recorded requests: Azure, BurstGPT, Mooncake, timed_trace, ShareGPT lengths. "
            "With --rate or --concurrency: sent at that pace."),
    ] = None
    sort_trace: Annotated[
        bool, Opt(help="Accept a trace that is slightly out of order.")
    ] = False


class RequestCountOptions(OptionSet):
    requests: Annotated[
        int | None, Opt(help="How many requests.", ge=1, le=10_000_000)
    ] = None


class RunsOptions(SeedOptions):
    replications: Annotated[
        int, Opt(help="Runs with seeds seed, seed + 1, ...", ge=1, le=1000)
    ] = 1
    precision: Annotated[
        float | None,
        Opt(help="Go on replicating until the 95 % intervals of TTFT, TPOT and throughput are "
            "this narrow, e.g. 0.02.", gt=0, lt=1,
            rule="a share of the mean, above 0 and below 1"),
    ] = None


class BaselineOptions(OptionSet):
    baseline: Annotated[
        bool,
        Opt("--baseline/--no-baseline", help="Also the same load without speculation."),
    ] = True


class AdaptiveOptions(OptionSet):
    adaptive: Annotated[bool, Opt(help="SGLang's adaptive draft length, up to k.")] = False


class ReplicaOptions(OptionSet):
    replicas: Annotated[
        int, Opt(help="Equal replicas behind a router.", ge=1, le=4096)
    ] = 1
    router: Annotated[
        str, Opt(help="round_robin, least_loaded, power_of_two or prefix_affinity.")
    ] = "round_robin"


class FailureOptions(OptionSet):
    fail: Annotated[
        str | None,
        Opt(help="Failures, REPLICA:FROM_S:TO_S, comma separated, e.g. 0:60:120."),
    ] = None
    request_timeout: Annotated[
        float | None,
        Opt(help="Clients give up after so many seconds.", gt=0, lt=FINITE,
            rule="seconds, above 0, and finite"),
    ] = None


class ExportOptions(OptionSet):
    """Files that are written besides."""

    trace_out: Annotated[
        TextPath | None,
        Opt(help="Write a Chrome trace (opens in Perfetto).", output=True),
    ] = None
    records: Annotated[
        TextPath | None,
        Opt(help="Write one record per request: .jsonl or .csv.", output=True),
    ] = None
    export: Annotated[
        TextPath | None,
        Opt(help="Write the requests for other tools: .csv, .json, .jsonl or .parquet.",
            output=True),
    ] = None
    export_vllm_bench: Annotated[
        TextPath | None,
        Opt(help="Write a result as `vllm bench serve --save-detailed` does (.json).",
            output=True),
    ] = None
    export_prometheus: Annotated[
        TextPath | None,
        Opt(help="Write Prometheus text under vLLM's metric names.", output=True),
    ] = None


class SimulateOptions(
    ModelArgument, ServerCommandOptions, SimulatedLoadOptions, ScenarioOptions,
    RequestCountOptions, StageOptions, VariationOptions, RunsOptions, GatesOptions,
    BaselineOptions, ServerOptions, AcceptanceOptions, AcceptanceSpreadOptions, AdaptiveOptions,
    TreeOptions, DraftShareOptions, RequestOptions, ReplicaOptions, GatewayOptions,
    FailureOptions, BatchLimitsOptions, CacheOptions, MemoryShareOptions, PricingOptions,
    ExportOptions,
):
    NAME: ClassVar = "simulate"


class SimulateCommand(SimulateOptions, OutputOptions):
    """`specsim simulate`."""


class DemandOptions(OptionSet):
    """What is to be served."""

    users: Annotated[
        int | None,
        Opt(help="People who chat at the same time that are to be served: their replicas are "
            "counted.", ge=1, le=MAX_DEMAND),
    ] = None
    rate: Annotated[
        float | None,
        Opt(help="Requests per second that are to be served.", gt=0, le=MAX_DEMAND,
            rule=f"requests per second, above 0 and at most {MAX_DEMAND:g}"),
    ] = None
    demand: Annotated[
        TextPath | None,
        Opt(help="File of a demand over time: CSV with a column users or rate, or TOML, JSON "
            "with such a list."),
    ] = None
    unit: Annotated[
        str | None,
        Opt(help="Capacity in users or rate. Default: as the demand, else users."),
    ] = None


class CapacityAnswerOptions(OptionSet):
    """What is answered, and how exactly."""

    ladder: Annotated[
        Numbers | None,
        Opt(help="Only these stages, as a load test: 144,180,216 or FROM:TO:STEP."),
    ] = None
    stream_floor: Annotated[
        float | None,
        Opt(help="Recommend the max_num_seqs that keeps so many tokens/s per stream (p10) with "
            "all seats taken. Default: the SLO's stream_tok_s_p10.", gt=0, le=100_000,
            rule="tokens per second, above 0 and to 100000"),
    ] = None
    no_stream_floor: Annotated[bool, Opt(help="Recommend no max_num_seqs.")] = False
    operating_share: Annotated[
        float, Opt(help="Share of the capacity to run at.", gt=0, le=1)
    ] = 0.8
    price_per_gpu_hour: Annotated[
        float | None, Opt(help="Price of one GPU for one hour.")
    ] = None
    resolution: Annotated[
        float, Opt(help="Width of the answer, a share of the capacity.", ge=0.001, le=1)
    ] = 0.05
    replications: Annotated[
        int,
        Opt(help="Most runs per load (fewer where the case is clear).", ge=2, le=1000),
    ] = 24


class CapacityBaselineOptions(OptionSet):
    baseline: Annotated[
        bool,
        Opt("--baseline/--no-baseline", help="Also the capacity without speculation."),
    ] = True


class CapacityOptions(
    ModelArgument, ServerCommandOptions, DemandOptions, ScenarioOptions, GatesOptions,
    CapacityAnswerOptions, JobsOptions, SeedOptions, CapacityBaselineOptions, StageOptions,
    VariationOptions, ServerOptions, AcceptanceOptions, AcceptanceSpreadOptions, TreeOptions,
    DraftShareOptions, RequestOptions, GatewayOptions, BatchLimitsOptions, CacheOptions,
    MemoryShareOptions, PricingOptions,
):
    NAME: ClassVar = "capacity"


class CapacityCommand(CapacityOptions, OutputOptions):
    """`specsim capacity`."""


class FleetFileOptions(OptionSet):
    file: Annotated[
        TextPath,
        Opt(help="Fleet file, TOML or JSON; see docs/capacity.md.", argument=True),
    ]
    quick: Annotated[bool, Opt(help="Capacities by formulas, without simulation.")] = False


class FleetOptions(FleetFileOptions, SeedOptions, JobsOptions, ProfilesOptions):
    NAME: ClassVar = "fleet"


class FleetCommand(FleetOptions, OutputOptions):
    """`specsim fleet`."""


class SweepOptions(OptionSet):
    NAME: ClassVar = "sweep"

    file: Annotated[
        FilePath | None,
        Opt(help="A .toml that defines the sweep (see docs/planning.md).", argument=True),
    ] = None
    run: Annotated[
        str | None, Opt(help="simulate or predict; default: as in FILE, or simulate.")
    ] = None
    set_: Annotated[
        Sequence[str] | None, Opt(help="NAME=VALUE: an option of every task. Repeat for more.")
    ] = None
    grid: Annotated[
        Sequence[str] | None,
        Opt(help="NAME=V1,V2,...: values to try (';' between values that hold commas). Repeat "
            "for more: all combinations."),
    ] = None
    repeats: Annotated[
        int | None, Opt(help="Runs of each combination, each with its own seed.")
    ] = None
    executor: Annotated[
        str,
        Opt(help="local, dask://HOST:PORT or ray://HOST:PORT; dask://local and ray://local "
            "start a private cluster."),
    ] = "local"
    workers: Annotated[
        int | None, Opt(help="Worker processes; default: the cores there are.")
    ] = None
    journal: Annotated[
        TextPath | None,
        Opt(help="Where finished tasks are kept; default: FILE.journal.jsonl."),
    ] = None
    restart: Annotated[bool, Opt(help="Forget what the journal has.")] = False
    out: Annotated[
        TextPath | None, Opt(help="Write all rows to a .csv or .jsonl file.", output=True)
    ] = None
    columns: Annotated[
        str | None, Opt(help="Results to show, e.g. output_tok_s,tpot_s.mean.")
    ] = None


class SweepCommand(SweepOptions, OutputOptions):
    """`specsim sweep`."""

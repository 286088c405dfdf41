"""Options of what is simulated: simulate, capacity, fleet, sweep."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import REQUIRED, OptionSet, opt
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
    scenario: TextPath | None = opt(None, help="A scenario by name (mindrouter-chat) or a .toml.")


class GatesOptions(OptionSet):
    slo: str | Mapping[str, float] | None = opt(
        None, help="Gates, e.g. ttft_p95=2,stream_tok_s_p10=15.",
    )


class StageOptions(OptionSet):
    """How long a run is, and what of it is measured."""

    duration: float | None = opt(
        None, help="Simulated seconds.", gt=0, lt=FINITE, rule="seconds, above 0 and finite",
    )
    warmup: float | None = opt(
        None, help="Seconds at the start that are not measured.",
        ge=0, lt=FINITE, rule="seconds, 0 or more, and finite",
    )

    @model_validator(mode="after")
    def _not_for_ever(self) -> Self:
        if self.duration is not None and self.duration > MAX_DURATION_S:
            raise UsageError(
                f"--duration is {self.duration:g}; it must be at most {MAX_DURATION_S} simulated "
                "seconds"
            )
        return self


class VariationOptions(OptionSet):
    burstiness: float | None = opt(
        None, help="Gamma shape of the gaps: 1 Poisson, inf even spacing.",
        gt=0, rule="above 0 (1: Poisson, below: bursts, inf: even)",
    )
    range_ratio: float | None = opt(
        None, help="Lengths vary by this share, uniformly.", ge=0, lt=1, rule="from 0 to below 1",
    )


class AcceptanceSpreadOptions(OptionSet):
    easiness: str | None = opt(
        None, "--acceptance-spread", "--easiness",
        help="How acceptance varies over requests and steps: a name from "
             "catalog/acceptance_spread.csv, or none.",
    )


class GatewayOptions(OptionSet):
    max_concurrent: int = opt(
        0, help="Requests a gateway lets into one replica; 0: all.", ge=0, le=1_000_000,
    )


class CacheOptions(OptionSet):
    max_model_len: int | None = opt(
        None, help="Longest prompt + output, tokens.", ge=1, le=100_000_000,
    )
    prefix_caching: bool | None = opt(
        None, "--prefix-caching/--no-prefix-caching", help="Default: as the engine.",
    )


class SimulatedLoadOptions(OptionSet):
    """The load: one of a rate, clients, people, a trace or a scenario."""

    rate: float | None = opt(
        None, help="Requests per second (open loop); inf: all at once.",
        gt=0, rule="above 0 requests per second, or inf for all at once",
    )
    concurrency: int | None = opt(
        None, help="Clients in a closed loop (or streams that never pause, with --scenario).",
        ge=1, le=MAX_CLIENTS,
    )
    users: int | None = opt(None, help="Simulated people who chat.", ge=1, le=MAX_CLIENTS)
    trace: TextPath | None = opt(
        None,
        help="Recorded requests: Azure, BurstGPT, Mooncake, timed_trace, ShareGPT lengths. With "
             "--rate or --concurrency: sent at that pace.",
    )
    sort_trace: bool = opt(False, help="Accept a trace that is slightly out of order.")


class RequestCountOptions(OptionSet):
    requests: int | None = opt(None, help="How many requests.", ge=1, le=10_000_000)


class RunsOptions(SeedOptions):
    replications: int = opt(1, help="Runs with seeds seed, seed + 1, ...", ge=1, le=1000)
    precision: float | None = opt(
        None, gt=0, lt=1, rule="a share of the mean, above 0 and below 1",
        help="Go on replicating until the 95 % intervals of TTFT, TPOT and throughput are this "
             "narrow, e.g. 0.02.",
    )


class BaselineOptions(OptionSet):
    baseline: bool = opt(
        True, "--baseline/--no-baseline", help="Also the same load without speculation.",
    )


class AdaptiveOptions(OptionSet):
    adaptive: bool = opt(False, help="SGLang's adaptive draft length, up to k.")


class ReplicaOptions(OptionSet):
    replicas: int = opt(1, help="Equal replicas behind a router.", ge=1, le=4096)
    router: str = opt(
        "round_robin", help="round_robin, least_loaded, power_of_two or prefix_affinity.",
    )


class FailureOptions(OptionSet):
    fail: str | None = opt(
        None, help="Failures, REPLICA:FROM_S:TO_S, comma separated, e.g. 0:60:120.",
    )
    request_timeout: float | None = opt(
        None, help="Clients give up after so many seconds.",
        gt=0, lt=FINITE, rule="seconds, above 0, and finite",
    )


class ExportOptions(OptionSet):
    """Files that are written besides."""

    trace_out: TextPath | None = opt(
        None, help="Write a Chrome trace (opens in Perfetto).", output=True,
    )
    records: TextPath | None = opt(
        None, help="Write one record per request: .jsonl or .csv.", output=True,
    )
    export: TextPath | None = opt(
        None, help="Write the requests for other tools: .csv, .json, .jsonl or .parquet.",
        output=True,
    )
    export_vllm_bench: TextPath | None = opt(
        None, help="Write a result as `vllm bench serve --save-detailed` does (.json).",
        output=True,
    )
    export_prometheus: TextPath | None = opt(
        None, help="Write Prometheus text under vLLM's metric names.", output=True,
    )


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

    users: int | None = opt(
        None, ge=1, le=MAX_DEMAND,
        help="People who chat at the same time that are to be served: their replicas are counted.",
    )
    rate: float | None = opt(
        None, help="Requests per second that are to be served.",
        gt=0, le=MAX_DEMAND, rule=f"requests per second, above 0 and at most {MAX_DEMAND:g}",
    )
    demand: TextPath | None = opt(
        None,
        help="File of a demand over time: CSV with a column users or rate, or TOML, JSON with "
             "such a list.",
    )
    unit: str | None = opt(
        None, help="Capacity in users or rate. Default: as the demand, else users.",
    )


class CapacityAnswerOptions(OptionSet):
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
    price_per_gpu_hour: float | None = opt(None, help="Price of one GPU for one hour.")
    resolution: float = opt(
        0.05, help="Width of the answer, a share of the capacity.", ge=0.001, le=1,
    )
    replications: int = opt(
        24, help="Most runs per load (fewer where the case is clear).", ge=2, le=1000,
    )


class CapacityBaselineOptions(OptionSet):
    baseline: bool = opt(
        True, "--baseline/--no-baseline", help="Also the capacity without speculation.",
    )


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
    file: TextPath = opt(
        REQUIRED, help="Fleet file, TOML or JSON; see docs/capacity.md.", argument=True,
    )
    quick: bool = opt(False, help="Capacities by formulas, without simulation.")


class FleetOptions(FleetFileOptions, SeedOptions, JobsOptions, ProfilesOptions):
    NAME: ClassVar = "fleet"


class FleetCommand(FleetOptions, OutputOptions):
    """`specsim fleet`."""


class SweepOptions(OptionSet):
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
    out: TextPath | None = opt(None, help="Write all rows to a .csv or .jsonl file.", output=True)
    columns: str | None = opt(None, help="Results to show, e.g. output_tok_s,tpot_s.mean.")


class SweepCommand(SweepOptions, OutputOptions):
    """`specsim sweep`."""

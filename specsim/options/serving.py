"""Options of simulate, and those that capacity shares with it."""

from collections.abc import Mapping
from typing import ClassVar

from specsim.options import apart, groups
from specsim.options.declare import OptionSet, opt
from specsim.options.values import TextPath

MAX_DURATION_S = 100_000_000  # three years
MAX_CLIENTS = 100_000
FINITE = float("inf")


class ScenarioOptions(OptionSet, section="Load"):
    scenario: TextPath | None = opt(
        None, help="A scenario by name (mindrouter-chat, coding-agent, tool-assistant, rag-chat) "
                   "or a .toml.",
    )


class GatesOptions(OptionSet, section="Study"):
    slo: str | Mapping[str, float] | None = opt(
        None, help="Service-level objectives, e.g. ttft_p95=2,stream_tok_s_p10=15.",
    )


class StageOptions(OptionSet, section="Load"):
    """How long a run is, and what of it is measured."""

    duration: float | None = opt(
        None, help="Simulated seconds.", gt=0, le=MAX_DURATION_S,
        rule=f"seconds, above 0 and at most {MAX_DURATION_S}",
    )
    warmup: float | None = opt(
        None, help="Seconds at the start that are not measured.",
        ge=0, lt=FINITE, rule="seconds, 0 or more, and finite",
    )
    settled: bool = opt(
        False, help="Start in steady service, with users in the middle of conversations as long "
                    "as after hours, instead of all beginning together as in a load test.",
    )


class VariationOptions(groups.LengthRangeOptions, section="Load"):
    burstiness: float | None = opt(
        None, help="Gamma shape of the gaps: 1 Poisson, inf even spacing.",
        gt=0, rule="above 0 (1: Poisson, below: bursts, inf: even)",
    )


class AcceptanceSpreadOptions(OptionSet, section="Acceptance"):
    easiness: str | None = opt(
        None, "--acceptance-spread", "--easiness",
        help="How acceptance varies over requests and steps: a name from "
             "catalog/acceptance_spread.csv, or none.",
    )


class AcceptanceTraceOptions(OptionSet, section="Acceptance"):
    acceptance_trace: str | None = opt(
        None, help="Recorded acceptance to replay: a JSON list per line, the accepted drafts of "
                   "each verify step of one request, in order (the bonus token not counted).",
    )


class GatewayOptions(OptionSet, section="Engine limits"):
    max_concurrent: int = opt(
        0, help="Requests a gateway lets into one replica; 0: all.", ge=0, le=1_000_000,
    )


class CacheOptions(groups.LongestRequestOptions):
    prefix_caching: bool | None = opt(
        None, "--prefix-caching/--no-prefix-caching",
        help="Prefix caching. Default: as the engine.",
        also=("--enable-prefix-caching/--no-enable-prefix-caching",),
    )


class SimulatedLoadOptions(OptionSet, section="Load"):
    """The load: one of a rate, clients, people, a trace or a scenario."""

    rate: float | None = opt(
        None, help="Requests per second (open loop); inf: all at once.", also=("--request-rate",),
        gt=0, rule="above 0 requests per second, or inf for all at once",
    )
    concurrency: int | None = opt(
        None, help="Clients in a closed loop (with --scenario: users that never pause).",
        ge=1, le=MAX_CLIENTS, also=("--max-concurrency",),
    )
    users: int | None = opt(
        None, help="Simulated users who chat, or agents of a scenario.", ge=1, le=MAX_CLIENTS,
    )
    trace: TextPath | None = opt(
        None,
        help="Recorded requests: Azure, BurstGPT, Mooncake, timed_trace, ShareGPT lengths. With "
             "--rate or --concurrency: sent at that pace.",
    )
    sort_trace: bool = opt(False, help="Accept a trace that is slightly out of order.")
    trace_speed: float | None = opt(
        None, help="How many times faster than recorded a trace is sent.",
        gt=0, lt=FINITE, rule="above 0 (2: at twice the rate) and finite",
    )


class SharedPromptsOptions(OptionSet, section="Requests"):
    """What the prompts of --rate and --concurrency have in common; the cache decides what of it
    is found."""

    shared_prefix: int | None = opt(
        None, help="Tokens that all prompts begin with (part of --input-len).", ge=1,
        le=10_000_000,
    )
    prefix_groups: int = opt(
        1, help="Different shared prefixes, each for every N-th prompt.", ge=1, le=1_000_000,
    )
    prompts: int | None = opt(
        None, help="Different prompts, sent in turn again and again. Default: none twice.",
        ge=1, le=10_000_000,
    )


class RequestCountOptions(OptionSet, section="Load"):
    requests: int | None = opt(
        None, help="How many requests.", ge=1, le=10_000_000, also=("--num-prompts",),
    )


class RunsOptions(groups.SeedOptions, section="Study"):
    replications: int | None = opt(
        None, ge=1, le=1000,
        help="Runs with seeds seed, seed + 1, ... Default: 1; with an SLO until it is sure whether "
             "the load passes, 16 at most.",
    )
    precision: float | None = opt(
        None, gt=0, lt=1, rule="a share of the mean, above 0 and below 1",
        help="Go on replicating until the 95% intervals of TTFT, TPOT and throughput are this "
             "narrow, e.g. 0.02.",
    )


class BaselineOptions(OptionSet, section="Study"):
    baseline: bool = opt(
        True, "--baseline/--no-baseline", help="Also the same load without speculation.",
    )


class PolicyOptions(OptionSet, section="Speculation"):
    """What decides on the draft length of each step, up to k."""

    policy: str | None = opt(
        None, metavar="NAME[,KEY=VALUE]",
        help="What decides on the draft length of each step, up to k: static, table, off-above, "
             "adaptive, goodput, utility, per-request, unload; or FILE.py:CLASS, code of your own, "
             "which is run.",
    )
    adaptive: bool = opt(False, help="SGLang's adaptive draft length: --policy adaptive.")


class ReplicaOptions(OptionSet, section="Deployment"):
    replicas: int = opt(1, help="Equal replicas behind a router.", ge=1, le=4096)
    router: str = opt(
        "round_robin",
        help="round_robin, least_loaded, power_of_two, prefix_affinity or cache_aware.",
    )


class FailureOptions(OptionSet, section="Advanced"):
    fail: str | None = opt(
        None, help="Failures, REPLICA:FROM_S:TO_S, comma separated, e.g. 0:60:120.",
    )
    request_timeout: float | None = opt(
        None, help="Clients give up after so many seconds.",
        gt=0, lt=FINITE, rule="seconds, above 0, and finite",
    )


class ExportOptions(OptionSet, section="Output"):
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


class ArrivalOptions(
    SimulatedLoadOptions, ScenarioOptions, SharedPromptsOptions, RequestCountOptions, StageOptions,
    VariationOptions,
):
    """What comes, for how long, and what of it is measured."""


class SimulateOptions(
    groups.ModelArgument, groups.ServerCommandOptions, ArrivalOptions, RunsOptions, GatesOptions,
    BaselineOptions, groups.ServerOptions, groups.AcceptanceOptions, AcceptanceSpreadOptions,
    AcceptanceTraceOptions, PolicyOptions, groups.TreeOptions, groups.DraftShareOptions,
    groups.RequestOptions, ReplicaOptions, apart.ApartOptions, GatewayOptions, FailureOptions,
    groups.BatchLimitsOptions, CacheOptions, groups.PricedOptions, ExportOptions,
):
    NAME: ClassVar = "simulate"


class ComparedPoliciesOptions(groups.SeedOptions, section="Study"):
    policy: list[str] | None = opt(
        None, metavar="NAME[,KEY=VALUE]",
        help="A policy to compare, or none (no speculation); repeat it. The others are compared "
             "with the first. As --policy of simulate. Default: static, none and those that "
             "decide by themselves.",
    )
    replications: int = opt(
        5, help="Runs of each policy, with seeds seed, seed + 1, ...", ge=1, le=1000
    )


class PoliciesOptions(
    groups.ModelArgument, groups.ServerCommandOptions, ComparedPoliciesOptions, ArrivalOptions,
    GatesOptions, groups.ServerOptions, groups.AcceptanceOptions, AcceptanceSpreadOptions,
    AcceptanceTraceOptions, groups.TreeOptions, groups.DraftShareOptions, groups.RequestOptions,
    ReplicaOptions, GatewayOptions, FailureOptions, groups.BatchLimitsOptions, CacheOptions,
    groups.PricedOptions,
):
    NAME: ClassVar = "policies"


class PoliciesCommand(PoliciesOptions, groups.OutputOptions):
    """`specsim policies`."""


class SimulateCommand(SimulateOptions, groups.OutputOptions):
    """`specsim simulate`."""

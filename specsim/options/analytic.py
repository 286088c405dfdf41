"""Options of what formulas answer: explain, crossover, pareto, matrix, compare."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options import groups
from specsim.options.declare import REQUIRED, OptionSet, opt
from specsim.options.values import Numbers, TextPath, Words


class ExplainOptions(
    groups.ModelArgument, groups.ServerCommandOptions, groups.DescribedOptions,
    groups.RequestOptions, groups.ClientOptions, groups.BatchLimitsOptions,
    groups.LongestRequestOptions, groups.PricedOptions,
):
    NAME: ClassVar = "explain"


class ExplainCommand(ExplainOptions, groups.JsonOptions):
    """`specsim explain`."""


class DrawnOptions(groups.PlotFileOptions, groups.OutputOptions):
    """Results that are drawn as well."""

    no_plot: bool = opt(False, help="No plot in the terminal.", output=True)


class CrossoverOptions(
    groups.ModelArgument, groups.DescribedOptions, groups.RequestOptions, groups.BatchLimitsOptions,
    groups.LongestRequestOptions, groups.PricedOptions, groups.ServerCommandOptions,
    section="Study",
):
    NAME: ClassVar = "crossover"

    contexts: str | int | Sequence[int] | None = opt(
        None, help="Prompt lengths, e.g. 1k,8k,32k (1k is 1024 tokens).",
    )
    max_concurrency: int | None = opt(
        None, help="Clients at most; default: the largest batch.",
        ge=1, le=100_000, rule="from 1 to 100000 clients",
    )
    cheap_share: float = opt(
        0.5, gt=0, le=100, rule="above 0, such as 0.5 for 50%",
        help="Speculative work is cheap while a step costs at most this share more than a plain "
             "one.",
    )
    rates: Numbers | None = opt(
        None, help="Requests per second in the place of clients, e.g. 1,2,4; auto: up to the "
                   "capacity.",
    )
    ttft_slack: float = opt(
        0.1, ge=0, le=100, rule="from 0 to 100, such as 0.1 for 10%",
        help="With --rates: share by which the first token may come later before speculation no "
             "longer pays by TTFT.",
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.contexts is not None and self.input_len is not None:
            raise UsageError(
                "--contexts and --input-len both give prompt lengths; give one of them"
            )
        if self.rates is not None and self.max_concurrency is not None:
            raise UsageError(
                "--rates is an open loop and --max-concurrency ends a closed one; give one of them"
            )
        return self


class CrossoverCommand(CrossoverOptions, DrawnOptions):
    """`specsim crossover`."""


class ParetoOptions(
    groups.ModelArgument, groups.GpuOptions, groups.ExpertParallelOptions, groups.EngineOptions,
    groups.DraftingOptions, groups.AcceptanceOptions, groups.DraftShareOptions,
    groups.RequestOptions, groups.PricedOptions, section="Study",
):
    NAME: ClassVar = "pareto"

    ks: Numbers | None = opt(None, help="Draft lengths, e.g. 0,1,2,3; 0: plain decoding.")
    tps: Numbers | None = opt(None, help="Tensor parallel sizes, e.g. 1,2,4,8.")
    pps: Numbers | None = opt(None, help="Pipeline parallel sizes, e.g. 1,2. Default: 1.")
    weights: Words | None = opt(
        None, help="Weight formats, e.g. bf16,fp8.", also=("--quantization",),
    )
    kv: Words | None = opt(None, help="Cache dtypes, e.g. bf16,fp8.", also=("--kv-cache-dtype",))
    max_num_seqs: Numbers | None = opt(None, help="Request slots, e.g. 1,8,64.")
    max_num_batched_tokens: Numbers | None = opt(None, help="Token budgets, e.g. 2048,8192.")
    max_ttft: float | None = opt(
        None, help="Leave out points with a longer mean TTFT, s.",
        gt=0, lt=float("inf"), rule="above 0 and finite",
    )
    stream_floor: float | None = opt(
        None, help="Leave out points slower per user, tok/s.",
        gt=0, lt=float("inf"), rule="above 0 and finite",
    )
    at: Words | float | None = opt(
        None, help="Compare both sides at a speed of each user's stream, e.g. 50tok/s or 20ms (per "
                   "token), or several.",
    )
    price_per_gpu_hour: float | None = opt(
        None, help="With --at: price of one GPU for one hour.",
        gt=0, lt=1e6, rule="above 0 and below 1000000 per hour",
    )


class ParetoCommand(ParetoOptions, DrawnOptions):
    """`specsim pareto`."""

    every_point: bool = opt(False, "--all", help="With --json: every point, not the frontiers.")

    @model_validator(mode="after")
    def _all_in_json(self) -> Self:
        if self.every_point and not self.json_out:
            raise UsageError("--all belongs to --json; --csv has every point anyway")
        return self


class MatrixAxesOptions(OptionSet, section="Study"):
    models: Words = opt(REQUIRED, help="Models, comma separated; NAME:WEIGHTS for one format.")
    gpus: Words = opt("h200-sxm", help="GPUs, comma separated, or all; see `specsim gpus`.")


class MatrixWidthOptions(OptionSet, section="Deployment"):
    tp: int = opt(
        0, help="Tensor parallelism: GPUs per replica; 0: the fewest that the model fits on.",
        also=groups.TENSOR_PARALLEL,
        ge=0, le=1024, rule="1 to 1024, or 0 for the smallest that fits",
    )


class OperatingPointOptions(OptionSet, section="Study"):
    """Where models and GPUs are compared."""

    concurrency: int | None = opt(
        None, help="Compare at so many clients per replica.", ge=1, le=1_000_000,
    )
    stream_floor: float | None = opt(
        None, help="Compare at the most requests that each get so many tokens/s. Default: 20.",
        gt=0, le=1e5, rule="above 0 and at most 100000",
    )
    ttft: float | None = opt(
        None, help="And a mean time to first token within, seconds.",
        gt=0, le=1e6, rule="above 0 and at most 1e+06",
    )
    think: float = opt(
        45.0, help="Seconds a user pauses between two requests.",
        ge=0, le=1e6, rule="from 0 to 1000000 seconds",
    )

    @model_validator(mode="after")
    def _one_point(self) -> Self:
        floor = self.stream_floor is not None or self.ttft is not None
        if self.concurrency is not None and floor:
            raise UsageError(
                "--concurrency and --stream-floor or --ttft are different operating points; "
                "give one"
            )
        return self


class MatrixOptions(
    MatrixAxesOptions, groups.NumberFormatsOptions, MatrixWidthOptions, groups.EngineOptions,
    groups.MethodOptions, groups.DraftLengthOptions, groups.AcceptanceLengthOptions,
    OperatingPointOptions, groups.LengthsOptions, groups.CachedShareOptions, groups.TextOptions,
    groups.BatchLimitsOptions, groups.PricedOptions,
):
    NAME: ClassVar = "matrix"


class MatrixCommand(MatrixOptions, groups.OutputOptions):
    """`specsim matrix`."""


class CompareOptions(groups.LoadOptions, section="Study"):
    NAME: ClassVar = "compare"

    file: TextPath | Mapping[str, object] = opt(
        REQUIRED, argument=True,
        help="Deployments, TOML or JSON: options of all, then one [[deployment]] each "
             "(docs/howto/compare.md); or that JSON itself.",
    )
    objective: str | None = opt(
        None, help="What ranks: throughput, throughput_per_gpu, cost, tpot, ttft or e2el. "
                   "Default: as FILE, else throughput; at a rate tpot.",
    )
    slo: str | Mapping[str, float] | None = opt(
        None, help="Service-level objectives, e.g. ttft_mean=2,stream_tok_s_mean=15.",
    )


class CompareCommand(CompareOptions, DrawnOptions):
    """`specsim compare`."""

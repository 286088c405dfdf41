"""Options of what formulas answer: predict, explain, tune, crossover, pareto, matrix."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import Opt, OptionSet
from specsim.options.groups import (
    AcceptanceLengthOptions,
    AcceptanceOptions,
    BatchLimitsOptions,
    CachedShareOptions,
    ClientOptions,
    DraftingOptions,
    DraftLengthOptions,
    DraftShareOptions,
    EngineOptions,
    ExpertParallelOptions,
    GpuOptions,
    JsonOptions,
    LengthsOptions,
    LoadOptions,
    MemoryShareOptions,
    MethodOptions,
    ModelArgument,
    NumberFormatsOptions,
    OutputOptions,
    PricingOptions,
    RequestOptions,
    ServerCommandOptions,
    ServerOptions,
    TreeOptions,
)
from specsim.options.values import Numbers, Words


class SpeedupPlotOptions(OutputOptions):
    plot: Annotated[
        bool,
        Opt(help="Also draw the speedup over the load in the terminal.", output=True),
    ] = False

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


class ExplainOptions(
    ModelArgument, ServerCommandOptions, ServerOptions, AcceptanceOptions, TreeOptions,
    DraftShareOptions, RequestOptions, ClientOptions, BatchLimitsOptions, MemoryShareOptions,
    PricingOptions,
):
    NAME: ClassVar = "explain"


class ExplainCommand(ExplainOptions, JsonOptions):
    """`specsim explain`."""


class TuneGoalOptions(OptionSet):
    """What is looked for, among what."""

    objective: Annotated[
        str, Opt(help="throughput, tpot, or goodput (throughput within --slo).")
    ] = "throughput"
    slo: Annotated[
        str | Mapping[str, float] | None,
        Opt(help="Limits, e.g. ttft_mean=2,stream_tok_s_mean=15; percentiles are compared with "
            "means."),
    ] = None
    methods: Annotated[
        Words | None,
        Opt(help="Methods to compare, e.g. mtp,eagle3,ngram. Default: all that the engine, the "
            "model and measured acceptance allow."),
    ] = None
    max_k: Annotated[int, Opt(help="Longest draft looked at.")] = 8
    acceptance_range: Annotated[
        str | Sequence[float] | None,
        Opt(help="LOW,HIGH acceptance length at k: adds the choice that holds over the range."),
    ] = None
    mix: Annotated[
        str | None,
        Opt(help="Kinds of work with shares, and acceptance lengths where known: "
            "chat=0.6,code=0.4@3.5."),
    ] = None


class MaxMemoryOptions(OptionSet):
    max_memory: Annotated[
        float | None, Opt(help="GB per GPU that the engine may use.")
    ] = None


class TuneOptions(
    ModelArgument, ServerCommandOptions, LoadOptions, TuneGoalOptions, ServerOptions,
    AcceptanceOptions, TreeOptions, DraftShareOptions, RequestOptions, BatchLimitsOptions,
    MemoryShareOptions, MaxMemoryOptions, PricingOptions,
):
    NAME: ClassVar = "tune"


class TuneCommand(TuneOptions, OutputOptions):
    """`specsim tune`."""


class DrawnOptions(OutputOptions):
    """Results that are drawn as well."""

    plot: Annotated[
        str | None, Opt(help="Draw into a file: .svg or .png.", output=True)
    ] = None
    no_plot: Annotated[bool, Opt(help="No plot in the terminal.", output=True)] = False


class CrossoverRangeOptions(OptionSet):
    contexts: Annotated[
        str | int | Sequence[int] | None,
        Opt(help="Prompt lengths, e.g. 1k,8k,32k (1k is 1024 tokens)."),
    ] = None
    max_concurrency: Annotated[
        int | None,
        Opt(help="Clients at most; default: the largest batch.", ge=1, le=100_000,
            rule="from 1 to 100000 clients"),
    ] = None
    cheap_share: Annotated[
        float,
        Opt(help="Speculative work is cheap while a step costs at most this share more than a "
            "plain one.", gt=0, le=100, rule="above 0, such as 0.5 for 50 %"),
    ] = 0.5


class CrossoverOptions(
    ModelArgument, CrossoverRangeOptions, ServerOptions, AcceptanceOptions, TreeOptions,
    DraftShareOptions, RequestOptions, BatchLimitsOptions, MemoryShareOptions, PricingOptions,
    ServerCommandOptions,
):
    NAME: ClassVar = "crossover"

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.contexts is not None and self.input_len is not None:
            raise UsageError(
                "--contexts and --input-len both give prompt lengths; give one of them"
            )
        return self


class CrossoverCommand(CrossoverOptions, DrawnOptions):
    """`specsim crossover`."""


class ParetoAxesOptions(OptionSet):
    """What is varied."""

    ks: Annotated[
        Numbers | None, Opt(help="Draft lengths, e.g. 0,1,2,3; 0: plain decoding.")
    ] = None
    tps: Annotated[Numbers | None, Opt(help="GPUs per replica, e.g. 1,2,4,8.")] = None
    weights: Annotated[Words | None, Opt(help="Weight formats, e.g. bf16,fp8.")] = None
    kv: Annotated[Words | None, Opt(help="Cache dtypes, e.g. bf16,fp8.")] = None
    max_num_seqs: Annotated[
        Numbers | None, Opt(help="Running sequences, e.g. 1,8,64.")
    ] = None
    max_num_batched_tokens: Annotated[
        Numbers | None, Opt(help="Token budgets, e.g. 2048,8192.")
    ] = None
    max_ttft: Annotated[
        float | None,
        Opt(help="Leave out points with a longer mean TTFT, s.", gt=0, lt=float("inf"),
            rule="above 0 and finite"),
    ] = None
    stream_floor: Annotated[
        float | None,
        Opt(help="Leave out points slower per user, tok/s.", gt=0, lt=float("inf"),
            rule="above 0 and finite"),
    ] = None


class ParetoOutputOptions(DrawnOptions):
    every_point: Annotated[
        bool, Opt("--all", help="With --json: every point, not the frontiers.")
    ] = False

    @model_validator(mode="after")
    def _all_in_json(self) -> Self:
        if self.every_point and not self.json_out:
            raise UsageError("--all belongs to --json; --csv has every point anyway")
        return self


class ParetoOptions(
    ModelArgument, ParetoAxesOptions, GpuOptions, ExpertParallelOptions, EngineOptions,
    DraftingOptions, AcceptanceOptions, DraftShareOptions, RequestOptions, MemoryShareOptions,
    PricingOptions,
):
    NAME: ClassVar = "pareto"


class ParetoCommand(ParetoOptions, ParetoOutputOptions):
    """`specsim pareto`."""


class MatrixAxesOptions(OptionSet):
    models: Annotated[
        Words, Opt(help="Models, comma separated; NAME:WEIGHTS for one format.")
    ]
    gpus: Annotated[
        Words, Opt(help="GPUs, comma separated, or all; see `specsim gpus`.")
    ] = "h200-sxm"


class MatrixWidthOptions(OptionSet):
    tp: Annotated[
        int,
        Opt(help="GPUs per replica; 0: the smallest that fits.", ge=0, le=1024,
            rule="1 to 1024, or 0 for the smallest that fits"),
    ] = 0


class OperatingPointOptions(OptionSet):
    """Where models and GPUs are compared."""

    concurrency: Annotated[
        int | None,
        Opt(help="Compare at so many clients per replica.", ge=1, le=1_000_000),
    ] = None
    stream_floor: Annotated[
        float | None,
        Opt(help="Compare at the most requests that each get so many tokens/s. Default: 20.",
            gt=0, le=1e5, rule="above 0 and at most 1e+05"),
    ] = None
    ttft: Annotated[
        float | None,
        Opt(help="And a mean time to first token within, seconds.", gt=0, le=1e6,
            rule="above 0 and at most 1e+06"),
    ] = None
    think: Annotated[
        float,
        Opt(help="Seconds a user pauses between two requests.", ge=0, le=1e6,
            rule="from 0 to 1000000 seconds"),
    ] = 45.0

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
    MatrixAxesOptions, NumberFormatsOptions, MatrixWidthOptions, EngineOptions, MethodOptions,
    DraftLengthOptions, AcceptanceLengthOptions, OperatingPointOptions, LengthsOptions,
    CachedShareOptions, BatchLimitsOptions, MemoryShareOptions, PricingOptions,
):
    NAME: ClassVar = "matrix"


class MatrixCommand(MatrixOptions, OutputOptions):
    """`specsim matrix`."""

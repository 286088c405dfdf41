"""Options of what is held against measurements: diagnose, watch, calibrate, validate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from specsim.options.declare import Opt, OptionSet
from specsim.options.groups import (
    MAX_SEED,
    AcceptanceOptions,
    BatchLimitsOptions,
    DraftingOptions,
    DraftShareOptions,
    EngineOptions,
    ExpertParallelOptions,
    GpuOptions,
    JsonOptions,
    LengthsOptions,
    LoadOptions,
    MemoryShareOptions,
    ModelArgument,
    NumberFormatsOptions,
    PricingOptions,
    ProfilesOptions,
    ServerOptions,
    SpeculativeJsonOptions,
    TensorParallelOptions,
    TreeOptions,
)
from specsim.options.values import FilePath, FilePaths, named_path

MAX_LIVE_REQUESTS = 100_000

# --- diagnose, watch ----------------------------------------------------------------------------


class SeenEngineOptions(OptionSet):
    engine: Annotated[
        str | None, Opt(help="Engine, with version: vllm==0.25. Default: as seen.")
    ] = None


class SeenServerOptions(
    GpuOptions, TensorParallelOptions, ExpertParallelOptions, NumberFormatsOptions,
    SeenEngineOptions, DraftingOptions, SpeculativeJsonOptions, TreeOptions, LengthsOptions,
    BatchLimitsOptions, MemoryShareOptions, PricingOptions,
):
    """What is known of a server besides what it shows itself."""


class EvidenceOptions(OptionSet):
    """What is judged: a file, two dumps or a live server."""

    words: Annotated[
        Sequence[str] | None,
        Opt(
            help="A benchmark result, /metrics dump, log or folder (as `specsim import` reads); "
            "then, to compare with predictions, the model that was served.",
            metavar="[FILE] [MODEL]", argument=True,
        ),
    ] = None
    before: Annotated[
        FilePath | None, Opt(help="A /metrics dump from before a run.")
    ] = None
    after: Annotated[FilePath | None, Opt(help="One from after it.")] = None
    plain: Annotated[
        FilePath | None,
        Opt(help="Result of the same load without speculation: measures the gain."),
    ] = None
    url: Annotated[
        str | None, Opt(help="A live server: http://HOST:PORT; its /metrics is read.")
    ] = None
    interval: Annotated[
        float,
        Opt(help="Seconds between the two scrapes of --url.", ge=0.5, le=3600,
            rule="from 0.5 to 3600 seconds"),
    ] = 10.0


class DiagnoseOptions(EvidenceOptions, SeenServerOptions):
    NAME: ClassVar = "diagnose"


class DiagnoseCommand(DiagnoseOptions, JsonOptions):
    """`specsim diagnose`."""


class ServerUrlOptions(OptionSet):
    url: Annotated[str, Opt(help="A live server: http://HOST:PORT.")]


class WatchTimeOptions(OptionSet):
    interval: Annotated[
        float,
        Opt(help="Seconds between scrapes.", ge=0.2, le=3600, rule="from 0.2 to 3600 seconds"),
    ] = 5.0
    window: Annotated[
        float, Opt(help="Seconds over which counters are taken together.")
    ] = 30.0
    for_: Annotated[
        str | None, Opt(help="Stop after this long: 60s, 5m, 1h. Default: Ctrl-C.")
    ] = None
    once: Annotated[bool, Opt(help="Two scrapes, one observation, then stop.")] = False


class JsonLinesOptions(OptionSet):
    json_out: Annotated[
        bool, Opt("--json", help="Print one JSON object per line.", output=True)
    ] = False


class WatchCommand(
    ServerUrlOptions, ModelArgument, WatchTimeOptions, SeenServerOptions, JsonLinesOptions
):
    NAME: ClassVar = "watch"


# --- calibrate ----------------------------------------------------------------------------------


class FitOptions(OptionSet):
    """What is written, and what a fit of records starts from."""

    out: Annotated[
        FilePath | None,
        Opt("--out", "-o", help="The profile to write (.toml). Without: only the report.",
            output=True),
    ] = None
    base: Annotated[
        str,
        Opt(help="Profile whose peaks and kernel parameters the fit starts from. Default: "
            "cpu-generic for records of a CPU, the profile of the device's name for a GPU."),
    ] = ""
    report: Annotated[
        FilePath | None,
        Opt(help="Write the whole report, with what was fitted, as JSON.", output=True),
    ] = None
    statistic: Annotated[
        str,
        Opt(help="Which time of a record is fitted: median, p10 or min (a busy machine)."),
    ] = "median"


class BenchFilesOptions(OptionSet):
    """Result files of benchmarks of one server."""

    from_: Annotated[
        FilePaths | None,
        Opt(help="Result file of a benchmark of one server; repeatable.", metavar="FILE",
            parser=named_path),
    ] = None
    plain: Annotated[
        FilePaths | None,
        Opt(help="As --from, and said to be without speculation.", metavar="FILE",
            parser=named_path),
    ] = None
    spec: Annotated[
        FilePaths | None,
        Opt(help="As --from, and said to be with speculation.", metavar="FILE",
            parser=named_path),
    ] = None
    holdout: Annotated[
        FilePaths | None,
        Opt(help="With --from: files that judge the fit, not part of it.", metavar="FILE",
            parser=named_path),
    ] = None


class CalibrateOptions(
    FitOptions, BenchFilesOptions, GpuOptions, EngineOptions, TensorParallelOptions,
    ExpertParallelOptions, NumberFormatsOptions, DraftingOptions, BatchLimitsOptions,
    ProfilesOptions,
):
    """What both forms of `specsim calibrate` take besides the model or the records."""


class RecordFilesOptions(OptionSet):
    records: Annotated[FilePaths | None, Opt(help="Files of `specsim measure`.")] = None


class CalibrateFunctionOptions(ModelArgument, RecordFilesOptions, CalibrateOptions):
    NAME: ClassVar = "calibrate"


class CalibrateInputsOptions(OptionSet):
    inputs: Annotated[
        list[str] | None,
        Opt(help="Files of `specsim measure`; with --from: the MODEL that was served.",
            metavar="RECORDS...", argument=True),
    ] = None


class CalibrateCommand(CalibrateInputsOptions, CalibrateOptions, JsonOptions):
    NAME: ClassVar = "calibrate"


# --- validate -----------------------------------------------------------------------------------


class PublishedCommand(JsonOptions):
    NAME: ClassVar = "validate published"

    files: Annotated[
        list[Path],
        Opt(help="CSV with the columns of published_measurements.csv or e2e_silicon_h200.csv.",
            argument=True),
    ]
    max_error: Annotated[
        float | None,
        Opt(help="Exit with code 1 if a median error is above this.", gt=0,
            rule="above 0, e.g. 0.15 for 15 %"),
    ] = None
    rows_out: Annotated[
        bool, Opt("--rows", help="Also list every judged value with its error.")
    ] = False


class MaxErrorOptions(OptionSet):
    max_error: Annotated[
        float | None,
        Opt(help="Exit with code 1 if the median error of throughput, TPOT, TTFT or E2E latency "
            "is above this share, e.g. 0.15.", gt=0, lt=100, rule="above 0, e.g. 0.15 for 15 %"),
    ] = None


class ComparisonOutOptions(OptionSet):
    out: Annotated[
        Path | None, Opt(help="Write the whole comparison as JSON.", output=True)
    ] = None


class JudgedServerOptions(
    ServerOptions, AcceptanceOptions, TreeOptions, DraftShareOptions, BatchLimitsOptions,
    MemoryShareOptions, PricingOptions,
):
    """The deployment that is simulated beside the measured one."""


class ComparisonOptions(OptionSet):
    prefix_caching: Annotated[
        bool | None,
        Opt("--prefix-caching/--no-prefix-caching", help="Default: as the engine."),
    ] = None
    fitted: Annotated[
        str | None,
        Opt(help="Names of points that a calibration has seen, comma separated (c=1): shown, not "
            "judged."),
    ] = None
    explain: Annotated[
        bool, Opt("--explain/--no-explain", help="Say what explains the gap.")
    ] = True


class MeasuredFilesOptions(OptionSet):
    files: Annotated[
        list[Path],
        Opt(help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
            "genai-perf, inference-perf or llmperf; files or folders.", metavar="FILES",
            argument=True, parser=named_path),
    ]
    model: Annotated[
        str | None,
        Opt(help="Model: a name from `specsim models`, a config.json, or its folder. Default: "
            "the name in the file."),
    ] = None


class ValidateBenchCommand(
    MeasuredFilesOptions, JudgedServerOptions, ComparisonOptions, MaxErrorOptions,
    ComparisonOutOptions, JsonOptions,
):
    NAME: ClassVar = "validate bench"


class DrivenServerOptions(OptionSet):
    url: Annotated[str, Opt(help="An OpenAI-compatible server: http://HOST:PORT.")]


class DrivenLoadOptions(OptionSet):
    """What is sent, and how it is waited for."""

    prompts: Annotated[
        Path | None,
        Opt(help="JSON lines {prompt, output_tokens}; default: built-in texts."),
    ] = None
    trace: Annotated[
        Path | None,
        Opt(help="A recorded trace: its send times and lengths, as random tokens."),
    ] = None
    random: Annotated[
        str | None, Opt(help="Random token ids of these lengths: PROMPT,OUTPUT.")
    ] = None
    output_len: Annotated[
        int | None, Opt(help="Output tokens, instead of the file's.", ge=1, le=1_000_000)
    ] = None
    requests: Annotated[
        int | None,
        Opt(help="Requests per point. Default: 16, or 4 per client.", ge=1, le=MAX_LIVE_REQUESTS),
    ] = None
    repeats: Annotated[int, Opt(help="How often every point is measured.", ge=1, le=100)] = 1
    burstiness: Annotated[
        float, Opt(help="Gamma shape of the gaps: 1 Poisson, inf even.", gt=0)
    ] = 1.0
    served_model_name: Annotated[
        str | None, Opt(help="Model at the server. Default: its first.")
    ] = None
    chat: Annotated[bool, Opt(help="Use /v1/chat/completions.")] = False
    temperature: Annotated[
        float, Opt(help="Sampling temperature; below 0: the server's own.", le=10)
    ] = 0.0
    ignore_eos: Annotated[
        bool, Opt(help="Answers have the whole length asked for (vLLM).")
    ] = False
    api_key_env: Annotated[
        str, Opt(help="Environment variable that holds the server's key.")
    ] = ""
    request_timeout: Annotated[float, Opt(help="Seconds for a whole answer.")] = 600.0
    stall_timeout: Annotated[
        float, Opt(help="Seconds for the next piece of an answer.")
    ] = 60.0
    warmups: Annotated[
        int, Opt(help="Requests before each point, not counted.", ge=1, le=1000)
    ] = 1
    sample_every: Annotated[
        float,
        Opt(help="Seconds between looks at the server's gauges.", ge=0.05, le=3600,
            rule="from 0.05 to 3600 seconds"),
    ] = 1.0
    seed: Annotated[
        int, Opt(help="Of send times and random tokens.", ge=0, le=MAX_SEED)
    ] = 0


class SaveBenchOptions(OptionSet):
    save_bench: Annotated[
        Path | None,
        Opt(help="Folder for one result file per point, as `vllm bench serve` writes it.",
            output=True),
    ] = None


class ValidateLiveCommand(
    DrivenServerOptions, ModelArgument, LoadOptions, DrivenLoadOptions, JudgedServerOptions,
    ComparisonOptions, MaxErrorOptions, SaveBenchOptions, ComparisonOutOptions, JsonOptions,
):
    NAME: ClassVar = "validate live"


class JudgedRecordsOptions(OptionSet):
    files: Annotated[
        list[Path], Opt(help="Files of `specsim measure`.", argument=True)
    ]
    gpu: Annotated[
        str, Opt(help="Profile to judge: a name from `specsim gpus` or a .toml.")
    ] = ""
    engine: Annotated[
        str,
        Opt(help="Engine profile of the decoder that was measured. Default: the one written "
            "beside the profile, else the shipped one."),
    ] = ""
    report: Annotated[
        Path | None,
        Opt(help="Report of `specsim calibrate`: steps it used judge nothing."),
    ] = None
    statistic: Annotated[
        str, Opt(help="Time of a record: median, p10 or min.")
    ] = "median"
    rows_out: Annotated[
        bool, Opt("--rows", help="Also list every point with its error.")
    ] = False


class ValidateRecordsCommand(
    JudgedRecordsOptions, ProfilesOptions, MaxErrorOptions, ComparisonOutOptions, JsonOptions
):
    NAME: ClassVar = "validate records"

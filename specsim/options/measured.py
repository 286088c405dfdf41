"""Options of what is held against measurements: diagnose, watch, quick, calibrate, validate."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options import groups
from specsim.options.declare import REQUIRED, OptionSet, opt
from specsim.options.values import FilePath, FilePaths, named_path

MAX_LIVE_REQUESTS = 100_000
STATISTICS = ("median", "p10", "min")  # of the times of a record

# --- diagnose, watch ----------------------------------------------------------------------------


class SeenEngineOptions(OptionSet, section="Deployment"):
    engine: str | None = opt(None, help="Engine, with version: vllm==0.25. Default: as seen.")


class SeenServerOptions(
    groups.GpuOptions, groups.TensorParallelOptions, groups.LinkOptions,
    groups.ExpertParallelOptions, groups.NumberFormatsOptions, SeenEngineOptions,
    groups.DraftingOptions, groups.SpeculativeJsonOptions, groups.TreeOptions,
    groups.LengthsOptions, groups.BatchLimitsOptions, groups.PricedOptions,
):
    """What is known of a server besides what it shows itself."""


class DiagnoseOptions(SeenServerOptions, section="Measurements"):
    NAME: ClassVar = "diagnose"

    words: Sequence[str] | None = opt(
        None, metavar="[FILE] [MODEL]", argument=True,
        help="A benchmark result, /metrics dump, log or folder (as `specsim import` reads); then, "
             "to compare with predictions, the model that was served.",
    )
    before: FilePath | None = opt(None, help="A /metrics dump from before a run.")
    after: FilePath | None = opt(None, help="One from after it.")
    plain: FilePath | None = opt(
        None, help="Result of the same load without speculation: measures the gain.",
    )
    url: str | None = opt(None, help="A live server: http://HOST:PORT; its /metrics is read.")
    interval: float = opt(
        10.0, help="Seconds between the two scrapes of --url.",
        ge=0.5, le=3600, rule="from 0.5 to 3600 seconds",
    )


class DiagnoseCommand(DiagnoseOptions, groups.JsonOptions):
    """`specsim diagnose`."""


class JsonLinesOptions(OptionSet, section="Output"):
    json_out: bool = opt(False, "--json", help="Print one JSON object per line.", output=True)


class WatchCommand(
    groups.ModelArgument, SeenServerOptions, JsonLinesOptions, section="Measurements",
):
    NAME: ClassVar = "watch"

    url: str = opt(REQUIRED, help="A live server: http://HOST:PORT.")
    interval: float = opt(
        5.0, help="Seconds between scrapes.", ge=0.2, le=3600, rule="from 0.2 to 3600 seconds",
    )
    window: float = opt(30.0, help="Seconds over which counters are taken together.")
    for_: str | None = opt(None, help="Stop after this long: 60s, 5m, 1h. Default: Ctrl-C.")
    once: bool = opt(False, help="Two scrapes, one observation, then stop.")


# --- calibrate ----------------------------------------------------------------------------------


class CalibrateOptions(
    groups.GpuOptions, groups.EngineOptions, groups.TensorParallelOptions,
    groups.ExpertParallelOptions, groups.NumberFormatsOptions, groups.DraftingOptions,
    groups.BatchLimitsOptions, groups.ProfilesOptions, section="Measurements",
):
    """What both forms of `specsim calibrate` take besides the model or the records."""

    out: FilePath | None = opt(
        None, "--out", "-o", help="The profile to write (.toml). Without: only the report.",
        output=True,
    )
    base: str = opt(
        "",
        help="Profile whose peaks and kernel parameters the fit starts from. Default: cpu-generic "
             "for records of a CPU, the profile of the device's name for a GPU.",
    )
    report: FilePath | None = opt(
        None, help="Write the whole report, with what was fitted, as JSON.", output=True,
    )
    statistic: str = opt(
        "median", help="Which time of a record is fitted: median, p10 or min (a busy machine).",
        choices=STATISTICS,
    )
    from_: FilePaths | None = opt(
        None,
        help="Result file of a benchmark of one server; repeatable. FILE@acceptance_length=2.4,"
             "cached_share=0.5 states what it leaves out (docs/fewshot.md).",
        metavar="FILE", parser=named_path,
    )
    plain: FilePaths | None = opt(
        None, help="As --from, and said to be without speculation.",
        metavar="FILE", parser=named_path,
    )
    spec: FilePaths | None = opt(
        None, help="As --from, and said to be with speculation.", metavar="FILE", parser=named_path,
    )
    holdout: FilePaths | None = opt(
        None, help="With --from: files that judge the fit, not part of it.",
        metavar="FILE", parser=named_path,
    )


class CalibrateFunctionOptions(groups.ModelArgument, CalibrateOptions, section="Measurements"):
    NAME: ClassVar = "calibrate"

    records: FilePaths | None = opt(None, help="Files of `specsim measure`.")


class CalibrateCommand(CalibrateOptions, groups.JsonOptions, section="Measurements"):
    NAME: ClassVar = "calibrate"

    inputs: list[str] | None = opt(
        None, help="Files of `specsim measure`; with --from: the MODEL that was served.",
        metavar="RECORDS...", argument=True,
    )


# --- validate -----------------------------------------------------------------------------------


class ValidatePublishedOptions(OptionSet):
    NAME: ClassVar = "validate published"

    files: list[Path] = opt(
        REQUIRED, argument=True,
        help="CSV with the columns of published_measurements.csv or e2e_silicon_h200.csv.",
    )
    rows_out: bool = opt(False, "--rows", help="Also list every judged value with its error.")


class ValidatePublishedCommand(
    ValidatePublishedOptions, groups.MaxErrorOptions, groups.JsonOptions
):
    """`specsim validate published`."""


class JudgedServerOptions(groups.DescribedOptions, groups.BatchLimitsOptions, groups.PricedOptions):
    """The deployment that is simulated beside the measured one."""


class ComparisonOptions(OptionSet, section="Study"):
    prefix_caching: bool | None = opt(
        None, "--prefix-caching/--no-prefix-caching", help="Default: as the engine.",
    )
    fitted: str | None = opt(
        None,
        help="Names of points that a calibration has seen, comma separated (c=1): shown, not "
             "judged.",
    )
    explain: bool = opt(True, "--explain/--no-explain", help="Say what explains the gap.")


class ValidateBenchOptions(JudgedServerOptions, ComparisonOptions, section="Measurements"):
    NAME: ClassVar = "validate bench"

    files: FilePaths = opt(
        REQUIRED, metavar="FILES", argument=True, parser=named_path,
        help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
             "genai-perf, inference-perf or llmperf; files or folders.",
    )
    model: str | None = opt(
        None,
        help="Model: a name from `specsim models`, a config.json, or its folder. Default: the "
             "name in the file.",
    )


class ValidateBenchCommand(
    ValidateBenchOptions, groups.PlotFileOptions, groups.ComparisonOutputOptions,
):
    """`specsim validate bench`."""


class ServerKeyOptions(OptionSet, section="Load"):
    api_key_env: str = opt("", help="Environment variable that holds the server's key.")


class DrivenLoadOptions(ServerKeyOptions, section="Load"):
    """What is sent, and how it is waited for."""

    prompts: FilePath | None = opt(
        None, help="JSON lines {prompt, output_tokens}; default: built-in texts.",
    )
    trace: FilePath | None = opt(
        None, help="A recorded trace: its send times and lengths, as random tokens.",
    )
    random: str | None = opt(None, help="Random token ids of these lengths: PROMPT,OUTPUT.")
    output_len: int | None = opt(
        None, help="Output tokens, instead of the file's.", ge=1, le=1_000_000,
    )
    requests: int | None = opt(
        None, help="Requests per point. Default: 16, or 4 per client.", ge=1, le=MAX_LIVE_REQUESTS,
    )
    repeats: int = opt(1, help="How often every point is measured.", ge=1, le=100)
    burstiness: float = opt(1.0, help="Gamma shape of the gaps: 1 Poisson, inf even.", gt=0)
    served_model_name: str | None = opt(None, help="Model at the server. Default: its first.")
    chat: bool = opt(False, help="Use /v1/chat/completions.")
    temperature: float = opt(0.0, help="Sampling temperature; below 0: the server's own.", le=10)
    ignore_eos: bool = opt(False, help="Answers have the whole length asked for (vLLM).")
    request_timeout: float = opt(600.0, help="Seconds for a whole answer.")
    stall_timeout: float = opt(60.0, help="Seconds for the next piece of an answer.")
    warmups: int = opt(1, help="Requests before each point, not counted.", ge=1, le=1000)
    sample_every: float = opt(
        1.0, help="Seconds between looks at the server's gauges.",
        ge=0.05, le=3600, rule="from 0.05 to 3600 seconds",
    )
    seed: int = opt(0, help="Of send times and random tokens.", ge=0, le=groups.MAX_SEED)


class SaveBenchOptions(OptionSet, section="Output"):
    save_bench: Path | None = opt(
        None, help="Folder for one result file per point, as `vllm bench serve` writes it.",
        output=True,
    )


class PinnedOptions(OptionSet, section="Acceptance"):
    pinned: float | None = opt(
        None, ge=1, le=1000, rule="from 1 to k + 1",
        help="The server is told to accept so many tokens per step, bonus included: step costs are "
             "judged alone. Refused where it does not.",
    )


class ValidateLiveOptions(
    groups.ModelArgument, groups.LoadOptions, DrivenLoadOptions, JudgedServerOptions, PinnedOptions,
    ComparisonOptions, section="Measurements",
):
    NAME: ClassVar = "validate live"

    url: str = opt(REQUIRED, help="An OpenAI-compatible server: http://HOST:PORT.")

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        return self  # beside --rate, --concurrency is the most requests open at once

    @model_validator(mode="after")
    def _one_told(self) -> Self:
        if self.pinned is not None and self.acceptance_flags:
            raise UsageError(
                f"--pinned and {self.acceptance_flags[0]} both say what is accepted; give one")
        return self


class ValidateLiveCommand(
    ValidateLiveOptions, groups.MaxErrorOptions, SaveBenchOptions, groups.PlotFileOptions,
    groups.ComparisonOutOptions,
):
    """`specsim validate live`."""


class ToldModelOptions(OptionSet, section="Deployment"):
    model: str | None = opt(
        None,
        help="Model: a name from `specsim models`, a config.json, or its folder. Default: as the "
             "server calls it.",
    )


class QuickLookOptions(OptionSet, section="Load"):
    """A server that is looked at and driven for a minute."""

    url: str | None = opt(
        None, argument=True,
        help="The server: http://HOST:PORT. Default: the one found on the usual local ports.",
    )
    seconds: float = opt(
        20.0, help="Seconds at each of 1, 4 and 8 clients; of a server that is only watched, "
                   "three times as many.",
        ge=0.2, le=600, rule="from 0.2 to 600 seconds",
    )
    watch_only: bool = opt(False, help="Send no request, only watch.")


class QuickOptions(
    QuickLookOptions, ToldModelOptions, ServerKeyOptions, groups.ServerCommandOptions,
    SeenServerOptions, groups.PipelineOptions,
):
    NAME: ClassVar = "quick"


class QuickCommand(QuickOptions, groups.JsonOptions, section="Output"):
    """`specsim quick`."""

    share: Path | None = opt(None, help="Also write the answer as Markdown.", output=True)


class ValidateRecordsOptions(groups.ProfilesOptions, section="Measurements"):
    NAME: ClassVar = "validate records"

    files: FilePaths = opt(REQUIRED, help="Files of `specsim measure`.", argument=True)
    gpu: str = opt("", help="Profile to judge: a name from `specsim gpus` or a .toml.")
    engine: str = opt(
        "",
        help="Engine profile of the decoder that was measured. Default: the one written beside "
             "the profile, else the shipped one.",
    )
    report: FilePath | None = opt(
        None, help="Report of `specsim calibrate`: steps it used judge nothing.",
    )
    statistic: str = opt(
        "median", help="Time of a record: median, p10 or min.", choices=STATISTICS,
    )
    rows_out: bool = opt(False, "--rows", help="Also list every point with its error.")


class ValidateRecordsCommand(ValidateRecordsOptions, groups.ComparisonOutputOptions):
    """`specsim validate records`."""

"""Options of what lists, reads and shows: models, gpus, import, config, report."""

from pathlib import Path
from typing import Annotated, ClassVar

from specsim.options.declare import Opt, OptionSet
from specsim.options.groups import JsonOptions, ProfilesOptions
from specsim.options.values import TextPath, named_path


class ModelsCommand(JsonOptions):
    NAME: ClassVar = "models"

    name: Annotated[
        str | None,
        Opt(help="A model (name, config.json or folder) to show.", argument=True),
    ] = None
    drafters: Annotated[bool, Opt(help="List drafters instead.")] = False
    search: Annotated[str, Opt(help="Only names with this text.")] = ""


class GpuNameOptions(OptionSet):
    name: Annotated[
        str | None, Opt(help="A profile to show, or a .toml.", argument=True)
    ] = None


class GpusCommand(GpuNameOptions, ProfilesOptions, JsonOptions):
    NAME: ClassVar = "gpus"


class ImportCommand(JsonOptions):
    NAME: ClassVar = "import"

    files: Annotated[
        list[Path],
        Opt(
            help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
            "genai-perf, inference-perf, llmperf; /metrics dumps; pasted server log lines; "
            "request traces; model folders, config.json, .gguf; folders of results.",
            metavar="FILES", argument=True, parser=named_path,
        ),
    ]
    before: Annotated[
        Path | None,
        Opt(help="An earlier /metrics dump: count only from it to FILE.", metavar="FILE",
            parser=named_path),
    ] = None
    requests: Annotated[bool, Opt(help="With --json or --export, every request.")] = False
    export: Annotated[
        TextPath | None,
        Opt(
            help="Write the runs (with --requests, or of a trace, the requests) to FILE.csv, "
            ".json, .jsonl or .parquet.", output=True,
        ),
    ] = None


class ConfigCommand(JsonOptions):
    NAME: ClassVar = "config"

    command: Annotated[
        list[str] | None,
        Opt(help="Only this command's options, all of them.", metavar="[COMMAND]", argument=True),
    ] = None


class ReportResultsOptions(OptionSet):
    files: Annotated[
        list[str],
        Opt(help="Results of --json; - reads standard input.", metavar="RESULT.json...",
            argument=True),
    ]
    output: Annotated[
        TextPath,
        Opt("--output", "-o", help="The HTML file to write; - for standard output.", output=True),
    ] = "report.html"
    title: Annotated[str | None, Opt(help="Title of the page.")] = None


class ReportCommand(ReportResultsOptions, ProfilesOptions):
    NAME: ClassVar = "report"

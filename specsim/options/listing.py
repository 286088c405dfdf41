"""Options of what lists, reads and shows: models, gpus, import, config, report."""

from pathlib import Path
from typing import ClassVar

from specsim.options.declare import REQUIRED, OptionSet, opt
from specsim.options.groups import JsonOptions, ProfilesOptions
from specsim.options.values import TextPath, named_path


class ModelsOptions(OptionSet):
    NAME: ClassVar = "models"

    name: str | None = opt(
        None, help="A model (name, config.json or folder) to show.", argument=True,
    )
    drafters: bool = opt(False, help="List drafters instead.")
    search: str = opt("", help="Only names with this text.")


class ModelsCommand(ModelsOptions, JsonOptions):
    pass


class GpusOptions(ProfilesOptions):
    NAME: ClassVar = "gpus"

    name: str | None = opt(None, help="A profile to show, or a .toml.", argument=True)


class GpusCommand(GpusOptions, JsonOptions):
    pass


class ImportCommand(JsonOptions):
    NAME: ClassVar = "import"

    files: list[Path] = opt(
        REQUIRED, metavar="FILES", argument=True, parser=named_path,
        help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
             "genai-perf, inference-perf, llmperf; /metrics dumps; pasted server log lines; "
             "request traces; model folders, config.json, .gguf; folders of results.",
    )
    before: Path | None = opt(
        None, help="An earlier /metrics dump: count only from it to FILE.",
        metavar="FILE", parser=named_path,
    )
    requests: bool = opt(False, help="With --json or --export, every request.")
    export: TextPath | None = opt(
        None, output=True,
        help="Write the runs (with --requests, or of a trace, the requests) to FILE.csv, .json, "
             ".jsonl or .parquet.",
    )


class ConfigCommand(JsonOptions):
    NAME: ClassVar = "config"

    command: list[str] | None = opt(
        None, help="Only this command's options, all of them.", metavar="[COMMAND]", argument=True,
    )


class ReportCommand(ProfilesOptions):
    NAME: ClassVar = "report"

    files: list[str] = opt(
        REQUIRED, help="Results of --json; - reads standard input.",
        metavar="RESULT.json...", argument=True,
    )
    output: TextPath = opt(
        "report.html", "--output", "-o", help="The HTML file to write; - for standard output.",
        output=True,
    )
    title: str | None = opt(None, help="Title of the page.")

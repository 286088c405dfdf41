"""Options of tune, apart from those of other commands, which it need not load."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from specsim.methods.base import MAX_K
from specsim.options import groups
from specsim.options.declare import OptionSet, opt
from specsim.options.values import FilePath, FilePaths, Words, named_path


class TuneGoalOptions(OptionSet, section="Study"):
    """What is looked for, among what."""

    objective: str = opt(
        "throughput", help="throughput, tpot, or goodput (throughput within --slo).",
        choices=("throughput", "tpot", "goodput"),
    )
    slo: str | Mapping[str, float] | None = opt(
        None,
        help="Service-level objectives, e.g. ttft_mean=2,stream_tok_s_mean=15; percentiles are "
             "compared with means.",
    )
    methods: Words | None = opt(
        None,
        help="Methods to compare, e.g. mtp,eagle3,ngram. Default: all that the engine, the model "
             "and measured acceptance allow.",
    )
    max_k: int | None = opt(
        None, ge=1, le=MAX_K,
        help="Longest draft looked at. Default: 8, or a block drafter's own or --k, where longer.",
    )
    acceptance_range: str | Sequence[float] | None = opt(
        None, help="LOW,HIGH acceptance length at k: adds the choice that holds over the range.",
    )
    mix: str | None = opt(
        None,
        help="Kinds of work with shares, and acceptance lengths where known: "
             "chat=0.6,code=0.4@3.5.",
    )
    by: str | None = opt(
        None, choices=("batch", "batch,context"),
        help="A map of draft lengths: batch, or batch,context. Its batches are those of "
             "--concurrency.",
    )
    contexts: str | int | Sequence[int] | None = opt(
        None, help="Prompt lengths of the map, e.g. 1k,8k,32k (1k is 1024 tokens).",
    )


class RunPlanOptions(OptionSet, section="Measurements"):
    """Runs on the user's own server that settle the choice."""

    plan: bool = opt(False, help="Say which runs on your own server would settle the choice.")
    from_: FilePaths | None = opt(
        None,
        help="Result files or folders of such runs (as `specsim import` reads); repeatable. The "
             "choice is made again with them, or the next run is named.",
        metavar="FILE", parser=named_path,
    )
    runs: int = opt(5, help="Most runs of a plan, those in --from included.", ge=1, le=20,
                    rule="from 1 to 20")
    script: FilePath | None = opt(
        None, help="Write the runs as a shell script for the engine's benchmark client.",
        output=True,
    )


class MaxMemoryOptions(OptionSet, section="Engine limits"):
    max_memory: float | None = opt(None, help="GB per GPU that the engine may use.")


class TuneOptions(
    groups.ModelArgument, groups.ServerCommandOptions, groups.LoadOptions, TuneGoalOptions,
    RunPlanOptions, groups.DescribedOptions, groups.RequestOptions, groups.BatchLimitsOptions,
    groups.LongestRequestOptions, groups.MemoryShareOptions, groups.LaunchOptions, MaxMemoryOptions,
    groups.PricingOptions,
):
    NAME: ClassVar = "tune"


class TuneCommand(TuneOptions, groups.PlotFileOptions, groups.OutputOptions):
    """`specsim tune`."""

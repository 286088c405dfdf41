"""`specsim.calibrate`: an engine profile from benchmarks of one server, or a hardware profile from
records of `specsim measure`."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from specsim.api.options import Options
from specsim.api.results import flat, frame, page_of
from specsim.errors import UsageError

PathText = str | PathLike[str]
Paths = PathText | Sequence[PathText]


@dataclass(frozen=True)
class Calibration:
    """What a fit found. document: as `specsim calibrate --json` prints it."""

    document: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """Each fitted parameter with its value before and after and its uncertainty."""
        return list(self.document["parameters"])

    @property
    def written(self) -> tuple[str, ...]:
        """The profiles and reports that were written."""
        if "files" in self.document:
            return tuple(self.document["files"])
        return (self.document["written"],) if self.document["written"] else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.document.get("warnings", ()))

    @property
    def command(self) -> str:
        """A prediction with the new engine profile; empty for a hardware profile."""
        return str(self.document.get("command", ""))

    def to_dict(self) -> dict[str, Any]:
        return dict(self.document)

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat row per parameter."""
        return [flat(row) for row in self.parameters]

    def to_frame(self, library: str | None = None) -> Any:
        """The parameters as a data frame of pandas or, without it, polars."""
        return frame(self.to_rows(), library)

    def __str__(self) -> str:
        if self.document.get("what") == "engine":
            from specsim.report.fewshot import fewshot_text

            return fewshot_text(self.document)
        from specsim.report.records import records_text

        return records_text(self.document)

    def __repr__(self) -> str:
        return f"<specsim.Calibration: {len(self.parameters)} parameters>"

    def _repr_html_(self) -> str:
        return page_of(repr(self), self.to_rows(), self.warnings)


def calibrate(
    model: str | None = None,
    *,
    from_: Paths = (),
    plain: Paths = (),
    spec: Paths = (),
    holdout: Paths = (),
    records: Paths = (),
    out: PathText | None = None,
    report: PathText | None = None,
    base: str = "",
    statistic: str = "median",
    gpu: str = "h200-sxm",
    engine: str = "vllm",
    tp: int = 1,
    ep: int = 1,
    attention_dp: int = 1,
    weights: str | None = None,
    kv: str | None = None,
    method: str | None = None,
    draft: str | None = None,
    k: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    profiles: PathText | None = None,
) -> Calibration:
    """Fit the engine's overheads to benchmark results of one server that ran `model` (`from_`,
    `plain`, `spec`), or a hardware profile to `records` of `specsim measure`.

    out: the profile to write (.toml). report: the whole report as JSON. base, statistic: for
    records, see `specsim calibrate --help`. Raises `specsim.errors.SpecSimError` for whatever a
    caller can correct."""
    target = None if out is None else Path(out)
    document = None if report is None else Path(report)
    folder = None if profiles is None else fspath(profiles)
    if _paths(records):
        if model is not None or _paths(from_) or _paths(plain) or _paths(spec):
            raise UsageError("records and benchmark results are fitted apart; give one of them")
        from specsim.api.calibrate_records import fit_records

        return Calibration(
            fit_records(_paths(records), base, target, document, folder, statistic)
        )
    if not (_paths(from_) or _paths(plain) or _paths(spec)):
        raise UsageError("nothing to fit; give from_=FILES with the model served, or records=FILES")
    if model is None:
        raise UsageError("benchmark results need the model that was served; give it first")
    from specsim.api.calibrate_bench import fit_from

    options = Options(
        model=model, gpu=gpu, engine=engine, tp=tp, ep=ep, attention_dp=attention_dp,
        weights=weights, kv=kv, method=method, draft=draft, k=k, max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens, profiles=folder,
    )
    return Calibration(
        fit_from(
            options, _paths(from_), _paths(plain), _paths(spec), _paths(holdout), target, document
        )
    )


def _paths(given: Paths) -> list[Path]:
    one = [given] if isinstance(given, str | PathLike) else given
    return [Path(path) for path in one]

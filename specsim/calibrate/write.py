"""A calibration as files: the profile, the engine, and the report with its ledger."""

from dataclasses import asdict
from pathlib import Path

from specsim.calibrate.records_fit import Outcome, parameter_rows
from specsim.calibrate.samples import run_id
from specsim.errors import UsageError
from specsim.files import write_whole
from specsim.hardware.schema import profile_from_document
from specsim.hardware.toml_file import parse_document, to_toml
from specsim.latency.engine_text import engine_toml
from specsim.summary import error_summary

FORMAT = 1
KEYS = "Seconds. Keys: specsim/latency/engine.py."  # first line of an engine file


def profile_name(path: Path) -> str:
    """The name a profile file gives its profile; UsageError for one that is no .toml."""
    if path.suffix != ".toml" or not path.stem:
        raise UsageError(f"{path.name or path!s} must end in .toml, e.g. -o my-machine.toml")
    return path.stem


def engine_path(path: Path) -> Path:
    """Where the engine of a profile is written: beside it."""
    return path.with_name(f"{path.stem}-engine.toml")


def write_outcome(outcome: Outcome, path: Path) -> list[Path]:
    """The profile, and beside it the engine where one was fitted; the files written.

    ProfileError, and no file, where a fitted number is outside what a profile may hold.
    """
    text = to_toml(outcome.profile)
    profile_from_document(parse_document(text, str(path)), path.stem, str(path))
    write_whole(path, text)
    if outcome.engine is None:
        return [path]
    beside = engine_path(path)
    write_whole(beside, engine_toml(outcome.engine, KEYS, zeros=True))
    return [path, beside]


def report(outcome: Outcome, points: bool = True) -> dict[str, object]:
    """Everything about a calibration. points: with the ledger, point by point."""
    run = outcome.data.headers[-1]
    groups = {name: error_summary(errors) for name, errors in outcome.groups.items()}
    everything = [e for errors in outcome.groups.values() for e in errors]
    engine = outcome.engine
    out: dict[str, object] = {
        "kind": "calibration", "format": FORMAT, "profile": outcome.profile.name,
        "base": outcome.base.name, "device": dict(run.device), "software": dict(run.software),
        "dates": sorted({h.date for h in outcome.data.headers}),
        "runs": sorted({run_id(h) for h in outcome.data.headers}),
        "git_shas": sorted({h.git_sha for h in outcome.data.headers if h.git_sha}),
        "statistic": outcome.statistic,
        "peaks": {
            "mem_bytes_per_s": outcome.profile.mem_bytes_per_s,
            "flops": dict(outcome.profile.flops),
        },
        "parameters": parameter_rows(outcome),
        "not_seen": [p.name for p in outcome.fit.blind],
        "hardly_told_apart": [list(pair) for pair in outcome.fit.pairs],
        "unexplained_by_kind": dict(outcome.fit.model_sd),
        "fitted": {kind: error_summary(errors) for kind, errors in outcome.by_kind.items()},
        "left_out_shapes": {"all": error_summary(everything), "by_shape": groups},
        "held_out_steps": error_summary(outcome.step_errors),
        "engine": None if engine is None else {
            "name": engine.name, "overheads": asdict(engine.overheads),
        },
        "excluded": dict(outcome.left_out),
        "truncated_files": list(outcome.data.truncated),
    }
    if points:
        host = outcome.host
        out["ledger"] = {
            "fitted": [
                {"point": sample.record.key, "measured_s": sample.seconds, "error": error}
                for sample, error in zip(outcome.fitted, outcome.fit.errors, strict=True)
            ],
            "fitted_host_time": [] if host is None else [r.key for r in host.anchors],
            "held_out": [
                {"point": sample.record.key, "measured_s": sample.seconds,
                 "predicted_s": predicted, "error": predicted / sample.seconds - 1}
                for sample, predicted in outcome.steps
            ],
        }
    return out

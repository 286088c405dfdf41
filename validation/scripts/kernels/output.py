"""What the kernel fit writes: the profile's tables, the scores as JSON and as a page to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import table
from kernels.fitting import Fitted, Score, rounded
from kernels.marlin import unpack_s

from specsim.hardware.store import load_profile
from specsim.roofline.defaults import assumed

MARKER = "# --- fitted kernel tables below this line (validation/scripts/fit_h200_kernels.py) ---"


@dataclass(frozen=True)
class Assumed:
    """A table that no measurement of this device stands behind."""

    name: str
    params: Mapping[str, float]
    source: str


def assumed_tables(done: Sequence[Fitted]) -> list[Assumed]:
    """Tables for kernels that were not measured, made from those that were."""
    tables = {fitted.fit.name: fitted.params for fitted in done}
    bf16 = tables["gemm.bf16"]
    experts = next(fitted for fitted in done if fitted.fit.name == "moe.weight_only")
    unpack = unpack_s(load_profile("h200-sxm"), experts.fit.rows, bf16["mem_frac"], bf16["p"])
    a100 = load_profile("a100-80gb")
    cutlass, wide = a100.kernel("gemm.weight_only@trtllm"), a100.kernel("gemm.bf16")
    return [
        Assumed(
            "gemm.weight_only",
            # Dequantising kernels have no fast path for short k steps or split sizes of their own
            # in the data: only what the expert kernel shows is taken over.
            {
                **bf16, "peak_frac": tables["moe.weight_only"]["peak_frac"], "unpack_s": unpack,
            },
            "gemm.bf16 with the arithmetic share and the unpacking time of the measured Marlin "
            "experts",
        ),
        Assumed(
            "gemm.mixed_input",
            {
                **bf16, "unpack_s": unpack,
                "peak_frac": rounded(
                    bf16["peak_frac"] * cutlass["peak_frac"] / wide["peak_frac"]
                ),
            },
            "gemm.weight_only with the share of the 16-bit product's arithmetic that a kernel of "
            "the same library (TensorRT-LLM's weight-only) was measured to reach on the A100",
        ),
        Assumed(
            "all_reduce.fused", tables["all_reduce@trtllm"],
            "TensorRT-LLM's all-reduce, whose one-shot kernels the fused ones are; their norm is "
            "taken as free",
        ),
        Assumed("gemm.fp4", tables["gemm.fp8_block"], "gemm.fp8_block, for devices with FP4 units"),
        Assumed("moe.fp4", tables["moe.fp8_block"], "moe.fp8_block, for devices with FP4 units"),
        Assumed(
            "elementwise", assumed()["elementwise"],
            "floor: the smallest kernels measured in a CUDA graph (causal_conv1d_update of one "
            "sequence, 1.5 to 1.8 us); bandwidth share: aiconfigurator-core 0.12.0's constant",
        ),
        Assumed("sample", assumed()["sample"], "no kernel table; a few passes over fp32 logits"),
    ]


def profile_text(text: str, done: Sequence[Fitted], assumed: Sequence[Assumed]) -> str:
    """The profile with everything below the marker replaced by these tables."""
    head, marker, _ = text.partition(MARKER)
    if not marker:
        raise SystemExit(f"the profile has no line {MARKER!r}; add it after the hand-written part")
    lines = [head + marker, "# Written by that script. Errors: validation/reports/kernel_fit.md"]
    last = {fitted.fit.name: fitted for fitted in done}  # a refinement replaces its first fit
    for name, fitted in last.items():
        lines += _table(name, fitted.params, fitted.fit.source)
        lines.insert(len(lines) - len(fitted.params), f'measured_on = "{fitted.fit.measured_on}"')
    for made in assumed:
        lines += _table(made.name, made.params, f"assumed: {made.source}")
        lines.insert(len(lines) - len(made.params), "assumed = true")
    return "\n".join(lines) + "\n"


def _table(name: str, params: Mapping[str, float], source: str) -> list[str]:
    return [
        "",
        f'[kernels."{name}"]',
        f'source = "{source}"',
        *(f"{key} = {float(value)!r}" for key, value in sorted(params.items())),
    ]


def to_json(done: Sequence[Fitted]) -> dict[str, Any]:
    return {
        "device": "NVIDIA H200 SXM",
        "made_by": "validation/scripts/fit_h200_kernels.py",
        "errors": "relative, of predicted against measured kernel time",
        "tables": {fitted.fit.label: _entry(fitted) for fitted in done},
    }


def _entry(fitted: Fitted) -> dict[str, Any]:
    fit = fitted.fit
    entry: dict[str, Any] = {
        "table": fit.name,
        "source": fit.source,
        "measured_on": fit.measured_on,
        "hold_out": fitted.scheme,
        "held_out": fitted.held_out_rows.to_dict(),
        "fitted": fitted.fitted_rows.to_dict(),
        "datasheet_roofline": fitted.datasheet.to_dict(),
        "free_parameters": len(fit.free),
        "at_bound": list(fitted.at_bound),
    }
    if fit.bars is not None:
        entry["bars"] = {"median": fit.bars[0], "p90": fit.bars[1]}
        entry["met"] = _met(fitted)
    if fitted.with_excluded.n:
        entry["held_out_with_excluded_cells"] = fitted.with_excluded.to_dict()
    if fit.note:
        entry["note"] = fit.note
    return entry


def _met(fitted: Fitted) -> bool:
    bars, held = fitted.fit.bars, fitted.held_out_rows
    return bars is not None and held.n > 0 and held.median <= bars[0] and held.p90 <= bars[1]


def report(done: Sequence[Fitted]) -> str:
    """The page: one row per table, then what was left out and what missed its bar."""
    lines = [
        "# Kernel times on the H200: fitted, then scored on shapes that were left out",
        "",
        "Made by `python validation/scripts/fit_h200_kernels.py` from `validation/data/h200`",
        "(measured operator tables of aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0). Errors are",
        "relative, predicted against measured, on the rows of whole shapes that no parameter saw;",
        "bias is the median signed error. `datasheet` is the plain roofline (bytes/bandwidth,",
        "FLOP/peak) on the same rows. The forms of the model were chosen with these scores in",
        "view; the parameters never saw the rows.",
        "",
        *table(
            ("table", "measured on", "rows", "median", "p90", "bias", "bar", "met", "datasheet",
             "hold-out"),
            [_row(fitted) for fitted in done], left=True,
        ),
    ]
    notes = [f for f in done if f.fit.note or f.with_excluded.n]
    if notes:
        lines += ["", "## Cells left out and other notes", ""]
        for fitted in notes:
            note = fitted.fit.note or "some cells left out"
            extra = fitted.with_excluded
            if extra.n:
                note += (
                    f"; with the excluded cells the held-out error is {extra.median:.1%} median, "
                    f"{extra.p90:.1%} p90"
                )
            lines.append(f"- `{fitted.fit.label}`: {note}.")
    missed = [f for f in done if f.fit.bars is not None and not _met(f)]
    lines += ["", "## Bars not met", ""]
    lines += [f"- `{f.fit.label}`: {_miss(f)}." for f in missed] or ["none"]
    return "\n".join(lines) + "\n"


def _row(fitted: Fitted) -> list[str]:
    fit, held = fitted.fit, fitted.held_out_rows
    shown: Score = held if held.n else fitted.fitted_rows
    bar = f"{fit.bars[0]:.0%} / {fit.bars[1]:.0%}" if fit.bars else ""
    met = ("yes" if _met(fitted) else "no") if fit.bars else ""
    return [
        fit.label, fit.measured_on.removeprefix("NVIDIA H200 SXM, "), str(shown.n),
        f"{shown.median:.1%}", f"{shown.p90:.1%}", f"{shown.bias:+.1%}", bar, met,
        f"{fitted.datasheet.median:.0%}", fitted.scheme,
    ]


def _miss(fitted: Fitted) -> str:
    bars, held = fitted.fit.bars, fitted.held_out_rows
    if bars is None or not held.n:
        return fitted.scheme
    return (
        f"{held.median:.1%} median against {bars[0]:.0%}, {held.p90:.1%} p90 against {bars[1]:.0%}"
    )

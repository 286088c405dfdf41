"""Whether a verify step jumps between one row per sequence and two, and how it grows after that.

    python validation/scripts/width_jump.py     # writes validation/reports/width_jump.md

Measured steps over w rows of one sequence (validation/data/verify_width), as shares of the step
over one row: the slope is fitted over w >= 2 and the jump is what the second row costs beyond it.
Kernel tables of the engines that specsim prices (validation/data/h200) show the same for single
kernels.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean, median

from common import DATA, REPORTS, read_csv, table, write_text
from kernels import gemm, moe
from kernels.tables import Row

from specsim.hardware.store import load_profile
from specsim.roofline.result import KernelTime

WIDTHS = DATA / "verify_width" / "verify_width_times.csv"


def jumps() -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(kind of model, source) -> (jump, slope) of each series with one, two and more rows."""
    series: dict[tuple[str, str, str, str], dict[int, float]] = defaultdict(dict)
    for row in read_csv(WIDTHS):
        key = (row["kind"], row["source"], row["model"], row["series"])
        series[key].setdefault(int(row["width"]), float(row["ratio_to_one_row"]))
    out: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (kind, source, *_), ratios in series.items():
        further = sorted(w for w in ratios if w >= 2)
        if 2 not in ratios or 1 not in ratios or len(further) < 2:
            continue
        middle, level = mean(further), mean(ratios[w] for w in further)
        slope = sum((w - middle) * (ratios[w] - level) for w in further) / sum(
            (w - middle) ** 2 for w in further
        )
        out[kind, source].append((ratios[2] - 1 - slope, slope))
    return out


def by_source() -> list[list[str]]:
    rows = []
    found = {key: (mean(j for j, _ in v), mean(s for _, s in v)) for key, v in jumps().items()}
    for (kind, source), (jump, slope) in sorted(found.items()):
        others = [j for (k, s), (j, _) in found.items() if k == kind and s != source]
        rows.append([
            source, kind, f"{jump:+.2f}", f"{slope:.2f}",
            f"{jump - median(others):+.2f}" if others else "",
        ])
    for kind in ("dense", "routed"):
        of_kind = [value for (k, _), value in found.items() if k == kind]
        rows.append([
            "median", kind, f"{median(j for j, _ in of_kind):+.2f}",
            f"{median(s for _, s in of_kind):.2f}", "",
        ])
    return rows


def growth(name: str, rows: Iterable[Row], size: str) -> list[str]:
    """Median over shapes of how a kernel's time grows from one row to 2 and 4."""
    profile = load_profile("h200-sxm")
    shapes: dict[object, dict[float, tuple[float, float]]] = defaultdict(dict)
    price = gemm.gemm if size == "m" else moe.moe
    for row in rows:
        width = row.kwargs[size]
        if width in (1, 2, 4):
            key = tuple((k, v) for k, v in sorted(row.kwargs.items()) if k != size)
            predicted: KernelTime = price(profile, **row.kwargs)
            shapes[key][width] = (row.seconds, predicted.seconds)
    out = [name]
    for wide in (2, 4):
        both = [v for v in shapes.values() if 1 in v and wide in v]
        out += [f"{median(v[wide][i] / v[1][i] for v in both):.2f}" for i in (0, 1)]
    return out


def kernels() -> list[list[str]]:
    fits = [f for f in (*gemm.fits(), *moe.fits()) if f.rows]
    return [
        growth(f.name, f.rows, "m" if f.name.startswith("gemm") else "tokens") for f in fits
        if any(row.kwargs.get("m", row.kwargs.get("tokens")) == 2 for row in f.rows)
    ]


def main() -> None:
    lines = [
        "# From one row per sequence to two",
        "",
        "Written by validation/scripts/width_jump.py. Whole steps at batch 1, as shares of the "
        "step over one row. Last column: jump less the median of the others of the kind.",
        "",
        *table(["source", "model", "jump", "slope per row", "left out"], by_source()),
        "",
        "The sources scatter by more than the jump itself: it belongs to an engine's kernels for a "
        "single row (GEMV, or experts gathered row by row), not to a kind of model. Engines with "
        "one kernel for both show none: medians over shapes of the time at 2 and 4 rows over that "
        "at one, on H200, measured and as priced. What routed experts grow by is the experts that "
        "more rows choose.",
        "",
        *table(
            ["kernel table", "2 rows, measured", "priced", "4 rows, measured", "priced"], kernels()
        ),
        "",
        "So packaged engines get `wide_layer_s` from a prior of a few microseconds per layer, and "
        "an engine file whose kernels do jump states it.",
    ]
    write_text(REPORTS / "width_jump.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""What kernel tables measured on one device are worth on others.

Most profiles inherit the tables fitted on the H200, some with a few parameters fitted on the
device itself (fit_other_gpus.py). Here both price kernels measured on nine devices
(validation/data/other_gpus): the error per device and kernel family, over the shapes that no fit
saw. Then each measured device in turn is taken for one without tables: whole decode steps under
every other device's tables against those under its own. Both go to
validation/reports/transfer.json and transfer.md:

    python validation/scripts/check_transfer.py
"""

from collections import defaultdict
from dataclasses import replace
from itertools import permutations, product
from math import exp, log
from statistics import median

from common import REPORTS, table, write_json, write_text
from kernels.other_gpus import Measured, measured
from kernels.tables import held_out

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.instance import Instance
from specsim.latency.shape import decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_model
from specsim.ops.work import Parallel

DEVICES = (
    "a100-80gb", "l40s", "rtx-pro-6000", "h100-sxm", "h200-sxm", "b200", "b300", "gb200", "gb300",
    "b60",
)
# Dense and routed models of several weight formats, a hybrid and a latent one.
MODELS = (
    "qwen3-8b", "qwen3-32b-fp8", "qwen3-30b-a3b", "qwen3-30b-a3b-fp8", "qwen3.6-27b",
    "qwen3.6-27b-fp8", "gpt-oss-120b", "deepseek-v3",
)
BATCHES, CONTEXTS = (1, 16, 64), (1_024, 16_384)


def errors(profile: HardwareProfile, points: list[Measured], **how: str) -> list[float]:
    """predicted / measured - 1 of every point."""
    return [
        point.price(profile, **point.row.kwargs, **how).seconds / point.row.seconds - 1
        for point in points
    ]


def score(signed: list[float]) -> dict[str, float]:
    """Median and p90 of the size, median with sign (above 0: predicted too slow)."""
    sizes = sorted(map(abs, signed))
    return {
        "median_abs_error": round(median(sizes), 4),
        "p90_abs_error": round(sizes[int(0.9 * (len(sizes) - 1))], 4),
        "bias": round(median(signed), 4),
    }


def compare() -> dict[str, dict[str, object]]:
    """'family/profile' -> scores of the profile, of the pure H200 tables, of the datasheet."""
    h200 = load_profile("h200-sxm").kernels
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for point in measured():
        if held_out(point.row.group):
            groups[point.family, point.profile].append(point)
    result: dict[str, dict[str, object]] = {}
    for (family, name), points in sorted(groups.items()):
        profile = load_profile(name)
        result[f"{family}/{name}"] = {
            "n": len(points),
            "profile": score(errors(profile, points)),
            "h200_tables": score(errors(replace(profile, kernels=h200), points)),
            "datasheet": score(errors(profile, points, fidelity="datasheet")),
        }
    return result


def step_s(model: str, profile: HardwareProfile) -> list[float]:
    """Seconds of one GPU's decode steps of all batches and contexts, engine overheads aside."""
    spec = find_model(model)
    gpus = 8 if model == "deepseek-v3" else 1
    instance = Instance(spec, profile, find_engine("vllm"), Parallel(tp=gpus))
    latency = LatencyModel(instance)
    return [
        sum(t.seconds for t in latency.step(decode_shape(b, ctx, SpecSetup())).ops)
        for b, ctx in product(BATCHES, CONTEXTS)
    ]


def kinship(device: HardwareProfile, donor: HardwareProfile) -> str:
    if device.arch == donor.arch:
        return "same architecture"
    return "same vendor" if device.vendor == donor.vendor else "another vendor"


def steps() -> dict[str, list[float]]:
    """Kinship -> logarithms of steps under a donor's tables over steps under the device's own."""
    result: dict[str, list[float]] = defaultdict(list)
    profiles = [load_profile(name) for name in DEVICES]
    own = {(p.name, m): step_s(m, p) for p in profiles for m in MODELS}
    for device, donor in permutations(profiles, 2):
        guessed = replace(device, kernels=donor.kernels)
        for model in MODELS:
            pairs = zip(step_s(model, guessed), own[device.name, model], strict=True)
            result[kinship(device, donor)] += [log(a / b) for a, b in pairs]
    return result


def spread(logs: list[float]) -> dict[str, float]:
    """Factors: median with sign, and what half and nine tenths of the sizes stay below."""
    sizes = sorted(map(abs, logs))
    return {
        "n": len(logs), "median": round(exp(median(logs)), 3),
        "half_below": round(exp(median(sizes)), 3),
        "nine_tenths_below": round(exp(sizes[int(0.9 * (len(sizes) - 1))]), 3),
    }


def percent(scores: object) -> str:
    assert isinstance(scores, dict)
    return " / ".join(
        f"{100 * scores[c]:.0f}" for c in ("median_abs_error", "p90_abs_error")
    ) + f" ({100 * scores['bias']:+.0f})"


def cells(key: str, scores: dict[str, object]) -> list[str]:
    """One row of the table."""
    family, _, name = key.rpartition("/")
    shown = [percent(scores[side]) for side in ("profile", "h200_tables", "datasheet")]
    return [family, name, str(scores["n"]), *shown]


def main() -> None:
    result = compare()
    guessed = {kin: spread(logs) for kin, logs in steps().items()}
    write_json(REPORTS / "transfer.json", {"kernels": result, "steps": guessed})
    lines = [
        "# Kernel tables on devices other than the H200",
        "",
        "Written by `python validation/scripts/check_transfer.py`. Errors of single kernel times",
        "in percent: median / 90th percentile of the size (median with sign; above 0 is predicted",
        "slower than measured), over shapes that no fit saw. *Profile*: as shipped. *H200 tables*:",
        "with every parameter inherited. *Datasheet*: plain roofline without efficiencies.",
        "Whether a device's own fit was kept at all was decided on these same shapes.",
        "",
        *table(
            ("kernels", "device", "n", "profile", "H200 tables", "datasheet"),
            [cells(key, scores) for key, scores in result.items()], left=True,
        ),
        "",
        "## A device without tables",
        "",
        "Decode steps (kernels alone) of every measured device under the tables of every other,",
        "over those under its own. *Half* and *nine tenths*: the factor, either way, that so many",
        "steps stay within. Tables that two devices share count as right, so the factors are",
        "lower bounds.",
        "",
        *table(
            ("tables of a device of the", "n", "median", "half", "nine tenths"),
            [[kin, *map(str, scores.values())] for kin, scores in guessed.items()], left=True,
        ),
    ]
    write_text(REPORTS / "transfer.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

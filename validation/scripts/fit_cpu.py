"""Fits the kernel tables of the `cpu-generic` profile on full step times of three small models.

No single kernels were measured, so few numbers are fitted, all shared by the three models: the
fixed cost of a call, the fractions of the memory rate and of the product peak, and how sharply
one gives way to the other. Each model is left out in turn; what is written comes from all three.
Half a minute:

    python validation/scripts/fit_cpu.py
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
from common import DATA, PROFILES, read_csv, write_text
from kernels.fitting import rounded
from scipy.optimize import least_squares

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.latency.step import LatencyModel
from specsim.model.catalogue import find_model

PROFILE = PROFILES / "cpu-generic.toml"
MARKER = "# --- fitted kernel tables below this line (validation/scripts/fit_cpu.py) ---"
MODELS = {"smollm2": "SmolLM2-135M", "qwen05b": "Qwen2.5-0.5B", "qwen15b": "Qwen2.5-1.5B"}
# (start, low, high)
FREE = {
    "call_s": (60e-6, 1e-6, 400e-6),
    "mem_frac": (0.85, 0.3, 1.0),
    "peak_frac": (0.8, 0.3, 1.0),
    "p": (2.2, 1.0, 6.0),
    "decode_peak_frac": (0.5, 0.01, 1.0),
    "prefill_peak_frac": (0.3, 0.01, 1.0),
}
STREAM_S = 1e-6  # elementwise calls: the fit puts all fixed cost on products and attention


class Step(NamedTuple):
    model: str
    shape: StepShape
    seconds: float


def steps() -> list[Step]:
    """Every measured step."""
    found = []
    for short, model in MODELS.items():
        path = DATA / "cpu_steps" / f"{short}_cpu_bf16_packed_merged_min.csv"
        for row in read_csv(path):
            batch, q, ctx = (int(row[c]) for c in ("batch", "q", "ctx"))
            if row["phase"] == "prefill":
                shape = StepShape(prefill=(PrefillChunk(q),) * batch)
            else:
                shape = StepShape(
                    decode_seqs=batch, decode_q_len=q, decode_context_tokens=batch * ctx
                )
            found.append(Step(model, shape, float(row["min_ms"]) * 1e-3))
    return found


def tables(values: dict[str, float]) -> dict[str, dict[str, float]]:
    """Kernel tables from the fitted numbers. A CPU library has no tiles to waste and no waves."""
    call_s, mem, p = values["call_s"], values["mem_frac"], values["p"]
    return {
        "gemm.bf16": {
            "untiled": 1.0, "floor_s": call_s, "mem_frac": mem,
            "peak_frac": values["peak_frac"], "p": p, "act_traffic": 1.0, "cold_s": 0.0,
            "tile_s": 0.0, "k_step_s": 0.0, "tail": 0.0, "tile_by_rows": 0.0, "split_s": 0.0,
            "split_traffic": 0.0, "sag": 0.0, "sag_s": 0.0, "row_s": 0.0, "quant_frac": 1.0,
            "fill_penalty": 0.0, "fill_power": 1.0, "l2_frac": 1.0, "tile_128x128_frac": 1.0,
            "tile_64x128_frac": 1.0, "tile_64x64_frac": 1.0,
        },
        "attn_decode.bf16": {
            "floor_s": call_s, "mem_frac": mem, "peak_frac": values["decode_peak_frac"], "p": p,
            "cold_s": 0.0, "wide_power": 0.0, "tile_s": 0.0, "tile_power": 0.0, "tail": 0.0,
            "split_s": 0.0, "max_splits": 1.0, "sm_frac": 1.5, "block_s": 0.0,
            "l2_frac": 1.0, "l2_traffic": 1.0,
        },
        "attn_prefill": {
            "floor_s": call_s, "mem_frac": mem, "peak_frac": values["prefill_peak_frac"], "p": p,
            "wide_frac": values["prefill_peak_frac"], "chain_gain": 2.0, "tile_s": 0.0,
            "sag": 0.0, "sag_s": 10.0,
        },
        "elementwise": {"floor_s": STREAM_S, "mem_frac": mem, "p_floor": 1.0},
        "sample": {"floor_s": STREAM_S, "mem_frac": mem, "passes": 1.0},
    }


def bare_engine() -> EngineProfile:
    """An engine that adds nothing: the measured steps are single calls of the model."""
    engine = find_engine("transformers")
    none = {f.name: 0.0 for f in fields(engine.overheads)}
    return replace(engine, overheads=replace(engine.overheads, **none), graph_max=10**6)


def predict(profile: HardwareProfile, rows: Sequence[Step]) -> np.ndarray:
    engine = bare_engine()
    instances = {n: Instance(find_model(n), profile, engine) for n in {r.model for r in rows}}
    models = {name: LatencyModel(instance) for name, instance in instances.items()}
    return np.array([models[row.model].seconds(row.shape) for row in rows])


def with_tables(profile: HardwareProfile, values: dict[str, float]) -> HardwareProfile:
    kernels = {n: KernelTable(n, params, "fit") for n, params in tables(values).items()}
    return replace(profile, kernels=kernels)


def fit(profile: HardwareProfile, rows: Sequence[Step]) -> dict[str, float]:
    names = list(FREE)
    start, low, high = (np.array([FREE[n][i] for n in names]) for i in range(3))
    measured = np.log([row.seconds for row in rows])

    def residuals(z: np.ndarray) -> np.ndarray:
        values = dict(zip(names, (z * start).tolist(), strict=True))
        return np.log(predict(with_tables(profile, values), rows)) - measured

    found = least_squares(
        residuals, start / start, bounds=(low / start, high / start), loss="soft_l1",
        f_scale=0.1, diff_step=1e-2,
    )
    return {n: rounded(v) for n, v in zip(names, found.x * start, strict=True)}


def error(profile: HardwareProfile, values: dict[str, float], rows: Sequence[Step]) -> float:
    """Mean absolute relative error."""
    ratio = predict(with_tables(profile, values), rows) / [row.seconds for row in rows]
    return float(np.mean(np.abs(ratio - 1.0)))


def main() -> None:
    head = PROFILE.read_text().partition(MARKER)[0].rstrip()
    write_text(PROFILE, head + "\n")
    profile = load_profile("cpu-generic")
    rows = steps()
    outside = []
    for model in MODELS.values():
        rest = [row for row in rows if row.model != model]
        test = [row for row in rows if row.model == model]
        outside.append(f"{100 * error(profile, fit(profile, rest), test):.0f}% on {model}")
    values = fit(profile, rows)
    source = (
        f"fitted on {len(rows)} step times of three models (validation/data/cpu_steps, "
        f"validation/scripts/fit_cpu.py): mean error {100 * error(profile, values, rows):.1f}%; "
        f"with one model left out {', '.join(outside)}"
    )
    print(values, source)
    lines = [head, "", MARKER]
    for name, params in tables(values).items():
        lines += ["", f'[kernels."{name}"]', f'source = "{source}"']
        lines.append('measured_on = "two cores of an AMD EPYC (Zen 4), torch 2.13.0 CPU"')
        lines += [f"{param} = {value!r}" for param, value in params.items()]
    write_text(PROFILE, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

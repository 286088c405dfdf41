"""Deployments and loads at random: every catalogued model, device, engine and method.

Options are drawn as a user could type them; most combinations that no server runs are avoided, and
what is refused all the same is refused by specsim.
"""

import random
from functools import lru_cache
from typing import Any

from specsim.hardware.store import list_profiles
from specsim.latency.engine import find_engine, list_engines
from specsim.methods.base import METHODS
from specsim.model.catalogue import list_models
from specsim.options.prediction import PredictOptions

WEIGHTS = ("bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4")


@lru_cache(maxsize=1)
def catalogue() -> tuple[list[str], list[str], list[str]]:
    """Names of all models, devices, and engines by version."""
    engines = [f"{engine.name}=={engine.version}" for engine in list_engines()]
    return (
        [entry.name for entry in list_models()],
        [entry.name for entry in list_profiles()],
        engines,
    )


def log_uniform(draw: random.Random, low: int, high: int) -> int:
    """A whole number from low to high, as likely between 1 and 2 as between 100 and 200."""
    return min(high, int(low * (high / low + 1) ** draw.random()))


def options(draw: random.Random) -> dict[str, Any]:
    """Of `specsim predict`, one load."""
    models, devices, engines = catalogue()
    engine = draw.choice(engines)
    found: dict[str, Any] = {
        "model": draw.choice(models),
        "gpu": draw.choice(devices),
        "engine": engine,
        "tp": draw.choice([1, 1, 2, 4, 8, 8]),
        "input_len": log_uniform(draw, 1, 100_000),
        "output_len": log_uniform(draw, 1, 8_000),
    }
    if draw.random() < 0.4:
        found["weights"] = draw.choice(WEIGHTS)
    if draw.random() < 0.3:
        found["kv"] = draw.choice(["bf16", "fp8"])
    if draw.random() < 0.15:
        found["pp"] = draw.choice([2, 4])
    if draw.random() < 0.15:
        found["ep"] = found["tp"]
    if draw.random() < 0.1:
        found["fidelity"] = "datasheet"
    if draw.random() < 0.25:
        found["max_num_seqs"] = log_uniform(draw, 1, 1024)
    if draw.random() < 0.25:
        found["max_num_batched_tokens"] = log_uniform(draw, 64, 32_768)
    if draw.random() < 0.15:
        found["gpu_memory_utilization"] = round(draw.uniform(0.3, 1), 2)
    found |= _drafting(draw, engine) | _load(draw)
    return found


def _drafting(draw: random.Random, engine: str) -> dict[str, Any]:
    names = find_engine(engine).methods or tuple(METHODS)
    method = draw.choice(names)
    if not METHODS[method].speculates:
        return {"method": method}
    k = draw.choice([1, 2, 3, 3, 5, 7, 8, 15])
    found: dict[str, Any] = {"method": method, "k": k}
    if METHODS[method].trees and draw.random() < 0.2:
        found["tree"] = f"{draw.choice([2, 4, 8])},{draw.choice([8, 16, 32])}"
    if METHODS[method].lookup and draw.random() < 0.5:
        found["draft_share"] = round(draw.uniform(0.05, 1), 2)
    form = draw.choice(["rate", "rate", "length", "measured"])
    if form == "rate":
        found["acceptance_rate"] = round(draw.random(), 3)
    elif form == "length":
        found["acceptance_length"] = round(1 + k * draw.random(), 3)
    return found


def _load(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.3:
        return {"rate": round(10 ** draw.uniform(-2, 2), 4)}
    found: dict[str, Any] = {"concurrency": log_uniform(draw, 1, 4096)}
    kind = draw.choice(["", "", "", "equal", "ranging", "cached"])
    if kind == "equal":
        found["equal_lengths"] = True
    elif kind == "ranging":
        found["range_ratio"] = round(draw.uniform(0, 0.99), 2)
    elif kind == "cached":
        found["cached_share"] = round(draw.uniform(0, 0.99), 2)
    if draw.random() < 0.2:
        found["requests_per_client"] = draw.choice([1, 2, 5, 10])
    return found


def random_options(seed: int) -> PredictOptions:
    """The options of this number; the same as long as the catalogue is."""
    return PredictOptions(**options(random.Random(seed)))

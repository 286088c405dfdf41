"""Whether `specsim simulate` and `specsim predict` say the same where both can: the steady state.

    python benchmarks/simulate_predict.py [--cases N] [--seed S] [--only WORD] [--json FILE]

Deployments (dense, routed, hybrid, latent and windowed attention; one GPU and eight; vLLM, SGLang,
TensorRT-LLM; no drafts to seven), lengths and loads are drawn from lists, the same for the same
seed. Lengths vary around the means (`RANGE_RATIO`), which both are told. A simulation starts with
all clients at once, so its first `WARM_UP` answers per client are left out. Gaps are
simulate / predict - 1 for tokens per second and the mean time per output token, within 3 % and 5 %:
the two share prices of steps and differ in how they schedule. An open loop is stable below 90 % of
its capacity while 1 % more requests make TPOT less than 3 % longer; others are counted apart.
`tests/benchmarks` runs a sample.
"""

import argparse
import json
import random
import statistics
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specsim.analytic.predict import STEEP  # noqa: E402
from specsim.api.predict import predict  # noqa: E402
from specsim.api.simulate import simulate  # noqa: E402
from specsim.errors import SpecSimError  # noqa: E402

RANGE_RATIO = 0.6
WARM_UP = 3  # answers per client
MEASURED = 4  # the same, and at least `LEAST` answers in all
LEAST = 500
ARRIVALS = 1500  # of an open loop
MOST_THROUGHPUT_GAP, MOST_TPOT_GAP = 0.03, 0.05
MOST_BUSY = 0.9
KEPT = ("throughput", "tpot", "ttft", "price_gap", "checked", "stable")
# (model, TP, method of its drafts, draft lengths)
DEPLOYMENTS = (
    ("llama-3.1-8b", 1, "eagle3", (0, 3, 5)),
    ("llama-3.1-8b", 8, "eagle3", (0, 3)),
    ("llama-3.3-70b-instruct", 8, "eagle3", (0, 2, 7)),
    ("qwen3-8b", 1, "eagle3", (0, 4)),
    ("qwen3-30b-a3b", 1, "eagle3", (0, 3)),
    ("qwen3-235b-a22b", 8, "eagle3", (0,)),
    ("qwen3.6-27b", 1, "mtp", (0, 1, 3)),
    ("qwen3-next-80b-a3b", 8, "mtp", (0, 2)),
    ("deepseek-v3", 8, "mtp", (0, 1, 3)),
    ("gpt-oss-120b", 1, "eagle3", (0, 3)),
    ("gpt-oss-120b", 8, "eagle3", (0,)),
    ("gemma-3-27b", 1, "draft-model", (0,)),
    ("gemma-3-27b", 8, "draft-model", (0,)),
)
ENGINES = ("vllm", "vllm", "sglang", "trtllm")
LENGTHS = {"short": (128, 128), "chat": (1024, 460), "code": (2048, 512), "long": (8192, 512)}
CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LOADS = (0.2, 0.5, 0.8)  # of the capacity, in an open loop


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison. options: what both commands are asked. share: of the capacity; None: a
    closed loop."""

    options: dict[str, object]
    share: float | None = None

    @property
    def name(self) -> str:
        load = "" if self.share is None else f" at {self.share:g} of capacity"
        return " ".join(str(value) for value in self.options.values()) + load


@dataclass(frozen=True, slots=True)
class Gaps:
    """simulate / predict - 1."""

    case: Case
    throughput: float
    tpot: float
    ttft: float
    seconds: float
    price_gap: float | None
    checked: int
    stable: bool

    @property
    def agree(self) -> bool:
        return abs(self.throughput) <= MOST_THROUGHPUT_GAP and abs(self.tpot) <= MOST_TPOT_GAP


def drawn(seed: int) -> Iterator[Case]:
    """Cases without end, no two alike. Another seed draws others."""
    draw = random.Random(seed)
    seen: set[str] = set()
    while True:
        model, tp, method, lengths = draw.choice(DEPLOYMENTS)
        engine, k = draw.choice(ENGINES), draw.choice(lengths)
        tokens, output = LENGTHS[draw.choice(list(LENGTHS))]
        options: dict[str, object] = {
            "model": model, "tp": tp, "engine": engine, "method": method if k else "none",
            "input_len": tokens, "output_len": output,
        }
        if k:
            options["k"] = k
        share = draw.choice(LOADS) if draw.random() < 0.25 else None
        clients = draw.choice(CLIENTS)
        case = Case(options if share else {**options, "concurrency": clients}, share)
        if case.name not in seen:
            seen.add(case.name)
            yield case


def point_of(case: Case) -> tuple[dict[str, object], dict[str, float]]:
    """(the options with their load, predict's point)."""
    options = {"gpu": "h200", "range_ratio": RANGE_RATIO, **case.options}
    if case.share is not None:
        light = predict(**{**options, "rate": 1e-3}).to_dict()["points"][0]
        options["rate"] = case.share * 1e-3 / light["utilisation"]
    return options, predict(**options).to_dict()["points"][0]


def stable(point: dict[str, float | None]) -> bool:
    """Whether predict calls the load stable."""
    if point["utilisation"] is None:
        return True
    return point["utilisation"] < MOST_BUSY and point["steepness"] < STEEP


def gaps_of(case: Case) -> Gaps:
    """Run both."""
    options, point = point_of(case)
    rate = point["request_rate"]
    clients = options.get("concurrency") or max(1.0, point["running"])
    warm_up_s = WARM_UP * clients / rate
    measured_s = max(MEASURED * clients, LEAST) / rate
    if case.share is not None:
        measured_s = max(measured_s, ARRIVALS / rate)
    started = time.perf_counter()
    found = simulate(
        **options, baseline=False, warmup=warm_up_s,
        duration=warm_up_s + measured_s, seed=zlib.crc32(case.name.encode()),
    ).to_dict(False)
    expected_tok_s, expected_tpot_s = point["output_tok_s"], point["tpot_s"]
    if case.share is not None:
        # Of the requests that chance sent.
        sent = found["requests"]["measured"] / measured_s / rate
        expected_tok_s *= sent
        expected_tpot_s *= sent ** point["steepness"] if stable(point) else 1.0
    return Gaps(
        case,
        found["output_tok_s"] / expected_tok_s - 1,
        found["tpot_s"]["mean"] / expected_tpot_s - 1,
        found["ttft_s"]["mean"] / point["ttft_s"] - 1,
        time.perf_counter() - started,
        found["cost_surface"]["max_rel_error"],
        found["cost_surface"]["checked_steps"],
        stable(point),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="leave out those before")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--json", type=Path, help="write all gaps to this file")
    asked = parser.parse_args()
    found = []
    for case in islice(drawn(asked.seed), asked.first, asked.cases):
        if asked.only not in case.name:
            continue
        try:
            gaps = gaps_of(case)
        except SpecSimError as error:  # a draw that does not fit, or that simulate refuses
            print(f"  {case.name}: {error}", flush=True)
            continue
        found.append(gaps)
        mark = "  " if gaps.agree else "! " if gaps.stable else "~ "
        print(
            f"{mark}{case.name}: tok/s {gaps.throughput:+.1%}, TPOT {gaps.tpot:+.1%}, TTFT "
            f"{gaps.ttft:+.0%}, prices {gaps.price_gap or 0:.1%} of {gaps.checked}, "
            f"{gaps.seconds:.1f} s", flush=True,
        )
        if asked.json is not None:
            rows = [{"case": g.case.name, **{name: getattr(g, name) for name in KEPT}}
                    for g in found]
            asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    steady = [gaps for gaps in found if gaps.stable]
    for name in ("throughput", "tpot", "ttft"):
        sizes = sorted(abs(getattr(gaps, name)) for gaps in steady)
        print(
            f"{name}: median {statistics.median(sizes):.1%}, 90 % within "
            f"{sizes[int(0.9 * len(sizes))]:.1%}, worst {sizes[-1]:.1%}"
        )
    near = len(found) - len(steady)
    print(
        f"{sum(gaps.agree for gaps in steady)} of {len(steady)} stable loads agree, and "
        f"{sum(gaps.agree for gaps in found if not gaps.stable)} of {near} near what the server "
        "keeps up with"
    )


if __name__ == "__main__":
    main()

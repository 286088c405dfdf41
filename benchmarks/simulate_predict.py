"""Whether `specsim simulate` and `specsim predict` say the same where both can: the steady state.

    python benchmarks/simulate_predict.py [--cases N] [--seed S] [--only WORD] [--json FILE]

Deployments (dense, routed, hybrid, latent and windowed attention; one GPU and eight; vLLM, SGLang,
TensorRT-LLM; no drafts to seven), lengths and loads are drawn from lists, the same for the same
seed. A simulation starts with all clients at once, so its first `WARM_UP` answers per client are
left out, and lengths are drawn around the means (`RANGE_RATIO`), so that clients do not stay in
step. Gaps are simulate / predict - 1 for tokens per second and the mean time per output token. They
are to be within 3 % and 5 %: the two share prices of steps and differ in how they schedule.
"""

import argparse
import json
import random
import statistics
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specsim.api.predict import predict  # noqa: E402
from specsim.api.simulate import simulate  # noqa: E402
from specsim.errors import SpecSimError  # noqa: E402

RANGE_RATIO = 0.6
WARM_UP = 3  # answers per client
MEASURED = 6  # the same, and at least `LEAST` answers in all
LEAST = 200
ARRIVALS = 1000  # of an open loop
MOST_THROUGHPUT_GAP, MOST_TPOT_GAP = 0.03, 0.05
# (model, TP, method of its drafts, draft lengths)
DEPLOYMENTS = (
    ("llama-3.1-8b", 1, "eagle3", (0, 3, 5)),
    ("llama-3.1-8b", 8, "eagle3", (0, 3)),
    ("llama-3.3-70b-instruct", 8, "eagle3", (0, 2, 7)),
    ("qwen3-8b", 1, "eagle3", (0, 4)),
    ("qwen3-30b-a3b", 1, "eagle3", (0, 3)),
    ("qwen3-235b-a22b", 8, "eagle3", (0, 3)),
    ("qwen3.6-27b", 1, "mtp", (0, 1, 3)),
    ("qwen3-next-80b-a3b", 8, "mtp", (0, 2)),
    ("deepseek-v3", 8, "mtp", (0, 1, 3)),
    ("gpt-oss-120b", 1, "eagle3", (0, 3)),
    ("gpt-oss-120b", 8, "eagle3", (0,)),
    ("gemma-3-27b", 1, "draft-model", (0,)),
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

    @property
    def agree(self) -> bool:
        return abs(self.throughput) <= MOST_THROUGHPUT_GAP and abs(self.tpot) <= MOST_TPOT_GAP


def cases(count: int, seed: int) -> list[Case]:
    """So many cases that predict can answer, drawn anew for another seed."""
    draw = random.Random(seed)
    out: list[Case] = []
    seen: set[str] = set()
    while len(out) < count:
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
        if case.name in seen:
            continue
        seen.add(case.name)
        try:
            point_of(case)
        except SpecSimError:
            continue
        out.append(case)
    return out


def point_of(case: Case) -> tuple[dict[str, object], dict[str, float]]:
    """(the options with their load, predict's point)."""
    options = {"gpu": "h200", **case.options}
    if case.share is not None:
        light = predict(**{**options, "rate": 1e-3}).to_dict()["points"][0]
        options["rate"] = case.share * 1e-3 / light["utilisation"]
    return options, predict(**options).to_dict()["points"][0]


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
        **options, baseline=False, range_ratio=RANGE_RATIO, warmup=warm_up_s,
        duration=warm_up_s + measured_s, seed=zlib.crc32(case.name.encode()),
    ).to_dict(False)
    expected_tok_s = point["output_tok_s"]
    if case.share is not None:
        # Of the requests that chance sent.
        expected_tok_s *= found["requests"]["measured"] / measured_s / rate
    return Gaps(
        case,
        found["output_tok_s"] / expected_tok_s - 1,
        found["tpot_s"]["mean"] / point["tpot_s"] - 1,
        found["ttft_s"]["mean"] / point["ttft_s"] - 1,
        time.perf_counter() - started,
        found["cost_surface"]["max_rel_error"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--json", type=Path, help="write all gaps to this file")
    asked = parser.parse_args()
    found = []
    for case in cases(asked.cases, asked.seed):
        if asked.only not in case.name:
            continue
        try:
            gaps = gaps_of(case)
        except SpecSimError as error:  # what predict answers, simulate may refuse to run
            print(f"  {case.name}: {error}", flush=True)
            continue
        found.append(gaps)
        print(
            f"{'  ' if gaps.agree else '! '}{case.name}: tok/s {gaps.throughput:+.1%}, TPOT "
            f"{gaps.tpot:+.1%}, TTFT {gaps.ttft:+.0%}, prices {gaps.price_gap or 0:.1%}, "
            f"{gaps.seconds:.1f} s", flush=True,
        )
    for name in ("throughput", "tpot", "ttft"):
        sizes = sorted(abs(getattr(gaps, name)) for gaps in found)
        print(
            f"{name}: median {statistics.median(sizes):.1%}, 90 % within "
            f"{sizes[int(0.9 * len(sizes))]:.1%}, worst {sizes[-1]:.1%}"
        )
    print(f"{sum(gaps.agree for gaps in found)} of {len(found)} agree")
    if asked.json is not None:
        rows = [
            {"case": g.case.name, "throughput": g.throughput, "tpot": g.tpot, "ttft": g.ttft}
            for g in found
        ]
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

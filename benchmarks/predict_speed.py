"""How fast predictions are: distinct points in one process, and the command line from a shell.

    python benchmarks/predict_speed.py [--model NAME] [--points N]

A point is one closed loop with speculation and one without, at a draft length, a number of
clients and a prompt length that no other point shares: nothing is asked twice. What several
points have in common (the price of a matrix product of the same shape, say) is kept by the model
itself, as in any sweep. Predictions are CPU seconds, command lines wall time.
"""

import argparse
import itertools
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specsim.analytic.closed import closed_loop  # noqa: E402
from specsim.analytic.system import System  # noqa: E402
from specsim.analytic.workload import Workload  # noqa: E402
from specsim.hardware.store import load_profile  # noqa: E402
from specsim.latency.engine import find_engine  # noqa: E402
from specsim.methods.resolve import default_method, resolve_setup  # noqa: E402
from specsim.model.catalogue import find_model, variant  # noqa: E402
from specsim.speculation.acceptance import Acceptance  # noqa: E402

DRAFTS = range(1, 11)
CLIENTS = tuple(range(1, 51, 2))
PROMPTS = tuple(range(200, 8200, 200))


def sweep(model: str, points: int) -> tuple[int, float, float]:
    """(points, seconds, checksum) of the first `points` points of the grid, spread over it."""
    engine, profile = find_engine("vllm"), load_profile("h200-sxm")
    spec = variant(find_model(model), "fp8")
    method = default_method(spec, engine)
    systems = {}
    for k in DRAFTS:
        setup = resolve_setup(spec, engine, method, k)
        acceptance = Acceptance.from_rate(0.8, k)
        systems[k] = System(spec, profile, engine, setup=setup, acceptance=acceptance)
    plain = systems[1].plain()
    grid = list(itertools.product(PROMPTS, CLIENTS, DRAFTS))
    chosen = grid[:: max(1, len(grid) // points)][:points]
    total = 0.0
    start = time.process_time()
    for prompt, clients, k in chosen:
        workload = Workload(prompt, 256)
        with_it = closed_loop(systems[k], workload, clients)
        without = closed_loop(plain, workload, clients)
        total += with_it.output_tok_s / without.output_tok_s
    return len(chosen), time.process_time() - start, total


def shell(*arguments: str, runs: int = 5) -> float:
    """Least wall time of a few runs of the command line: what the machine can do undisturbed."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "cli.py", *arguments], cwd=ROOT, check=True, capture_output=True
        )
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="qwen3.6-27b")
    parser.add_argument("--points", type=int, default=10_000)
    options = parser.parse_args()
    points, seconds, total = sweep(options.model, options.points)
    sys.stdout.write(
        f"{points} predictions of {options.model}: {seconds:.2f} s, "
        f"{seconds / points * 1e3:.3f} ms each (mean speedup {total / points:.3f})\n"
    )
    for name, arguments in (
        ("specsim --help", ("--help",)),
        (f"specsim predict {options.model}", ("predict", options.model)),
        (f"specsim tune {options.model}", ("tune", options.model)),
    ):
        sys.stdout.write(f"{name}: {shell(*arguments):.3f} s\n")


if __name__ == "__main__":
    main()

"""Commands of two checkouts side by side: wall time, and the ratio of the medians.

    python benchmarks/house_speed.py TREE [TREE2] [--runs N]

TREE is the checkout before, TREE2 (default: this one) the one after. Each command runs N times per
checkout, in turn (before, after, before, ...), after one run of each that is not counted, so that
both sides meet the same state of the machine: both find the bytecode that the first run wrote. Only
public commands are used.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "--help": ["--help"],
    "predict": ["predict", "qwen3.6-27b", "--weights", "fp8", "--concurrency", "1,8,64"],
    "predict MindRouter": ["predict"],
    "simulate": ["simulate", "llama-3.1-8b", "--rate", "4", "--requests", "200"],
    "capacity": [
        "capacity", "llama-3.1-8b", "--gpu", "l40s", "--method", "none", "--unit", "rate",
        "--slo", "ttft_p95=1,stream_tok_s_p10=30", "--replications", "4", "--duration", "20",
        "--warmup", "4", "--resolution", "0.4", "--jobs", "1",
    ],
}


def seconds(tree: Path, words: list[str], folder: str) -> float:
    """Wall time of one command of this checkout, in an empty folder."""
    environment = {
        **os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1",
        "PYTHONPYCACHEPREFIX": f"{folder}/.bytecode",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    call = [sys.executable, "-P", "-c", "from specsim.commands import main; main()", *words]
    start = time.perf_counter()
    subprocess.run(call, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, metavar="TREE")
    parser.add_argument("after", type=Path, metavar="TREE2", nargs="?", default=ROOT)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    trees = (options.before.resolve(), options.after.resolve())
    print("| command | before, s | after, s | ratio |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in COMMANDS.items():
            taken: tuple[list[float], list[float]] = ([], [])
            for run in range(options.runs + 1):
                for tree, times in zip(trees, taken, strict=True):
                    found = seconds(tree, words, folder)
                    if run:
                        times.append(found)
            before, after = map(statistics.median, taken)
            print(f"| {name} | {before:.3f} | {after:.3f} | {after / before:.2f} |", flush=True)


if __name__ == "__main__":
    main()

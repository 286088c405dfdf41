"""Speed of the simulator: engine steps and requests per CPU second, peak memory, cost per step.

    python benchmarks/sim_speed.py [--quick] [--json] [--peer PYTHON]

Every measurement runs in a fresh process and counts its CPU time after imports (and after the
machine code is made and loaded, where it is compiled: `first use`). The step cost is a straight
line, so this measures the simulator and not a latency model; acceptance is sampled with spread and
memory (k = 3).

    batch 64    closed loop of 64 streams, 512 + 512 tokens: steps per CPU second
    long        the same with 2,048 output tokens (fewer arrivals and departures per step)
    open        Poisson arrivals of 512/512 at 20/s: requests per CPU second
    memory      10,000 requests of 512/512, records kept: peak resident MiB of the process
    flat        steps per CPU second in the first and the last tenth of a long run
    first use   making the machine code of the step loop, once for each version, and loading it

Compare with figures of the same machine only. --peer runs NVIDIA's Dynamo replay (a discrete-event
engine in Rust) on the same load in the same run: PYTHON is an interpreter with it installed
(pip install --no-deps ai-dynamo-runtime==1.5.1; Apache-2.0; its built-in polynomial step times).
It runs before and after the others, as the machine's speed drifts; ratios are to the mean. It does
not speculate: a request of 512 tokens takes it 512 steps, and 3 drafts sampled here 190.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CASES = {
    # name: (mode, compiled, requests, quick requests, output tokens, k)
    "batch 64, plain": ("closed", False, 6_000, 2_000, 512, 3),
    "batch 64, compiled": ("closed", True, 60_000, 10_000, 512, 3),
    "long, plain": ("closed", False, 2_000, 500, 2048, 3),
    "long, compiled": ("closed", True, 20_000, 4_000, 2048, 3),
    "no speculation, plain": ("closed", False, 10_000, 2_000, 512, 0),
    "no speculation, compiled": ("closed", True, 60_000, 10_000, 512, 0),
    "open, plain": ("open", False, 6_000, 2_000, 512, 3),
    "open, compiled": ("open", True, 60_000, 10_000, 512, 3),
    "memory, plain": ("open", False, 10_000, 10_000, 512, 3),
    "memory, compiled": ("open", True, 10_000, 10_000, 512, 3),
}


# Dynamo replay on the load of "no speculation": 64 streams of 512 + 512 tokens, max_num_seqs 64,
# 20,000 blocks. Every request takes a prompt step and 511 decode steps, shared by 64.
PEER_NAME = "Dynamo replay (Rust)"
PEER = """
import json, resource, time
from dynamo._core import MockEngineArgs, run_mocker_synthetic_trace_replay as replay
engine = MockEngineArgs(engine_type="vllm", num_gpu_blocks=20000, block_size=16, max_num_seqs=64,
                        max_num_batched_tokens=8192)
run = lambda count: replay(512, 512, count, extra_engine_args=engine, replay_concurrency=64)
run(64)
before = time.process_time()
summary = run({count}).summary
spent = time.process_time() - before
steps = {count} * 512 / 64
print(json.dumps(dict(requests={count}, steps=steps, mean_batch=64.0, cpu_s=spent,
    steps_per_cpu_s=steps / spent, requests_per_cpu_s={count} / spent,
    peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))
"""


class Line:
    """5 ms, 0.1 ms per sequence, 10 us per prompt token, 1 ns per cached token."""

    def seconds(self, shape):  # type: ignore[no-untyped-def]
        return (
            0.005
            + 1e-4 * shape.decode_seqs
            + 1e-9 * shape.decode_context_tokens
            + 1e-5 * shape.prefill_tokens
        )


def configuration(compiled: bool, k: int):  # type: ignore[no-untyped-def]
    from specsim.sim.config import SimConfig, SpeculationRules
    from specsim.sim.engine_rules import VLLM
    from specsim.speculation.acceptance import Acceptance
    from specsim.speculation.acceptance_spread import AcceptanceSpread

    return SimConfig(
        num_kv_blocks=20_000,
        rules=replace(VLLM, max_num_seqs=64),
        speculation=SpeculationRules(k),
        acceptance=Acceptance.from_rate(0.75, k) if k else None,
        acceptance_spread=AcceptanceSpread(0.5, 0.5, 0.9),
        compiled=compiled,
    )


def run_case(name: str, quick: bool) -> dict[str, float]:
    """One case in this process."""
    from specsim.sim.arrivals import gamma_times
    from specsim.sim.loads import ClosedLoop, OpenLoop, requests_of
    from specsim.sim.run import simulate

    mode, compiled, many, few, output, k = CASES[name]
    count = few if quick else many

    def load(requests: int):  # type: ignore[no-untyped-def]
        supply = requests_of(gamma_times(20.0, 0), 512, output, 0, limit=requests)
        if mode == "open":
            return OpenLoop(supply, total=requests)
        return ClosedLoop(supply, 64, total=requests)

    config = configuration(compiled, k)
    simulate(config, load(64), Line())  # imports, tables, machine code
    marks = []
    before = time.process_time()
    result = simulate(config, load(count), Line(), progress=lambda p: marks.append(p.ended))
    spent = time.process_time() - before
    summary = result.summary()
    return {
        "requests": count,
        "steps": summary["steps"],
        "mean_batch": summary["mean_batch"],
        "acceptance_length": summary["acceptance_length"] or 1.0,
        "cpu_s": spent,
        "steps_per_cpu_s": summary["steps"] / spent,
        "requests_per_cpu_s": count / spent,
        "output_tokens_per_cpu_s": count * output / spent,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def flat(quick: bool) -> dict[str, float]:
    """Cost of a request early and late in one run: it must not depend on those already finished.

    Memory grows by the records alone, 168 bytes each.
    """
    from specsim.sim.arrivals import gamma_times
    from specsim.sim.loads import OpenLoop, requests_of
    from specsim.sim.run import simulate

    count = 20_000 if quick else 100_000
    looks: list[tuple[int, float, float]] = []

    def look(progress) -> None:  # type: ignore[no-untyped-def]
        rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
        looks.append((progress.ended, time.process_time(), rss))

    supply = requests_of(gamma_times(20.0, 0), 64, 64, 0, limit=count)
    simulate(configuration(False, 3), OpenLoop(supply, total=count), Line(), progress=look)

    def per_request(first: int, last: int) -> float:
        """CPU seconds per request between two looks."""
        return (looks[last][1] - looks[first][1]) / (looks[last][0] - looks[first][0])

    tenth = max(1, len(looks) // 10)
    return {
        "requests": count,
        "late_over_early_cpu": per_request(-1 - tenth, -1) / per_request(0, tenth),
        "resident_mib_early": looks[tenth][2],
        "resident_mib_late": looks[-1][2],
    }


def first_use() -> dict[str, float]:
    """CPU seconds (those of the C compiler too) until the compiled loop can be used: made anew, and
    once it is there."""
    import tempfile

    program = (
        "import os; from specsim.sim import compiled; before = os.times(); "
        "assert compiled.available(); print(sum(os.times()[:4]) - sum(before[:4]))"
    )
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            environment = {**os.environ, "XDG_CACHE_HOME": folder, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=environment, capture_output=True, text=True, check=True,
            )
            spent.append(float(done.stdout))
    return {"make_cpu_s": spent[0], "load_cpu_s": spent[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with ai-dynamo-runtime")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        others = {"flat": lambda: flat(options.quick), "first use": first_use}
        part = others.get(options.case, lambda: run_case(options.case, options.quick))
        print(json.dumps(part()))
        return
    results = {}
    commands = {
        name: [sys.executable, __file__, "--case", name] + ["--quick"] * options.quick
        for name in [*CASES, "flat", "first use"]
    }
    if options.peer:
        count = 2_000 if options.quick else 10_000
        peer = [options.peer, "-c", PEER.replace("{count}", str(count))]
        commands = {f"{PEER_NAME}, before": peer, **commands, f"{PEER_NAME}, after": peer}
    for name, command in commands.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            results[name] = {"error": done.stderr.strip().splitlines()[-1]}
        else:
            results[name] = json.loads(done.stdout)
        if not options.json:
            show(name, results[name])
    if options.peer:
        add_ratios(results)
        if not options.json:
            show_ratios(results)
    if options.json:
        print(json.dumps(results, indent=1))


def add_ratios(results: dict) -> None:  # type: ignore[type-arg]
    """Steps and requests per CPU second of every case against the mean of the peer's two runs."""
    peers = [result for name, result in results.items() if name.startswith(PEER_NAME)]
    if any("error" in peer for peer in peers):
        return
    for figure in ("steps_per_cpu_s", "requests_per_cpu_s"):
        mean = sum(peer[figure] for peer in peers) / len(peers)
        for result in results.values():
            if figure in result:
                result[f"{figure}_over_peer"] = result[figure] / mean


def show_ratios(results: dict) -> None:  # type: ignore[type-arg]
    print(f"\nover {PEER_NAME}")
    for name, result in results.items():
        if "steps_per_cpu_s_over_peer" in result:
            print(
                f"{name:29s} {result['steps_per_cpu_s_over_peer']:6.2f} x its steps "
                f"{result['requests_per_cpu_s_over_peer']:6.2f} x its requests per CPU second"
            )


def show(name: str, result: dict) -> None:  # type: ignore[type-arg]
    if "error" in result:
        print(f"{name:29s} {result['error']}")
    elif "make_cpu_s" in result:
        print(
            f"{name:29s} {result['make_cpu_s']:.2f} CPU s to make the compiled loop, once for each "
            f"version; {result['load_cpu_s'] * 1e3:.0f} ms to load it"
        )
    elif "late_over_early_cpu" in result:
        print(
            f"{name:29s} a step costs {result['late_over_early_cpu']:.2f} x as much late as early; "
            f"resident {result['resident_mib_early']:.0f} -> {result['resident_mib_late']:.0f} MiB "
            f"over {result['requests']:,} requests"
        )
    else:
        print(
            f"{name:29s} {result['steps_per_cpu_s']:10,.0f} steps/CPU s "
            f"{result['requests_per_cpu_s']:9,.0f} requests/CPU s "
            f"batch {result['mean_batch']:5.1f}  peak {result['peak_mib']:4.0f} MiB"
        )


if __name__ == "__main__":
    main()

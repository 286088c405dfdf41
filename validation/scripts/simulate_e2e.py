"""Measured serving runs of others, replayed request by request and stage by stage.

    python validation/scripts/simulate_e2e.py [--short] [--dry]

* LLMServingSim's four runs of 300 requests (vLLM 0.19, RTX 4090 and RTX PRO 6000): the recorded
  arrivals and lengths, judged on the mean TTFT, ITL and E2E of each run, and request by request.
* The 16 runs of the BLIS training set (vLLM 0.15.1, H100) stage by stage: constant rates below and
  at saturation, and four overload runs.

Everything goes through `specsim.simulate` with the options of the command, as a trace: nothing is
fitted here. The servers did not speculate, so the method is none. ITL is
(E2E - TTFT) / (output tokens - 1) on both sides. --short shortens the H100 stages to a fifth.
Rewrites its section of validation/reports/serving.md and serving.json. Data:
validation/data/PROVENANCE.md.
"""

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA, read_csv, table
from serving_report import number, signed, update

from specsim import Simulation, simulate
from specsim.sim.request import FINISHED

# Mean over runs of the absolute error of a run's mean; the best peer has 9.1, 9.8, 19.5%.
BARS = {"e2e": 0.10, "itl": 0.12, "ttft": 0.20}
CLIENT_TIMEOUT_S = 300.0
REPLAYED, TRAINED = "vllm==0.19", "vllm==0.15.1"  # engines of the two data sets


@dataclass(frozen=True)
class Replay:
    """One LLMServingSim run. options: of `specsim simulate`; limits of all replicas together."""

    key: tuple[str, str]
    options: Mapping[str, Any]


REPLAYS = (
    Replay(("RTX4090", "Llama-3.1-8B"),
           {"gpu": "rtx-4090", "model": "llama-3.1-8b", "max_num_seqs": 128,
            "max_num_batched_tokens": 2048}),
    Replay(("RTXPRO6000", "Llama-3.1-8B"),
           {"gpu": "rtx-pro-6000", "model": "llama-3.1-8b", "max_num_seqs": 128,
            "max_num_batched_tokens": 2048}),
    Replay(("RTXPRO6000", "Qwen3-32B"),
           {"gpu": "rtx-pro-6000", "model": "qwen3-32b", "tp": 2, "max_num_seqs": 128,
            "max_num_batched_tokens": 2048}),
    Replay(("RTXPRO6000", "Qwen3-30B-A3B-Instruct-2507"),
           {"gpu": "rtx-pro-6000", "model": "qwen3-30b-a3b", "ep": 2, "attention_dp": 2,
            "max_num_seqs": 256, "max_num_batched_tokens": 4096}),
)
H100_MODELS = {
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-70b-hf": "llama-2-70b",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b",
}
Figures = dict[str, float]
Arrays = dict[str, np.ndarray]


@cache
def read(name: str) -> tuple[dict[str, str], ...]:
    """Rows of a CSV in the data folder."""
    return tuple(read_csv(DATA / "e2e" / name))


COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "prefix", "prefix_tokens", "prompt")


def served(options: Mapping[str, Any], requests: Sequence[Sequence[float]]) -> Simulation:
    """What the command makes of its options and of requests as rows of COLUMNS."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.csv"
        lines = [COLUMNS[: len(requests[0])], *requests]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
        return simulate(**{**options, "method": "none", "trace": path})


# --- 1,200 requests -------------------------------------------------------------------------------


def replay(run: Replay, limit: int | None = None) -> Arrays:
    """Measured and simulated milliseconds of every request of a run, in order of arrival."""
    rows = [
        row for row in read("llmservingsim_vllm_requests.csv.gz")
        if (row["gpu"], row["model"]) == run.key
    ]
    rows = sorted(rows, key=lambda row: float(row["arrival_s"]))[:limit]
    requests = [
        (float(row["arrival_s"]), int(row["input_tokens"]), int(row["output_tokens"]))
        for row in rows
    ]
    result = served({"engine": REPLAYED, **run.options}, requests)
    records = sorted(result.comparison.first.records, key=lambda record: record.request_id)
    found: Arrays = {
        "ttft": np.array([float(row["ttft_ms"]) for row in rows]),
        "e2e": np.array([float(row["e2e_ms"]) for row in rows]),
        "sim_ttft": np.array([1e3 * (record.ttft_s or math.nan) for record in records]),
        "sim_e2e": np.array([1e3 * (record.e2el_s or math.nan) for record in records]),
    }
    gaps = np.array([output - 1 for _, _, output in requests])
    found["itl"] = (found["e2e"] - found["ttft"]) / gaps
    found["sim_itl"] = (found["sim_e2e"] - found["sim_ttft"]) / gaps
    return found


def on_slower_hosts() -> list[dict[str, Any]]:
    """The runs on two GPUs, with the link that their host seems to have."""
    pairs = [run for run in REPLAYS if run.key[1].startswith("Qwen")]
    runs = [Replay(run.key, {**run.options, "link": "pcie4-x16"}) for run in pairs]
    return [summarise_replay(run, replay(run)) for run in runs]


def summarise_replay(run: Replay, found: Arrays) -> dict[str, Any]:
    out: dict[str, Any] = {"gpu": run.key[0], "model": run.key[1]}
    for name in BARS:
        measured, simulated = found[name], found[f"sim_{name}"]
        out[name] = {
            "measured_ms": float(measured.mean()),
            "simulated_ms": float(simulated.mean()),
            "error": float(simulated.mean() / measured.mean() - 1),
            "median_request_error": float(np.median(np.abs(simulated / measured - 1))),
            "measured_p99_ms": float(np.percentile(measured, 99)),
            "simulated_p99_ms": float(np.percentile(simulated, 99)),
        }
    return out


# --- 16 runs on H100 ------------------------------------------------------------------------------


def h100_runs() -> dict[str, list[dict[str, str]]]:
    """Stages of each run, in order."""
    runs: dict[str, list[dict[str, str]]] = {}
    for row in read("blis_training_h100_stages.csv"):
        if int(row["stage"]) >= 0:
            runs.setdefault(row["exp"], []).append(row)
    return runs


def h100_requests(
    stages: Sequence[Mapping[str, str]], scale: float
) -> list[tuple[float, ...]]:
    """The load generator has groups x users prompts, which it sends over and over: a group shares
    its system prompt, and a prompt sent before is in the prefix cache."""
    requests: list[tuple[float, ...]] = []
    begin_s = 0.0
    for row in stages:
        groups, users = int(row["groups"]), int(row["users_per_group"])
        rate, length_s = float(row["rate_rps"]), float(row["stage_s"]) * scale
        prompt, output = round(float(row["prompt_len_mean"])), int(row["output_len_requested"])
        for i in range(int(rate * length_s)):
            which = len(requests) % (groups * users)
            shared = int(row["system_prompt_len"])
            requests.append((begin_s + i / rate, prompt, output, which % groups, shared, which))
        begin_s += length_s
    return requests


def h100_run(
    stages: Sequence[Mapping[str, str]], scale: float = 1.0
) -> tuple[list[Figures], Simulation]:
    """Simulated figures of each stage, milliseconds."""
    row = stages[0]
    options = {
        "engine": TRAINED, "gpu": "h100-sxm", "model": H100_MODELS[row["model"]],
        "tp": int(row["tp"]), "max_num_seqs": int(row["max_num_seqs"]),
        "max_num_batched_tokens": int(row["max_num_batched_tokens"]),
        "request_timeout": CLIENT_TIMEOUT_S,
    }
    result = served(options, h100_requests(stages, scale))
    records = result.comparison.first.records
    arrival, done = records.times("arrival_s"), records.status(FINISHED)
    ttft = 1e3 * (records.times("first_token_s") - arrival)
    e2e = 1e3 * (records.times("end_s") - arrival)
    out, begin_s = [], 0.0
    for stage in stages:
        end_s = begin_s + float(stage["stage_s"]) * scale
        here = done & (arrival >= begin_s) & (arrival < end_s)
        gaps = int(stage["output_len_requested"]) - 1
        out.append(
            {
                "ttft": float(ttft[here].mean()),
                "ttft_p99": float(np.percentile(ttft[here], 99)),
                "e2e": float(e2e[here].mean()),
                "e2e_p99": float(np.percentile(e2e[here], 99)),
                "itl": float((e2e[here].mean() - ttft[here].mean()) / gaps),
                "ok": float(here.sum()),
            }
        )
        begin_s = end_s
    return out, result


def h100_measured(row: Mapping[str, str]) -> Figures:
    names = {
        "ttft": "ttft_mean_ms", "ttft_p99": "ttft_p99_ms", "e2e": "e2e_mean_ms",
        "e2e_p99": "e2e_p99_ms", "itl": "itl_derived_ms", "ok": "ok",
    }
    return {name: float(row[column]) for name, column in names.items()}


def summarise_h100(scale: float) -> list[dict[str, Any]]:
    out = []
    for stages in h100_runs().values():
        overload = stages[0]["workload"] == "reasoning"
        figures, result = h100_run(stages, 1.0 if overload else scale)
        running = result.comparison.main.figures["running_max"]
        for row, simulated in zip(stages, figures, strict=True):
            measured = h100_measured(row)
            out.append(
                {
                    "model": row["model"].split("/")[1],
                    "workload": row["workload"],
                    "rate_rps": float(row["rate_rps"]),
                    "overload": overload,
                    "running_max": running,
                    "measured": measured,
                    "simulated": simulated,
                    "error": {
                        key: simulated[key] / value - 1 for key, value in measured.items()
                    },
                }
            )
    return out


# --- report ---------------------------------------------------------------------------------------


def mean_errors(errors: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean absolute error and bias of each judged quantity."""
    return {
        name: {
            "mean_abs": statistics.fmean(abs(error[name]) for error in errors),
            "bias": statistics.fmean(error[name] for error in errors),
            "n": len(errors),
        }
        for name in BARS
    }


def summary(
    replays: Sequence[Mapping[str, Any]],
    slower: Sequence[Mapping[str, Any]],
    stages: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, dict[str, float]]]:
    of_replays = [{name: run[name]["error"] for name in BARS} for run in replays]
    below = [stage["error"] for stage in stages if not stage["overload"]]
    others = {(run["gpu"], run["model"]): run for run in slower}
    hosts = [others.get((run["gpu"], run["model"]), run) for run in replays]
    groups = {
        "4 replayed runs, 1,200 requests": of_replays,
        "the same, two GPUs on PCIe 4.0 (inferred below)": [
            {name: run[name]["error"] for name in BARS} for run in hosts
        ],
        "H100, 20 stages below and at saturation": below,
        "H100, all 24 stages with overload": [stage["error"] for stage in stages],
        "H100, 4 overload stages": [stage["error"] for stage in stages if stage["overload"]],
    }
    return {name: mean_errors(errors) for name, errors in groups.items() if errors}


def report_lines(
    replays: Sequence[Mapping[str, Any]],
    slower: Sequence[Mapping[str, Any]],
    stages: Sequence[Mapping[str, Any]],
    sums: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> list[str]:
    def cell(entry: Mapping[str, float]) -> str:
        return f"{entry['mean_abs']:.1%} ({entry['bias']:+.1%})"

    judged = [[name, *(cell(found[key]) for key in BARS)] for name, found in sums.items()]
    lines = [
        "## Serving runs of others, without speculation",
        "",
        "Mean over runs (stages) of the absolute error of the mean, bias in brackets. Bars: E2E "
        "10%, ITL 12%, TTFT 20%. Everything is as `specsim simulate` has it; nothing is fitted "
        "on these runs.",
        "",
        *table(("set", "E2E", "ITL", "TTFT"), judged),
        "",
        "### LLMServingSim, request by request (vLLM 0.19.0)",
        "",
    ]
    rows = []
    hosts = [*((run, "") for run in replays), *((run, ", PCIe 4.0") for run in slower)]
    for run, host in hosts:
        for key in BARS:
            one = run[key]
            rows.append(
                [f"{run['gpu']} {run['model']}{host}", key.upper(), number(one["measured_ms"]),
                 number(one["simulated_ms"]), signed(one["error"]),
                 f"{one['median_request_error']:.1%}",
                 number(one["measured_p99_ms"]), number(one["simulated_p99_ms"])]
            )
    header = ("run", "ms", "measured", "simulated", "error", "median request error",
              "p99 measured", "p99 simulated")
    lines += [*table(header, rows), "", "### BLIS training set on H100 (vLLM 0.15.1)", ""]
    rows = []
    for stage in stages:
        measured, simulated, error = stage["measured"], stage["simulated"], stage["error"]
        cells = [f"{stage['model']} {stage['workload']}", f"{stage['rate_rps']:g}",
                 "overload" if stage["overload"] else ""]
        for key in ("ttft", "ttft_p99", "itl", "e2e"):
            cells += [f"{number(measured[key])} / {number(simulated[key])}", signed(error[key])]
        cells.append(f"{measured['ok']:.0f} / {simulated['ok']:.0f}")
        rows.append(cells)
    columns = ("run", "req/s", "", "TTFT ms", "", "TTFT p99", "", "ITL", "", "E2E", "", "served")
    return [
        *lines,
        *table(columns, rows),
        "",
        "Measured / simulated. TTFT p99 of first stages holds the start of the measured server "
        "(first kernels, cold cache of prompts), which is not simulated. Served counts are smaller "
        "where stages were shortened.",
        "",
        "Read from sources: vLLM schedules one step ahead by default from 0.14 on (0.13: off; "
        "wheels of 0.13.0, 0.14.0, 0.15.1 and 0.19.0), so a new request waits for the step that "
        "was planned before it came. Without that TTFT is a whole step short.",
        "",
        "What is left of the replays, by where it is in the measured time series:",
        "",
        "* Steps that only decode agree on one GPU: 27.0 ms measured and 27.0 simulated for 128 "
        "requests of Llama-3.1-8B on RTX PRO 6000, 25 and 26 ms for 27 on RTX 4090.",
        "* RTX 4090: steps of 2,048 prompt tokens take 198 ms in the first seconds, simulated 217 "
        "to 225: the card runs above the clock of its datasheet's peak. 3 of the 12 points of E2E "
        "are preempted requests, which compute anew what vLLM finds in its cache (measured with "
        "prompts that have keys of their own).",
        "* RTX PRO 6000, two GPUs: steps of Qwen3-32B with 2,048 prompt tokens take 351 ms in the "
        "first 16 s, whatever number of requests decodes beside them, simulated 280 to 297. The "
        "rest is 0.55 ms for each of 128 sums of 21 MB: 18 GB/s, what a slot of PCIe 4.0 gives and "
        "half of what this card was measured with in one of 5.0. With that link the run of the "
        "other model, Qwen3-30B-A3B, is nearer too.",
        "* Decode steps of 128 requests on those two GPUs are then still short: 58.8 ms measured, "
        "some 53 simulated with that link; it would be the sums, if each of 1.3 MB took 0.12 ms.",
        "",
        "Inferred, because the data does not say it:",
        "",
        "* RTX PRO 6000: Qwen3-32B on 2 GPUs (a lone request takes 25 ms per token, its cache held "
        "150,000 tokens); Qwen3-30B-A3B as 2 data-parallel replicas that share the experts (256 "
        "requests run, 2 x 128, at 44 ms per step, less than one GPU needs to read its bytes).",
        "* max_num_seqs is the most that ran (128 each); 2,048 tokens per step, from the prompt "
        "throughput and token rate of the first seconds.",
        "* H100: the load generator repeats groups x users prompts (44 to 50, reasoning 23), so "
        "prompts come from the prefix cache; clients give up after 300 s, where the slowest "
        "answers of the overload runs end.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured serving runs against the simulator")
    parser.add_argument("--short", action="store_true", help="a fifth of the H100 stages")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    scale = 0.2 if options.short else 1.0
    replays = [summarise_replay(run, replay(run)) for run in REPLAYS]
    stages = summarise_h100(scale)
    slower = on_slower_hosts()
    sums = summary(replays, slower, stages)
    lines = report_lines(replays, slower, stages, sums)
    sys.stdout.write("\n".join(lines) + "\n")
    if not options.dry:
        data = {"summary": sums, "replays": replays, "pcie4": slower, "stages": stages}
        update("e2e", data, lines)


if __name__ == "__main__":
    main()

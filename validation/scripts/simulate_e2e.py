"""Measured serving runs of others, replayed request by request and stage by stage.

    python validation/scripts/simulate_e2e.py [--keep] [--short] [--dry]

* LLMServingSim's four runs of 300 requests (vLLM 0.19, RTX 4090 and RTX PRO 6000): the recorded
  arrivals and lengths, judged on the mean TTFT, ITL and E2E of each run, and request by request.
* The 16 runs of the BLIS training set (vLLM 0.15.1, H100) stage by stage: constant rates below and
  at saturation, and four overload runs.

ITL is (E2E - TTFT) / (output tokens - 1) on both sides. A few constants are fitted per device
(`CONSTANTS`), on the first 60 requests of two runs and on the codegen runs; --keep takes them from
serving.json instead, --short shortens the H100 stages. Rewrites its section of
validation/reports/serving.md and serving.json. Data: validation/data/PROVENANCE.md.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from common import DATA, REPORTS, read_csv, read_json, table
from scipy.optimize import least_squares
from serving_report import number, signed, update

from specsim.analytic.system import System
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model
from specsim.ops.work import UNIFORM, Parallel
from specsim.sim.build import Deployment, step_cost
from specsim.sim.config import SimConfig
from specsim.sim.loads import OpenLoop
from specsim.sim.request import FINISHED, Request
from specsim.sim.run import SimResult, simulate

# Mean over runs of the absolute error of a run's mean; the best peer has 9.1, 9.8, 19.5 %.
BARS = {"e2e": 0.10, "itl": 0.12, "ttft": 0.20}
# What may be fitted, by device: factors on the profile's bandwidth, peak and link, and seconds of
# the engine's overheads.
CONSTANTS: dict[str, dict[str, float]] = {
    "rtx-4090": {"peak": 1.0, "mem": 1.0},
    "rtx-pro-6000": {"peak": 1.0, "link": 1.0, "mixed_step_s": 5e-3},
    "h100-sxm": {"mem": 1.0, "request_s": 1e-2},
}
FIT_REQUESTS = range(5, 60)  # of the replayed runs; the first five met a cold server
TTFT_WEIGHT = 0.1  # of a log error in the fit, against 1 of ITL: TTFT follows from it
FIT_SCALE = 0.2  # of the stage lengths while fitting
CLIENT_TIMEOUT_S = 300.0
CONTEXT = 1000  # tokens a request holds; no model here has a window


@dataclass(frozen=True)
class Replay:
    """One LLMServingSim run. tokens: max_num_batched_tokens, as max_num_seqs of all its
    replicas together."""

    key: tuple[str, str]
    gpu: str
    model: str
    parallel: Parallel
    max_num_seqs: int
    tokens: int
    fitted: bool


REPLAYS = (
    Replay(("RTX4090", "Llama-3.1-8B"), "rtx-4090", "llama-3.1-8b", Parallel(), 128, 2048, True),
    Replay(("RTXPRO6000", "Llama-3.1-8B"), "rtx-pro-6000", "llama-3.1-8b", Parallel(), 128, 2048,
           True),
    Replay(("RTXPRO6000", "Qwen3-32B"), "rtx-pro-6000", "qwen3-32b", Parallel(tp=2), 128, 2048,
           True),
    Replay(("RTXPRO6000", "Qwen3-30B-A3B-Instruct-2507"), "rtx-pro-6000", "qwen3-30b-a3b",
           Parallel(ep=2, attention_dp=2), 256, 4096, False),
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


def system(
    model: str, gpu: str, parallel: Parallel, max_num_seqs: int, tokens: int,
    constants: Mapping[str, float],
) -> System:
    """A deployment on the device with its fitted constants."""
    profile = load_profile(gpu)
    profile = replace(
        profile,
        mem_bytes_per_s=profile.mem_bytes_per_s * constants.get("mem", 1.0),
        link_bytes_per_s=profile.link_bytes_per_s * constants.get("link", 1.0),
        flops={name: peak * constants.get("peak", 1.0) for name, peak in profile.flops.items()},
    )
    # vLLM schedules asynchronously by default from 0.14 on, so both versions here do.
    engine = find_engine("vllm", "0.25.1")
    over = engine.overheads
    over = replace(
        over,
        mixed_step_s=constants.get("mixed_step_s", over.mixed_step_s),
        request_s=constants.get("request_s", over.request_s),
    )
    return System(
        find_model(model),
        profile,
        replace(engine, overheads=over),
        parallel=parallel,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        # Eight experts trained to be used alike; the default stands for models of many experts.
        routing=UNIFORM if model == "mixtral-8x7b" else None,
    )


# --- 1,200 requests -------------------------------------------------------------------------------


def sim_config(deployed: System, **settings: float) -> SimConfig:
    """The simulation of a deployment."""
    return Deployment(
        deployed, context_tokens=CONTEXT, settings=tuple(settings.items())
    ).config


def replay(run: Replay, constants: Mapping[str, float], limit: int | None = None) -> Arrays:
    """Measured and simulated milliseconds of every request of a run, in order of arrival."""
    rows = [
        row for row in read("llmservingsim_vllm_requests.csv.gz")
        if (row["gpu"], row["model"]) == run.key
    ]
    rows = sorted(rows, key=lambda row: float(row["arrival_s"]))[:limit]
    deployed = system(run.model, run.gpu, run.parallel, run.max_num_seqs, run.tokens, constants)
    # Latencies were recorded inside the engine: no front end.
    config = sim_config(deployed, request_overhead_s=0.0)
    requests = [
        Request(float(row["arrival_s"]), int(row["input_tokens"]), int(row["output_tokens"]))
        for row in rows
    ]
    result = simulate(config, OpenLoop(requests), step_cost(deployed))
    records = sorted(result.records, key=lambda record: record.request_id)
    found: Arrays = {
        "ttft": np.array([float(row["ttft_ms"]) for row in rows]),
        "e2e": np.array([float(row["e2e_ms"]) for row in rows]),
        "sim_ttft": np.array([1e3 * (record.ttft_s or math.nan) for record in records]),
        "sim_e2e": np.array([1e3 * (record.e2el_s or math.nan) for record in records]),
    }
    gaps = np.array([request.output_tokens - 1 for request in requests])
    found["itl"] = (found["e2e"] - found["ttft"]) / gaps
    found["sim_itl"] = (found["sim_e2e"] - found["sim_ttft"]) / gaps
    return found


def summarise_replay(run: Replay, found: Arrays) -> dict[str, Any]:
    out: dict[str, Any] = {"gpu": run.key[0], "model": run.key[1], "fitted": run.fitted}
    for name in BARS:
        measured, simulated = found[name], found[f"sim_{name}"]
        out[name] = {
            "measured_ms": float(measured.mean()),
            "simulated_ms": float(simulated.mean()),
            "error": float(simulated.mean() / measured.mean() - 1),
            "error_unfitted_requests": float(
                simulated[FIT_REQUESTS.stop :].mean() / measured[FIT_REQUESTS.stop :].mean() - 1
            )
            if len(measured) > FIT_REQUESTS.stop
            else None,
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


def h100_requests(stages: Sequence[Mapping[str, str]], scale: float) -> list[Request]:
    """The load generator has groups x users prompts, which it sends over and over: a group shares
    its system prompt, and a prompt sent before is in the prefix cache."""
    requests: list[Request] = []
    begin_s = 0.0
    for row in stages:
        groups, users = int(row["groups"]), int(row["users_per_group"])
        rate, length_s = float(row["rate_rps"]), float(row["stage_s"]) * scale
        prompt, output = round(float(row["prompt_len_mean"])), int(row["output_len_requested"])
        for i in range(int(rate * length_s)):
            which = len(requests) % (groups * users)
            shared = (which % groups, int(row["system_prompt_len"]))
            own = (groups + which, prompt)
            requests.append(Request(begin_s + i / rate, prompt, output, (shared, own)))
        begin_s += length_s
    return requests


def h100_run(
    stages: Sequence[Mapping[str, str]], constants: Mapping[str, float], scale: float = 1.0
) -> tuple[list[Figures], SimResult]:
    """Simulated figures of each stage, milliseconds."""
    row = stages[0]
    deployed = system(
        H100_MODELS[row["model"]], "h100-sxm", Parallel(tp=int(row["tp"])),
        int(row["max_num_seqs"]), int(row["max_num_batched_tokens"]), constants,
    )
    config = sim_config(deployed, request_timeout_s=CLIENT_TIMEOUT_S)
    requests = h100_requests(stages, scale)
    result = simulate(config, OpenLoop(requests), step_cost(deployed))
    records = result.records
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


def summarise_h100(constants: Mapping[str, float], scale: float) -> list[dict[str, Any]]:
    out = []
    for stages in h100_runs().values():
        overload = stages[0]["workload"] == "reasoning"
        figures, result = h100_run(stages, constants, 1.0 if overload else scale)
        running = result.summary()["running_max"]
        for row, simulated in zip(stages, figures, strict=True):
            measured = h100_measured(row)
            out.append(
                {
                    "model": row["model"].split("/")[1],
                    "workload": row["workload"],
                    "rate_rps": float(row["rate_rps"]),
                    "overload": overload,
                    "fitted": row["workload"] == "codegen",
                    "running_max": running,
                    "measured": measured,
                    "simulated": simulated,
                    "error": {
                        key: simulated[key] / value - 1 for key, value in measured.items()
                    },
                }
            )
    return out


# --- constants ------------------------------------------------------------------------------------


def fit(gpu: str) -> dict[str, float]:
    """The device's constants, by least squares on the log errors of what is named in the module's
    docstring."""
    names = list(CONSTANTS[gpu])
    residuals: Callable[[dict[str, float]], list[float]]
    if gpu == "h100-sxm":
        runs = [stages for stages in h100_runs().values() if stages[0]["workload"] == "codegen"]

        def residuals(constants: dict[str, float]) -> list[float]:
            out = []
            for stages in runs:
                figures, _ = h100_run(stages, constants, FIT_SCALE)
                for row, simulated in zip(stages, figures, strict=True):
                    measured = h100_measured(row)
                    out += [math.log(simulated[key] / measured[key]) for key in ("itl", "ttft")]
            return out
    else:
        chosen = [run for run in REPLAYS if run.gpu == gpu and run.fitted]

        def residuals(constants: dict[str, float]) -> list[float]:
            out: list[float] = []
            for run in chosen:
                found = replay(run, constants)
                for name, weight in (("itl", 1.0), ("ttft", TTFT_WEIGHT)):
                    errors = np.log(found[f"sim_{name}"] / found[name])[FIT_REQUESTS]
                    out += (weight * errors).tolist()
            return out

    start = np.array([CONSTANTS[gpu][name] for name in names])

    def of(x: np.ndarray) -> list[float]:
        return residuals(dict(zip(names, (x * start).tolist(), strict=True)))

    solved = least_squares(
        of, np.ones(len(names)), diff_step=0.1, loss="soft_l1", f_scale=0.1, max_nfev=12,
        bounds=(0.05, 20.0),
    )
    values = (solved.x * start).tolist()
    return {name: float(f"{value:.3g}") for name, value in zip(names, values, strict=True)}


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
    replays: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, float]]]:
    of_replays = [{name: run[name]["error"] for name in BARS} for run in replays]
    rest = [{name: run[name]["error_unfitted_requests"] for name in BARS} for run in replays]
    below = [stage["error"] for stage in stages if not stage["overload"]]
    unseen = [s["error"] for s in stages if not s["overload"] and not s["fitted"]]
    groups = {
        "4 replayed runs, 1,200 requests": of_replays,
        "the same without the requests of the fit": rest,
        "H100, 20 stages below and at saturation": below,
        "the same without the stages of the fit": unseen,
        "H100, all 24 stages with overload": [stage["error"] for stage in stages],
        "H100, 4 overload stages": [stage["error"] for stage in stages if stage["overload"]],
    }
    return {name: mean_errors(errors) for name, errors in groups.items() if errors}


def report_lines(
    constants: Mapping[str, Mapping[str, float]],
    replays: Sequence[Mapping[str, Any]],
    stages: Sequence[Mapping[str, Any]],
    sums: Mapping[str, Mapping[str, Mapping[str, float]]],
    bare: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> list[str]:
    def cell(entry: Mapping[str, float]) -> str:
        return f"{entry['mean_abs']:.1%} ({entry['bias']:+.1%})"

    judged = [
        [name, *(cell(found[key]) for key in BARS),
         *(cell(bare[name][key]) if name in bare else "" for key in BARS)]
        for name, found in sums.items()
    ]
    lines = [
        "## Serving runs of others, without speculation",
        "",
        "Mean over runs (stages) of the absolute error of the mean, bias in brackets. Bars: E2E "
        "10 %, ITL 12 %, TTFT 20 %. The last three columns are the same with nothing fitted.",
        "",
        *table(("set", "E2E", "ITL", "TTFT", "E2E, no fit", "ITL, no fit", "TTFT, no fit"), judged),
        "",
        "Constants fitted per device, factors on its bandwidth (mem), peak and link, or seconds: "
        + "; ".join(
            f"{gpu}: {', '.join(f'{name} {value:g}' for name, value in found.items())}"
            for gpu, found in constants.items()
        )
        + ". None per run. All else is as the product has it: kernel tables of the profiles, "
        "overheads of `engines/vllm-0.25.1.toml`.",
        "",
        "### LLMServingSim, request by request (vLLM 0.19.0)",
        "",
    ]
    rows = []
    for run in replays:
        for key in BARS:
            one = run[key]
            rows.append(
                [f"{run['gpu']} {run['model']}", key.upper(), number(one["measured_ms"]),
                 number(one["simulated_ms"]), signed(one["error"]),
                 signed(one["error_unfitted_requests"]), f"{one['median_request_error']:.1%}",
                 number(one["measured_p99_ms"]), number(one["simulated_p99_ms"])]
            )
    header = ("run", "ms", "measured", "simulated", "error", "error after request 60",
              "median request error", "p99 measured", "p99 simulated")
    lines += [*table(header, rows), "", "### BLIS training set on H100 (vLLM 0.15.1)", ""]
    rows = []
    for stage in stages:
        measured, simulated, error = stage["measured"], stage["simulated"], stage["error"]
        cells = [f"{stage['model']} {stage['workload']}", f"{stage['rate_rps']:g}",
                 "fit" if stage["fitted"] else "overload" if stage["overload"] else ""]
        for key in ("ttft", "ttft_p99", "itl", "e2e"):
            cells += [f"{number(measured[key])} / {number(simulated[key])}", signed(error[key])]
        cells.append(f"{measured['ok']:.0f} / {simulated['ok']:.0f}")
        rows.append(cells)
    header = ("run", "req/s", "", "TTFT ms", "", "TTFT p99", "", "ITL", "", "E2E", "", "served")
    return [
        *lines,
        *table(header, rows),
        "",
        "Measured / simulated. TTFT p99 of first stages holds the start of the measured server "
        "(first kernels, cold cache of prompts), which is not simulated. Served counts are smaller "
        "where stages were shortened.",
        "",
        "Read from sources: vLLM schedules one step ahead by default from 0.14 on (0.13: off; "
        "wheels of 0.13.0, 0.14.0, 0.15.1 and 0.19.0), so a new request waits for the step that "
        "was planned before it came. Without that TTFT is a whole step short.",
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
        "* Mixtral's eight experts are used alike.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured serving runs against the simulator")
    parser.add_argument("--keep", action="store_true", help="constants of serving.json, no fit")
    parser.add_argument("--short", action="store_true", help="a fifth of the H100 stages")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    constants = stored_constants() if options.keep else {gpu: fit(gpu) for gpu in CONSTANTS}
    scale = 0.2 if options.short else 1.0
    replays = [summarise_replay(run, replay(run, constants[run.gpu])) for run in REPLAYS]
    stages = summarise_h100(constants["h100-sxm"], scale)
    sums = summary(replays, stages)
    bare = summary(
        [summarise_replay(run, replay(run, {})) for run in REPLAYS], summarise_h100({}, 0.2)
    )
    lines = report_lines(constants, replays, stages, sums, bare)
    sys.stdout.write("\n".join(lines) + "\n")
    if not options.dry:
        data = {"constants": constants, "summary": sums, "summary_without_fit": bare,
                "replays": replays, "stages": stages}
        update("e2e", data, lines)


def stored_constants() -> dict[str, dict[str, float]]:
    """The constants of the last full run."""
    serving = read_json(REPORTS / "serving.json")
    found: dict[str, dict[str, float]] = serving["e2e"]["data"]["constants"]
    return found


if __name__ == "__main__":
    main()

"""A real vLLM server on this CPU, driven by `specsim validate live`, plain and with n-gram drafts.

Usage: vllm_cpu.py --vllm BIN --model FOLDER [--out DIR] [--repeats 3] [--device 150s]

BIN is the `vllm` command of an environment with vLLM's CPU build (0.32), FOLDER the model as
Hugging Face files (SmolLM2-135M-Instruct, bf16); how both are made is in
measured/vllm_cpu/README.md. For plain decoding and for n-gram drafts (k = 3) one server is started;
every concurrency is measured `repeats` times in turn, so that a slow drift of the machine falls on
all of them alike. What is there already is not measured again. Results go to DIR:

    MODE.c=N.REPEAT.json   a point as `vllm bench serve` saves it, with the tokens of every chunk
    MODE.server.log        the server's log
    machine.json           CPU, versions, commands, and the load average around every point
    device.jsonl           `specsim measure` with one thread, on the same CPU (with --device)

Nothing is fitted here; vllm_cpu_report.py does that and writes the README. Takes about 20 minutes.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from common import MEASURED, ROOT, read_json, write_json
from serve_prompts import evenly, functions

OUTPUT_TOKENS = (128, 96, 160, 64)
# Requests per concurrency: some 1,500 to 3,500 tokens each.
POINTS = {1: 12, 2: 16, 4: 32, 8: 32}
MODES = ("plain", "ngram")
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4,
          "prompt_lookup_min": 2}
SERVED = "smollm2-135m"
# One thread: with two, the OpenMP threads of vLLM spin against client and server on two cores.
SERVER_ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
              "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
              "KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}
START_S, STOP_S = 300.0, 60.0


def prompts(count: int) -> list[dict[str, object]]:
    """Functions of this interpreter's standard library (PSF licence), to be written again."""
    found = [
        f"Here is a Python function from the standard library:\n```python\n{source}"
        "```\nRewrite the function exactly, changing nothing except renaming it to "
        f"`{word}_v2`:"
        for word, source in functions(250, 1100)
    ]
    return [
        {"prompt": prompt, "output_tokens": OUTPUT_TOKENS[i % len(OUTPUT_TOKENS)]}
        for i, prompt in enumerate(evenly(found, count))
    ]


def server_command(vllm: str, model: Path, mode: str, port: int) -> list[str]:
    command = [
        vllm, "serve", str(model), "--served-model-name", SERVED, "--host", "127.0.0.1",
        "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "2048",
        "--max-num-seqs", "32", "--max-num-batched-tokens", "2048", "--enforce-eager",
        "--no-enable-prefix-caching", "--disable-uvicorn-access-log",
    ]
    if mode == "ngram":
        command += ["--speculative-config", json.dumps(DRAFTS),
                    "--per-request-spec-decode-metrics", "detailed"]
    return command


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path):
    """A running server; ended with SIGINT to its own process group."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=stream, env=os.environ | SERVER_ENV,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}; see {log}")
            if time.monotonic() > deadline:
                raise SystemExit(f"the server was not ready within {START_S:g} s; see {log}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except OSError:
                pass
            time.sleep(1)
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def point_command(mode: str, clients: int, port: int, texts: Path, folder: Path) -> list[str]:
    """One point through the command that users have."""
    command = [
        sys.executable, "-m", "specsim", "validate", "live", SERVED,
        "--url", f"http://127.0.0.1:{port}", "--concurrency", str(clients),
        "--requests", str(POINTS[clients]), "--prompts", str(texts), "--ignore-eos",
        "--gpu", "cpu-generic", "--engine", "vllm", "--no-prefix-caching", "--no-explain",
        "--sample-every", "0.5", "--save-bench", str(folder), "--json",
    ]
    return command + (["--method", "ngram", "--k", "3"] if mode == "ngram" else ["--method",
                                                                                 "none"])


def measure(mode: str, clients: int, repeat: int, port: int, texts: Path, out: Path) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        before = os.getloadavg()[0]
        command = point_command(mode, clients, port, texts, Path(folder))
        started = time.time()
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        saved = Path(folder) / f"c={clients}.0.json"
        result = json.loads(saved.read_text()) | {"label": mode, "repeat": str(repeat)}
        target = out / f"{mode}.c={clients}.{repeat}.json"
        part = target.with_suffix(".part")
        part.write_text(json.dumps(result, separators=(",", ":")) + "\n")
        part.replace(target)
    print(f"{mode} c={clients} repeat {repeat}: {result['output_throughput']:.1f} tok/s, "
          f"{result['completed']} done, {result['failed']} failed", flush=True)
    return {"mode": mode, "concurrency": clients, "repeat": repeat, "at": started,
            "seconds": time.time() - started, "load_average_before": before,
            "load_average_after": os.getloadavg()[0], "command": command[2:]}


def machine(vllm: str) -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    version = subprocess.run([vllm, "--version"], capture_output=True, text=True, check=False,
                             env=os.environ | SERVER_ENV)
    words = version.stdout.split()
    return {"cpu": cpu[0] if cpu else platform.machine(), "cores": os.cpu_count(),
            "python": platform.python_version(), "vllm": words[-1] if words else "unknown",
            "server_env": SERVER_ENV, "points": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=MEASURED / "vllm_cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--port", type=int, default=18100)
    parser.add_argument("--device", default="", help="budget of `specsim measure`, e.g. 150s")
    parser.add_argument("--only", default="", help="MODE:CONCURRENCY, for a short trial")
    args = parser.parse_args()
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    notes_file = out / "machine.json"
    notes = read_json(notes_file) if notes_file.exists() else machine(args.vllm)

    def keep() -> None:
        write_json(notes_file, notes)

    if args.device and not (out / "device.jsonl").exists():
        command = [sys.executable, "-m", "specsim", "measure", "--threads", "1", "--device", "cpu",
                   "--budget", args.device, "--out", str(out / "device.jsonl"), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"device: `specsim measure` ended with {done.returncode} {done.stderr[-300:]}",
              flush=True)
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "prompts.jsonl"
        texts.write_text("".join(json.dumps(p) + "\n" for p in prompts(max(POINTS.values()))))
        for mode in MODES:
            todo = [
                (repeat, clients) for repeat in range(args.repeats) for clients in POINTS
                if not (out / f"{mode}.c={clients}.{repeat}.json").exists()
                and (not args.only or args.only == f"{mode}:{clients}")
            ]
            if not todo:
                continue
            command = server_command(args.vllm, args.model, mode, args.port)
            shown = ["vllm", "serve", "FOLDER", *command[3:]]
            notes.setdefault("servers", {})[mode] = " ".join(shown)
            keep()
            with server(command, args.port, out / f"{mode}.server.log"):
                for repeat, clients in todo:
                    notes["points"].append(
                        measure(mode, clients, repeat, args.port, texts, out)
                    )
                    keep()


if __name__ == "__main__":
    main()

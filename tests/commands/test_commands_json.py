"""JSON: exactly the keys that docs/json.md describes, of the types it gives, without infinities."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import answer

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
QWEN = ("predict", "qwen3.6-27b", "--weights", "fp8", "--acceptance-length", "3.18")


def run(*arguments: str) -> Any:
    return json.loads(answer(*arguments, "--json"), parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def table(heading: str, number: int = 0) -> dict[str, str]:
    """key -> type of a table below a heading of the documentation."""
    section = re.split(rf"(?m)^#+ {re.escape(heading)}$", DOCS)[1]
    section = re.split(r"(?m)^#+ ", section)[0]
    tables = [block for block in section.split("\n\n") if block.startswith("| key")]
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", tables[number])
    assert rows
    return {name: kind.strip() for name, kind in rows}


KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "object": (dict,),
    "array": (list,), "null": (type(None),),
}


def check(shown: dict[str, Any], documented: dict[str, str], *, optional: str = "") -> None:
    """Same keys, and each value of one of the documented types."""
    assert set(shown) | {optional} - {""} == set(documented)
    for key, value in shown.items():
        words = re.findall(r"[a-z]+", documented[key].split(" of ")[0])
        allowed = tuple(t for word in words if word != "or" for t in KINDS[word])
        assert isinstance(value, allowed), f"{key} = {value!r} is not {documented[key]}"
        if isinstance(value, bool):
            assert bool in allowed


def test_predict() -> None:
    shown = run(*QWEN, "--concurrency", "1,16")
    check(shown, table("predict"))
    check(shown["verdict"], table("verdict"))
    assert [p["concurrency"] for p in shown["points"]] == [1, 16]
    for point in shown["points"]:
        check(point, table("A point"))
        assert set(point["interval_90"]) == {"tpot_s", "ttft_s", "baseline_tpot_s",
                                             "baseline_ttft_s", "speedup", "step_cost_ratio",
                                             "joules_per_output_token", "joules_ratio",
                                             "baseline_joules_per_output_token"}
    check(shown["acceptance"], table("acceptance"))
    check(shown["memory"], table("memory"))


def test_predict_without_speculation() -> None:
    shown = run("predict", "llama-3.1-8b", "--method", "none", "--concurrency", "1")
    check(shown, table("predict"))
    assert (shown["k"], shown["acceptance_length"], shown["draft"]) == (0, None, None)
    assert shown["points"][0]["speedup"] == 1.0


def test_open_loop_beyond_capacity() -> None:
    shown = run(*QWEN, "--rate", "0.1,1000")
    for point in shown["points"]:
        check(point, table("A point"))
    low, high = shown["points"]
    assert low["stable"] and low["ttft_s"] > 0
    assert not high["stable"] and high["ttft_s"] is None and high["queue_s"] is None


def test_the_clusters_table() -> None:
    shown = run("predict")
    assert list(shown) == ["kind", "table"]
    assert len(shown["table"]) == 6
    for row in shown["table"]:
        check(row, table("predict without a model"))


def test_explain_prices_a_method_of_unknown_acceptance() -> None:
    shown = run("explain", "qwen2.5-7b", "--method", "eagle3", "--k", "5")
    assert [step["step"] for step in shown["steps"]] == ["plain decode step", "verify step, k = 5"]
    assert any("whether it pays is open" in text for text in shown["warnings"])


def test_explain() -> None:
    shown = run("explain", *QWEN[1:], "--concurrency", "1,8")
    assert next(iter(shown)) == "kind" and shown["command"].startswith("specsim explain ")
    assert set(shown) == {
        "kind", "model", "gpu", "engine", "fidelity", "warnings", "steps", "command"
    }
    assert [s["running"] for s in shown["steps"]] == [1, 1, 8, 8]
    for step in shown["steps"]:
        check(step, table("explain"))
        for op in step["ops"]:
            assert list(op) == ["op", "phase", "count", "seconds", "share", "bytes", "flops",
                                "bound"]
        parts = sum(step[key] for key in ("target_s", "sample_s", "draft_s", "host_s"))
        assert step["total_s"] == pytest.approx(parts)
        assert sum(op["share"] for op in step["ops"]) <= 1 + 1e-9
        assert sum(op["bytes"] for op in step["ops"]) == pytest.approx(step["bytes"])


def test_models() -> None:
    check(run("models", "qwen3.6-27b"), table("models"))
    check(run("models", "gemma-4-31b"), table("models"))
    listing = run("models")
    assert len(listing) >= 80
    assert {tuple(entry) for entry in listing} == {
        ("name", "kind", "family", "parameters", "active_parameters", "weights", "has_mtp",
         "drafters", "targets", "aliases")
    }
    assert run("models", "--drafters")[0]["kind"] != "model"
    assert all("qwen" in str(e["name"] + str(e["aliases"])).lower()
               for e in run("models", "--search", "QWEN"))


def test_gpus() -> None:
    check(run("gpus", "h200-sxm"), table("gpus"))
    listing = run("gpus")
    assert len(listing) >= 24
    for entry in listing:
        check(entry, table("gpus"))
        for kernel in entry["kernels"].values():
            assert set(kernel) == {"params", "source", "measured_on", "assumed", "inherited_from"}


def test_validate_published(tmp_path: Path) -> None:
    source = ROOT / "validation/data/published/published_measurements.csv"
    lines = source.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "some.csv"
    path.write_text("\n".join([lines[0], *(x for x in lines if x.startswith(("VLLMK", "MR"))),
                               "X,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,X,A,"]))
    shown = run("validate", "published", str(path))
    check(shown, table("validate published"), optional="judged")
    for scores in (shown["overall"], *shown["sets"].values()):
        check(scores, table("validate published", 1))
        for quantity in ("step_cost_ratio", "speedup", "tpot", "ttft"):
            assert set(scores[quantity]) == {"median_abs_error", "p90_abs_error", "bias", "n"}
    assert sum(shown["skipped"].values()) >= 1
    judged = run("validate", "published", str(path), "--rows")["judged"]
    assert {tuple(j) for j in judged} == {
        ("row", "set", "source", "quantity", "side", "class", "predicted", "measured", "error",
         "low_90", "high_90")
    }

"""Fields of results: every key of the JSON is one, of the same value, and type checkers see it."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from thinned import slow

import specsim
from specsim.errors import UsageError
from specsim.jsonable import Key, jsonable

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "formats" / "data" / "vllm_ngram3_codeedit_c1.json"
USER_CODE = ROOT / "tests" / "api" / "data" / "user_code.py"
# Fields that hold more than their key of the JSON: typed results, or what is made of several.
RICHER = {
    "Tuning": {"workload", "dynamic", "skipped"}, "Pareto": {"frontier"}, "Capacity": {"no_flags"},
    "LoadAnswer": {"no_flags"}, "ParetoPoint": {"command", "no_command", "written_for", "notes"},
    "ExplainedStep": {"ops"}, "Curve": {"points"}, "Cell": {"tp", "reason"},
    "Endpoint": {"demand", "no_flags"},
}
CALLS: dict[str, dict[str, Any]] = {
    "predict": {"model": "qwen3.6-27b", "weights": "fp8", "concurrency": [1, 16]},
    "tune": {"model": "qwen3.6-27b", "weights": "fp8", "concurrency": 16, "max_k": 2},
    "crossover": {"model": "qwen3.6-27b", "contexts": [1024], "max_concurrency": 8},
    "pareto": {"model": "llama-3.1-8b", "ks": [0, 3], "tps": 1, "max_num_seqs": [64]},
    "simulate": {"model": "llama-3.1-8b", "concurrency": 2, "requests": 6},
    "policies": {"model": "llama-3.1-8b", "concurrency": 2, "requests": 6, "replications": 2},
    "explain": {"model": "llama-3.1-8b", "concurrency": 2, "tp": 2, "pp": 2},
    "compare": {"file": str(ROOT / "examples" / "deployments.toml"), "concurrency": 8},
    "matrix": {"models": "llama-3.1-8b", "gpus": "h100-sxm,l4"},
    "capacity": {"model": "llama-3.1-8b", "unit": "rate", "slo": {"ttft_p95": 1}, "duration": 20,
                 "replications": 2, "resolution": 0.5, "jobs": 1, "no_stream_floor": True,
                 "quick": True},
    "diagnose": {"words": [str(BENCH)]},
    "fleet": {"file": str(ROOT / "tests" / "api" / "data" / "coder.toml"), "quick": True},
    "models": {"name": "qwen3.6-27b"},
    "gpus": {"name": "h200-sxm"},
}


@cache
def result(name: str) -> Any:
    return getattr(specsim, name)(**CALLS[name])


def check(found: Any, document: dict[str, Any]) -> None:
    rich = RICHER.get(type(found).__name__, set())
    assert len(document) > len(rich)
    for key, value in document.items():
        if key not in rich:
            assert jsonable(getattr(found, key)) == jsonable(value), key


@pytest.mark.parametrize(
    "name", [slow(name) if name in ("capacity", "policies") else name for name in CALLS])
def test_every_key_of_the_json_is_a_field_of_that_value(name: str) -> None:
    check(result(name), result(name).to_dict())
    assert repr(result(name)).startswith(f"<specsim.{type(result(name)).__name__}: specsim {name}")


@pytest.mark.parametrize(("name", "items"), [
    ("predict", "points"), ("tune", "answers"), ("crossover", "curves"), ("explain", "steps"),
    ("matrix", "cells"), ("pareto", "frontier"), ("fleet", "endpoints"),
])
def test_so_are_the_keys_of_what_it_lists(name: str, items: str) -> None:
    found = getattr(result(name), items)
    documents = result(name).to_dict()[items]
    assert len(found) == len(documents) > 0
    for item, document in zip(found, documents, strict=True):
        check(item, document)


def test_a_key_that_this_result_lacks_is_no_field() -> None:
    with pytest.raises(AttributeError, match="this Prediction has no pp"):
        result("predict").pp  # noqa: B018
    with pytest.raises(AttributeError, match="gpuu"):
        result("predict").gpuu  # noqa: B018


def test_one_key_serves_several_names() -> None:
    class Pair:
        left = right = Key[int]()

        def to_dict(self) -> dict[str, object]:
            return {"left": 1, "right": 2}

    assert (Pair().left, Pair().right) == (1, 2)


def test_models_and_gpus_are_what_their_commands_print() -> None:
    from typer.testing import CliRunner

    from specsim.commands import app

    def typed(*words: str) -> Any:
        return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    model = specsim.models("qwen3.6-27b")
    assert model.to_dict() == typed("models", "qwen3.6-27b") and model.weight_bytes > 1e9
    drafters = specsim.models(drafters=True, search="eagle")
    assert drafters.to_json() == typed("models", "--drafters", "--search", "eagle")
    assert len(drafters) == len(drafters.to_frame("pandas")) > 0 and "drafter" in str(drafters)
    device = specsim.gpus("h200")
    assert device.to_dict() == typed("gpus", "h200") and device.mem_bytes > 1e11
    assert [gpu.name for gpu in specsim.gpus()] == [row["name"] for row in typed("gpus")]
    assert "TB/s" in str(specsim.gpus()) and "<table" in device._repr_html_()
    with pytest.raises(UsageError, match="leave one out"):
        specsim.models("qwen3.6-27b", search="qwen")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="it must be text"):
        specsim.models(7)  # type: ignore[call-overload]


def test_published_measurements_are_scored(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("target_model,set_id,row_id\nno-such-model-xyz,S1,1\n", encoding="utf-8")
    found = specsim.validate_published(files=[rows], rows_out=True)
    assert found.rows == 1 and sum(found.skipped.values()) == 1 and found.judged == []
    check(found, found.to_dict())


@pytest.mark.slow
def test_type_checkers_see_every_function_and_every_key(tmp_path: Path) -> None:
    """A user's code under mypy --strict, and every key of every result above."""
    mypy_api = pytest.importorskip("mypy.api")
    code = USER_CODE.read_text(encoding="utf-8")
    functions = [name for name in specsim.__all__ if callable(getattr(specsim, name))
                 and not isinstance(getattr(specsim, name), type)]
    for name in functions:
        assert re.search(rf"\bspecsim\.{name}\(", code), f"{name} is not called in user_code.py"
    lines = ["import specsim"]
    for name in CALLS:
        kind = type(result(name)).__name__
        lines.append(f"def use_{name}(r: specsim.{kind}) -> None:")
        lines += [f"    print(r.{key})" for key in result(name).to_dict()]
    keys = tmp_path / "keys.py"
    keys.write_text("\n".join(lines) + "\n", encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import specsim\n"
        "print(specsim.predict('m').gpuu)\n"
        "x: int = specsim.predict('m').gpu\n"
        "specsim.predict('m', concurency=1)\n"
        "reveal_type(specsim.predict('m', concurrency=[1, 2]).points[0].speedup)\n"
        "reveal_type(specsim.calibrate('m', from_='x'))\n",
        encoding="utf-8",
    )
    out, _, _ = mypy_api.run([
        str(USER_CODE), str(keys), str(wrong), "--strict", "--follow-imports=silent",
        "--no-incremental", f"--config-file={ROOT / 'pyproject.toml'}",
    ])
    *told, summary = out.splitlines()
    assert summary.startswith("Found 3 errors in 1 file "), out
    assert {line.partition(":")[0] for line in told} == {str(wrong)}, out
    assert 'has no attribute "gpuu"' in out and "Incompatible types" in out and "concurency" in out
    assert "float" in told[-2] and "Calibration" in told[-1]

"""Fleet files, replicas, packing, and the whole plan."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from specsim.commands import app
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.planning.fleet import carried, replicas_needed
from specsim.planning.fleet_file import fleet_from, read_fleet
from specsim.planning.fleet_pack import Piece, devices_of, pack

GB = 1e9


# --- replicas -----------------------------------------------------------------------------------


@given(
    demand=st.floats(0.1, 1e5), capacity=st.floats(0.5, 1e3), share=st.floats(0.3, 1.0),
    spare=st.booleans(),
)
def test_replicas_are_the_fewest_that_carry(
    demand: float, capacity: float, share: float, spare: bool
) -> None:
    count = replicas_needed(demand, capacity, share, spare)
    assert carried(count, capacity, share, spare) >= demand * (1 - 1e-6)
    if count > 1:
        assert carried(count - 1, capacity, share, spare) < demand * (1 + 1e-6)


def test_nine_of_ten_carry_what_ten_may_take() -> None:
    # 10 GPUs of 180 users: run at 80 %, and any nine could take it.
    assert carried(10, 180.0, 0.8, True) == 1440
    assert carried(10, 180.0, 1.0, True) == 1620
    assert replicas_needed(1620, 180.0, 1.0, True) == 10
    assert replicas_needed(1, 180.0, 0.8, True) == 2
    assert replicas_needed(1, 180.0, 0.8, False) == 1


# --- packing ------------------------------------------------------------------------------------


def test_wide_replicas_stay_in_a_node_and_fill_the_tightest() -> None:
    devices = devices_of([("h200", 10, 8, 100 * GB)])
    assert [d.node for d in devices] == [1] * 8 + [2] * 2
    pieces = [Piece("big", "h200", 4), Piece("mid", "h200", 2), Piece("one", "h200", 1)]
    found = pack(devices, [*pieces, Piece("big", "h200", 4)], 0.8)
    # The pair takes the node of two; the fours fill the node of eight: nothing is left for one.
    assert [p.model for p in found.left] == ["one"]
    by = {p.piece.model: p.devices for p in found.placed}
    assert by["mid"] == ("h200:8", "h200:9")
    assert found.empty == {"h200": 0}


def test_nodes_are_not_crossed() -> None:
    devices = devices_of([("h200", 6, 3, 100 * GB)])
    found = pack(devices, [Piece("four", "h200", 4)], 0.8)
    assert found.left and found.empty == {"h200": 6}


def share(model: str, size: float, load: float, slack: float = 1.0) -> Piece:
    return Piece(model, "g", 1, True, size * GB, load, slack)


def test_sharing_is_bound_by_memory_load_speed_and_failure() -> None:
    def gpus(*pieces: Piece) -> int:
        devices = devices_of([("g", 10, 8, 100 * GB)])
        assert not pack(devices, pieces, 0.8).left
        return sum(bool(d.pieces) for d in devices)

    assert gpus(share("a", 30, 0.2), share("b", 30, 0.2), share("c", 30, 0.2)) == 1
    assert gpus(share("a", 60, 0.2), share("b", 60, 0.2)) == 2
    assert gpus(share("a", 30, 0.5), share("b", 30, 0.5)) == 2
    assert gpus(share("a", 30, 0.2), share("b", 30, 0.5, slack=0.1)) == 2
    assert gpus(share("a", 30, 0.1), share("a", 30, 0.1)) == 2
    assert gpus(share("a", 30, 0.1), Piece("w", "g", 1)) == 2
    devices = devices_of([("g", 1, 1, 100 * GB)])
    assert pack(devices, [share("a", 130, 0.1)], 0.8).left


# --- files --------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "gpus": [{"type": "h200-sxm", "count": 4}],
    "models": [{"model": "llama-3.1-8b", "users": 10, "slo": {"ttft_p95": 2}}],
}


def changed(**changes: Any) -> dict[str, Any]:
    """The good file with keys of its model changed, or of the top with `top_`."""
    raw = json.loads(json.dumps(GOOD))
    for key, value in changes.items():
        if key.startswith("top_"):
            raw[key.removeprefix("top_")] = value
        elif value is None:
            raw["models"][0].pop(key)
        else:
            raw["models"][0][key] = value
    out: dict[str, Any] = raw
    return out


def test_defaults_of_a_file() -> None:
    found = fleet_from(changed(top_slo={"ttft_p95": 9, "tpot_mean": 0.1}), "f")
    model = found.models[0]
    assert model.n_minus_1 and not model.share_gpu and model.gpus == ("h200-sxm",)
    assert model.slo == {"ttft_p95": 2.0, "tpot_mean": 0.1}
    assert model.scenario == "mindrouter-chat" and found.operating_share == 0.8


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, r"\[\[gpus\]\]"),
        (changed(top_gpu=[]), "did you mean 'gpus'"),
        (changed(users=None), "users, rate"),
        (changed(rate=2), "users and rate"),
        (changed(users=0), "above 0"),
        (changed(input_len=5), "input_len"),
        (changed(user=5), "did you mean 'users'"),
        (changed(gpus=["a100"]), "a100"),
        (changed(share_gpu="yes"), "true or false"),
        (changed(slo={"ttft": 3}), "ttft"),
        (changed(slo={"ttft_p95": "fast"}), "number"),
        (changed(top_operating_share=0), "operating_share"),
        (changed(top_gpus=[{"type": "h200-sxm", "count": 0}]), "count"),
        (changed(top_gpus=[{"count": 1}]), "type"),
        (changed(top_gpus=[{"type": "x"}, {"type": "x"}]), "twice"),
        (changed(model=None), "needs model"),
        (changed(fill=False, users=None), "fill"),
        (changed(min_replicas=0), "min_replicas"),
        (changed(min_replicas=0), r"\[\[models\]\] 1 min_replicas"),
        (changed(top_models=[{"model": "qwen3-8b", "user": 5}]), "no key 'user'; did you mean"),
        (changed(top_models=[{"modle": "qwen3-8b", "users": 5}]), "no key 'modle'; did you mean"),
        (changed(name=1), "name is 1; it must be text"),
        (changed(top_gpus=[{"type": 3}]), "1 type is 3; it must be such as"),
        (changed(top_models=[3]), "models.* one table for each"),
        (changed(top_models=[{"model": "qwen3-8b", "users": None}]), "users is None; it must be"),
        (changed(users=10**400), "users is an integer of .*; it must be above 0"),
    ],
)
def test_bad_files_are_named(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fleet_from(raw, "f.toml")


def test_a_year_names_a_fleet() -> None:
    assert fleet_from(changed(top_name=2026), "f.toml").name == "2026"


def test_an_option_out_of_range_names_its_model(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(changed(gpu_memory_utilization=0)))
    result = CliRunner().invoke(app, ["fleet", str(path), "--quick"])
    name = GOOD["models"][0].get("name") or GOOD["models"][0]["model"]
    assert f"model {name}: --gpu-memory-utilization is 0" in str(result.exception)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_fleet(str(tmp_path / "none.toml"))
    for name, text in (("a.toml", "x = "), ("a.json", "{"), ("b.json", "[" * 100_000)):
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError, match="not valid"):
            read_fleet(str(tmp_path / name))
    (tmp_path / "c.json").write_text("[1]")
    with pytest.raises(FormatError, match="table"):
        read_fleet(str(tmp_path / "c.json"))


# --- plans --------------------------------------------------------------------------------------


def plan(tmp_path: Path, raw: dict[str, Any], *words: str) -> dict[str, Any]:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(raw))
    result = CliRunner().invoke(
        app, ["fleet", str(path), "--json", "--jobs", "1", *words], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


CHAT = {
    "name": "chat", "model": "gemma-4-31b", "weights": "fp8", "kv": "fp8", "method": "draft-model",
    "draft": "gemma-4-31b-it-assistant", "num_speculative_tokens": 4,
    "acceptance_mean_rate": 0.52, "max_num_seqs": 48, "gpu_memory_utilization": 0.95,
}


@pytest.mark.slow
def test_one_model_fills_ten_gpus(tmp_path: Path) -> None:
    raw = {"gpus": [{"type": "h200-sxm", "count": 10}], "models": [{**CHAT, "fill": True}]}
    found = plan(tmp_path, raw, "--quick")
    chat = found["endpoints"][0]
    assert chat["replicas"] == 10 and chat["survives_a_failure"]
    assert chat["carries"] == pytest.approx(
        min(8 * chat["capacity_per_replica"], 9 * chat["capacity_per_replica"])
    )
    assert "--max-num-seqs 48" in chat["flags"]["command"]
    assert found["empty_gpus"] == {"h200-sxm": 0}


@pytest.mark.slow
def test_short_pools_say_by_how_much(tmp_path: Path) -> None:
    raw = {
        "gpus": [{"type": "h200-sxm", "count": 3, "price_per_gpu_hour": 3}],
        "models": [
            {**CHAT, "users": 600},
            {"name": "code", "model": "qwen3.6-27b", "weights": "fp8", "rate": 1.0,
             "workload": "code", "slo": {"ttft_p95": 3}},
        ],
    }
    found = plan(tmp_path, raw, "--quick")
    chat, code = found["endpoints"]
    assert not found["fits"]
    need = found["gpus"][0]
    assert need["needed"] == chat["replicas_wanted"] + code["replicas_wanted"] > 3
    assert need["short"] == need["needed"] - 3
    assert need["needed_without_n_minus_1"] <= need["needed"]
    assert chat["replicas"] == 3 and code["replicas"] == 0
    assert chat["short"] == pytest.approx(600 - chat["carries"])
    assert found["price_per_hour"] == 9


@pytest.mark.slow
def test_widths_sharing_and_misfits(tmp_path: Path) -> None:
    raw = {
        "gpus": [{"type": "h200-sxm", "count": 8}, {"type": "rtx-4090", "count": 2}],
        "models": [
            {"name": "large", "model": "llama-3.3-70b", "rate": 0.2, "slo": {"ttft_p95": 5},
             "n_minus_1": False, "gpus": "h200-sxm"},
            {"name": "s1", "model": "qwen3-0.6b", "tokens_per_s": 300, "workload": "short",
             "slo": {"ttft_p95": 2}, "share_gpu": True, "gpus": ["h200-sxm"]},
            {"name": "s2", "model": "llama-3.1-8b", "tokens_per_s": 300, "workload": "short",
             "slo": {"ttft_p95": 2}, "share_gpu": True, "gpus": ["h200-sxm"]},
            {"name": "huge", "model": "deepseek-v3", "rate": 0.1, "slo": {"ttft_p95": 9},
             "gpus": ["rtx-4090"]},
        ],
    }
    found = plan(tmp_path, raw, "--quick")
    large, s1, s2 = found["endpoints"]
    assert large["tp"] >= 2 and large["replicas"] == 1
    assert s1["devices"] == s2["devices"] and len(s1["devices"]) == 2
    assert "--gpu-memory-utilization" in s2["flags"]["command"]
    assert [m["name"] for m in found["does_not_fit"]] == ["huge"] and not found["fits"]


@pytest.mark.slow
def test_a_simulated_plan_looks_at_the_demand_and_at_a_failure(tmp_path: Path) -> None:
    raw = {
        "gpus": [{"type": "h100-sxm", "count": 4}],
        "models": [
            {"name": "api", "model": "llama-3.1-8b", "rate": 30.0, "input_len": 256,
             "output_len": 64, "duration_s": 15, "warmup_s": 3, "max_num_seqs": 16,
             "slo": {"ttft_p95": 0.5}, "stream_floor": 40},
        ],
    }
    found = plan(tmp_path, raw)
    api = found["endpoints"][0]
    assert found["method"] == "simulation" and api["binding_limit"]["name"]
    assert api["at_demand"]["pass"]
    assert api["after_a_failure"]["load"] > api["at_demand"]["load"]
    assert api["survives_a_failure"] and api["after_a_failure"]["pass"]
    assert api["replicas"] >= 2


def test_mistakes_in_models_are_errors(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (changed(slo=None, users=None, rate=1), "neither slo nor stream_floor"),
        (changed(model="no-such-model"), "no-such-model"),
        (changed(tp="two"), "whole number"),
        (changed(acceptance_length="x"), "number"),
        (changed(warmup_s=400), "below"),
        (changed(top_gpus=[{"type": "h2000"}]), "h2000"),
        (changed(scenario="no-such"), "no-such"),
    ]
    for raw, words in cases:
        with pytest.raises(SpecSimError, match=words):
            plan(tmp_path, raw, "--quick")

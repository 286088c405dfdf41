"""A fleet through a day: files, demand, plans, intervals, what is exported."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import specsim
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.commands import app
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.formats.traces import read_trace
from specsim.latency.overheads import Overheads
from specsim.options.groups import DeploymentOptions
from specsim.planning.capacity_loads import Arrivals
from specsim.planning.capacity_start import estimate_capacity
from specsim.planning.fleet_day_file import (
    PROFILES,
    Maintenance,
    TraceDay,
    demand_at,
    profile_of,
    trace_day,
)
from specsim.planning.fleet_day_sides import stretched
from specsim.planning.fleet_file import fleet_from
from specsim.report.doc import Doc
from specsim.report.export_fleet import fleet_files, kube_name

GOOD: dict[str, Any] = {
    "gpus": [{"type": "h100-sxm", "count": 16, "price_per_gpu_hour": 2}],
    "models": [{
        "name": "api", "model": "llama-3.1-8b", "rate": 400.0, "workload": "short",
        "slo": {"ttft_p95": 1}, "stream_floor": 60, "profile": "office",
        "autoscale": {"start_s": 120},
    }],
}
PLAIN = {"name": "plain", "model": "qwen3-0.6b", "method": "none", "rate": 100.0,
         "workload": "short", "slo": {"ttft_p95": 1}, "profile": [1] * 12 + [2] * 12}


def day_of_trace(path: Path) -> TraceDay:
    return trace_day(read_trace(path), path.name)


def changed(top: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(json.dumps(GOOD))
    for key, value in changes.items():
        if value is None:
            raw["models"][0].pop(key)
        else:
            raw["models"][0][key] = value
    return {**raw, **(top or {})}


def run(tmp_path: Path, raw: dict[str, Any], *words: str) -> Any:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(raw))
    return CliRunner().invoke(app, ["fleet", str(path), "--quick", "--day", *words])


def day_of(tmp_path: Path, raw: dict[str, Any], *words: str) -> dict[str, Any]:
    result = run(tmp_path, raw, "--json", *words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["day"]
    return found


# --- files and demand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (changed(profile=[1] * 23), "profile has 23 numbers; a day needs 24"),
        (changed(profile=[-1] + [1] * 23), r"profile is \[-1, .* must be 24 numbers from 0 to 1e8"),
        (changed(profile=[1] * 23 + [1e20]), "must be 24 numbers from 0 to 1e8"),
        (changed(profile=[10**400] * 24), "must be 24 numbers from 0 to 1e8"),
        (changed(profile=[]), "profile has 0 numbers"),
        (changed(profile=[0] * 24), "no hour above 0"),
        (changed(profile=["x"] * 24), "profile"),
        (changed(profile="weekend"), "must be one of office, evening, flat"),
        (changed(rate=None, profile=None, trace="none.csv"), "none.csv"),
        (changed(rate=None, trace="t.csv", profile="flat"), "trace and profile"),
        (changed(min_replicas=4, autoscale={"max_replicas": 3}), "max_replicas is 3, below"),
        (changed(autoscale={"start_s": 90_000}), "start_s is 90000; it must be seconds"),
        (changed(autoscale={"start_s": -1}), "start_s is -1;"),
        (changed(autoscale={"target_queue": 1, "target_utilisation": 0.5}), "give the one"),
        (changed(autoscale={"target_utilisation": 1.5}), "target_utilisation is 1.5"),
        (changed(autoscale={"cooldown": 3}), "no key 'cooldown'; did you mean 'cool_down_s'"),
        (changed({"day": {"step_s": 7}}), "day. step_s is 7; it must be one of 10, 20, 30"),
        (changed({"day": {"lost": "rack"}}), "one of replica, node"),
        (changed({"day": {"timezone": "a\nb"}}), "timezone"),
        (changed({"day": {"profile": [1]}}), "profile has 1 numbers"),
        (changed({"maintenance": [{"type": "x", "gpus": 1, "from_hour": 1, "hours": 1}]}),
         "has type 'x'; the pool has h100-sxm"),
        (changed({"maintenance": [{"type": "h100-sxm", "gpus": 17, "from_hour": 1, "hours": 1}]}),
         "takes 17 GPUs at 1 h, but the pool has 16"),
        (changed({"maintenance": [
            {"type": "h100-sxm", "gpus": 9, "from_hour": 23, "hours": 3},
            {"type": "h100-sxm", "gpus": 8, "from_hour": 1, "hours": 1}]}), "takes 17 GPUs at 1 h"),
        (changed({"maintenance": [{"type": "h100-sxm", "gpus": 1, "from_hour": 24, "hours": 1}]}),
         "from_hour is 24"),
    ],
)
def test_bad_days_are_named(raw: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecSimError, match=words) as error:
        fleet_from(raw, "f.toml", day_of_trace, tmp_path)
    assert "\n" not in str(error.value)


def test_a_model_without_a_day_says_what_to_give(tmp_path: Path) -> None:
    result = run(tmp_path, changed(profile=None))
    assert isinstance(result.exception, UsageError)
    assert "model api has no demand by the hour; give it profile" in str(result.exception)


def test_a_start_longer_than_half_a_day_is_refused(tmp_path: Path) -> None:
    slow = {**GOOD, "models": [{**PLAIN, "autoscale": {"load_bytes_per_s": 1e6,
                                                       "boot_s": 43_000}}]}
    result = run(tmp_path, slow)
    assert isinstance(result.exception, UsageError)
    assert "takes 44,192 s to start, its weights being 1 GB" in str(result.exception)


def written(tmp_path: Path, raw: dict[str, Any]) -> Path:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(raw))
    return path


def test_what_holds_for_all_models_gives_way_to_their_own() -> None:
    raw = changed({"day": {"profile": "flat"}, "autoscale": {"cool_down_s": 9, "target_queue": 2}},
                  autoscale={"target_utilisation": 0.5}, profile=None)
    model = fleet_from(raw, "f").models[0]
    assert model.autoscale is not None and model.autoscale.target_queue is None
    assert model.autoscale.cool_down_s == 9 and model.autoscale.target_utilisation == 0.5
    assert model.day_shares == (1.0,) * 24


def test_demand_changes_evenly_between_hours() -> None:
    shares = profile_of([0, 2, 4, *[2] * 20, 1], "f")
    found = demand_at(shares, 1200.0, 40.0)  # three steps an hour, the peak is 40
    assert found[:7] == pytest.approx([0, 20 / 3, 40 / 3, 20, 80 / 3, 100 / 3, 40])
    assert found[-3:] == pytest.approx([10, 20 / 3, 10 / 3])  # 23:00 to 0:00
    assert max(map(len, PROFILES.values())) == min(map(len, PROFILES.values())) == 24


def test_windows_go_past_midnight() -> None:
    night = Maintenance(type="g", gpus=1, from_hour=23.0, hours=2.0)
    assert [night.covers(h) for h in (22.9, 23.0, 0.5, 1.0)] == [False, True, True, False]


def trace(path: Path, seconds: list[float]) -> Path:
    path.write_text("\n".join(
        json.dumps({"arrival_s": s, "prompt_tokens": 100 + 100 * (i % 2), "output_tokens": 50})
        for i, s in enumerate(seconds)
    ))
    return path


def test_a_trace_is_its_busiest_day(tmp_path: Path) -> None:
    first = [i * 600.0 for i in range(144)]
    second = [86400 + i * 300.0 for i in range(288)]
    found = day_of_trace(trace(tmp_path / "t.jsonl", first + second))
    assert found.rates == pytest.approx((1 / 300,) * 288)
    assert (found.input_len, found.output_len) == (150, 50)
    with pytest.raises(FormatError, match="lasts 2 of the 24 hours"):
        day_of_trace(trace(tmp_path / "short.jsonl", [0.0, 7200.0]))
    with pytest.raises(FormatError, match="over 400 days"):
        day_of_trace(trace(tmp_path / "long.jsonl", [0.0, 1e12]))
    raw = changed(rate=None, workload=None, profile=None, trace="t.jsonl")
    model = fleet_from(raw, "f", day_of_trace, tmp_path).models[0]
    assert model.demand == "trace" and model.amount == pytest.approx(1 / 300)
    assert model.options == {"model": model.model, "input_len": 150, "output_len": 50}
    assert demand_at(model.day_shares, 60.0, 3.0) == pytest.approx([3.0] * 1440)


# --- plans --------------------------------------------------------------------------------------


def test_a_day_by_hand(tmp_path: Path) -> None:
    """Without speculation and N - 1 the replicas of each half of a day follow from the capacity."""
    raw = {**GOOD, "models": [{**PLAIN, "n_minus_1": False, "autoscale": {"start_s": 60}}],
           "day": {"step_s": 3600}}
    model = day_of(tmp_path, raw)["models"][0]
    side = model["with_speculation"]
    need = [-(-d // (0.8 * side["capacity_per_replica"])) for d in (50.0, 100.0)]
    assert [h["replicas"] for h in model["hours"]] == need[:1] * 12 + need[1:] * 12
    assert side["gpu_hours"] == sum(need) * 12 and side["gpu_hours_fixed"] == need[1] * 24
    assert side["price"] == 2 * side["gpu_hours"]
    assert model["without_speculation"] == side | {"slo_share_interval_90": None}
    assert model["saved_gpu_hours"] == 0 and model["saved_gpu_hours_interval_90"] == [0, 0]
    assert {s["setting"] for s in model["settings"]} == {"off"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("day")
    raw = changed({"day": {"step_s": 300}})
    raw["models"].append({**PLAIN, "name": "plain", "model": "llama-3.1-8b"})
    path = written(folder, raw)
    return specsim.fleet(file=str(path), quick=True, export=str(folder / "out")), folder / "out"


def test_savings_add_up_and_intervals_hold_their_values(found: Any) -> None:
    day = found[0].to_dict()["day"]
    api = day["models"][0]
    one, two = api["with_speculation"], api["without_speculation"]
    assert api["method"] == "eagle3"
    assert api["saved_gpu_hours"] == pytest.approx(two["gpu_hours"] - one["gpu_hours"])
    for part in (one, two):
        low, high = part["gpu_hours_interval_90"]
        assert low <= part["gpu_hours"] <= high and low < high
        assert part["gpu_hours"] <= part["gpu_hours_fixed"]
        low, high = part["energy_j_interval_90"]
        assert 0 < low <= part["energy_j"] <= high <= 700 * 3600 * part["gpu_hours"]  # watts
    low, high = api["saved_gpu_hours_interval_90"]
    assert low <= api["saved_gpu_hours"] <= high
    low, high = one["slo_share_interval_90"]
    assert low <= one["slo_share"] <= high
    assert day["gpu_hours"] == sum(m["with_speculation"]["gpu_hours"] for m in day["models"])
    assert day["saved_gpu_hours"] == sum(m["saved_gpu_hours"] for m in day["models"])
    for hour in api["hours"]:
        assert hour["replicas"] * one["gpus_per_replica"] >= hour["gpus"] > 0
    # Sized for N - 1, so the loss of a replica at the peak is borne.
    assert api["slo_share_while_lost"] == 1.0


def test_the_best_of_each_hour_beats_every_setting(found: Any) -> None:
    settings = {s["setting"]: s for s in found[0].to_dict()["day"]["models"][0]["settings"]}
    best = settings.pop("best of each hour")
    assert {"off", "k=1", "table"} < settings.keys()
    least = min(s["gpu_hours"] for s in settings.values())
    assert best["gpu_hours"] <= least
    same = [s["tpot_s"] for s in settings.values() if s["gpu_hours"] == best["gpu_hours"]]
    assert best["tpot_s"] <= min(same, default=1e9) * (1 + 1e-9)


@pytest.mark.slow
def test_a_lost_node_takes_its_replicas(tmp_path: Path) -> None:
    raw = changed({"day": {"lost": "node", "step_s": 300},
                   "gpus": [{"type": "h100-sxm", "count": 24, "per_node": 4}]}, method="none")
    nodes = day_of(tmp_path, raw)["models"][0]
    one = day_of(tmp_path, changed({"day": {"step_s": 300}}, method="none"))["models"][0]
    assert nodes["slo_share_while_lost"] == 1.0
    side, most = nodes["with_speculation"], one["with_speculation"]["most_replicas"]
    assert (side["most_replicas"] - 4) * side["capacity_per_replica"] >= 400
    assert side["most_replicas"] > most


def test_maintenance_that_takes_all_is_told(tmp_path: Path) -> None:
    away = {"type": "h100-sxm", "gpus": 16, "from_hour": 9, "hours": 2}
    raw = changed({"maintenance": [away], "day": {"step_s": 300}}, method="none")
    result = run(tmp_path, raw, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert any("the pool has fewer GPUs than its rule asks for" in w for w in told["warnings"])
    hours = told["day"]["models"][0]["hours"]
    assert [h["replicas"] for h in hours[9:11]] == [0, 0] and hours[9]["slo_share"] == 0.0
    assert hours[10]["longest_wait_s"] > 0 and hours[8]["slo_share"] == 1.0


def test_a_model_that_fits_nowhere_is_no_part_of_the_day(tmp_path: Path) -> None:
    raw = changed({"gpus": [{"type": "rtx-4090", "count": 1}]}, model="deepseek-v3", rate=0.1)
    result = run(tmp_path, raw)
    assert result.exit_code == 0 and "does not fit" in result.output
    assert day_of(tmp_path, raw)["models"] == []


def test_capacity_of_a_slower_device() -> None:
    """A deployment of which everything takes twice as long, against the rule of the clock."""
    options = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "method": "none", "max_num_seqs": 64}
    system = build_request(DeploymentOptions.of_values(options)).system
    shape, gates = Arrivals(Workload(512, 128)), {"ttft_p95": 1.0, "stream_tok_s_p10": 30.0}

    overheads = Overheads(**{item.name: 2 * getattr(system.engine.overheads, item.name)
                             for item in fields(Overheads)})
    slow = system.with_overheads(overheads, kernel_scale=2 * system.engine.kernel_scale)
    base = estimate_capacity(system, shape, gates)
    assert stretched(system, shape, gates, 1.0) == base
    assert stretched(system, shape, gates, 2.0) < base / 2
    assert stretched(system, shape, gates, 2.0) == pytest.approx(
        estimate_capacity(slow, shape, gates), rel=0.03)
    assert stretched(system, shape, {"ttft_p95": 1e-3}, 1.0) == 0.0


# --- what is written ----------------------------------------------------------------------------


def test_kubernetes_reads_what_is_written(found: Any) -> None:
    result, out = found
    day = result.to_dict()["day"]
    values, = yaml.safe_load_all((out / "values.yaml").read_text())
    api = values["servingEngineSpec"]["modelSpec"][0]
    assert api["modelURL"] == "meta-llama/Llama-3.1-8B-Instruct" and api["requestGPU"] == 1
    args = result.endpoints[0].to_dict()["flags"]["args"]
    assert ["vllm", "serve", api["modelURL"], *api["vllmConfig"]["extraArgs"]] == args
    hpas = list(yaml.safe_load_all((out / "hpa.yaml").read_text()))
    scaled = list(yaml.safe_load_all((out / "keda.yaml").read_text()))
    for model, hpa, keda in zip(day["models"], hpas, scaled, strict=True):
        spec = hpa["spec"]
        assert hpa["apiVersion"] == "autoscaling/v2"
        assert spec["minReplicas"] <= spec["maxReplicas"]
        assert spec["scaleTargetRef"]["name"] == keda["spec"]["scaleTargetRef"]["name"]
        target = spec["metrics"][0]["pods"]["target"]["averageValue"]
        assert float(target[:-1]) / 1e3 == pytest.approx(model["autoscale"]["target"], abs=1e-3)
        crons = [t["metadata"] for t in keda["spec"]["triggers"] if t["type"] == "cron"]
        by_hour = {}
        for cron in crons:
            first, end = (int(cron[key].split()[1]) for key in ("start", "end"))
            by_hour |= dict.fromkeys(range(first, end or 24), int(cron["desiredReplicas"]))
        if not crons:  # the same all day: KEDA takes no schedule from an hour to itself
            by_hour = dict.fromkeys(range(24), keda["spec"]["minReplicaCount"])
        assert by_hour == {h["hour"]: h["replicas"] for h in model["hours"]}


def test_dynamo_reads_what_is_written(found: Any) -> None:
    folder = found[1] / "dynamo" / "api"
    prefill, decode = (json.loads((folder / f"{name}_raw_data.json").read_text())
                       for name in ("prefill", "decode"))
    assert len(prefill["prefill_isl"]) == len(prefill["prefill_ttft"]) >= 3
    assert sorted(prefill["prefill_ttft"]) == prefill["prefill_ttft"]
    columns = [decode[name] for name in ("x_kv_usage", "y_context_length", "z_itl")]
    assert len(set(map(len, columns))) == 1 and 0 < max(columns[0]) <= 1
    # ITL in ms: one stream alone, as `predict` has it.
    alone = specsim.predict("llama-3.1-8b", gpu="h100-sxm", concurrency=1, workload="short")
    assert decode["z_itl"][columns[0].index(min(columns[0]))] == pytest.approx(
        1e3 * alone.points[0].tpot_s, rel=0.25)


def test_names_that_kubernetes_cannot_tell_apart() -> None:
    assert [kube_name(n) for n in ("Qwen3 8B!", "--", "x" * 99)] == ["qwen3-8b", "model", "x" * 40]
    with pytest.raises(UsageError, match="one name for Kubernetes"):
        fleet_files(Doc({"endpoints": [{"name": "a b"}, {"name": "A-b"}]}))


def test_where_nothing_can_be_written_nothing_is_computed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(tmp_path, GOOD, "--export", str(tmp_path / "file"))
    assert isinstance(result.exception, UsageError) and "--export" in str(result.exception)


@pytest.mark.slow
def test_tables_rows_and_pictures(tmp_path: Path, found: Any) -> None:
    path = written(tmp_path, {**GOOD, "models": [PLAIN], "day": {"step_s": 3600}})
    plot = tmp_path / "day.svg"
    words = ["fleet", str(path), "--quick", "--plot", str(plot)]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "80"}, catch_exceptions=False)
    assert "GPU-hours with speculation" in shown.output and "GPUs in use" in shown.output
    tables = [line for line in shown.output.splitlines() if "vllm serve" not in line]
    assert max(map(len, tables)) <= 80
    assert plot.read_text().startswith("<?xml") and "through a day" in plot.read_text()
    rows = found[0].to_rows()
    assert len(rows) == 48 and list(rows[0])[:4] == ["name", "hour", "demand", "replicas"]
    page = found[0]._repr_html_()
    assert "each setting all day" in page and "Demand" in page

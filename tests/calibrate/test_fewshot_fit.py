"""The few-shot fit: known engines found again, what points cannot show, engines as files."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.calibrate.fewshot import (
    SCALES,
    FewShotPoint,
    engine_at,
    fit,
    on_engine,
    parameters,
    predict_point,
)
from specsim.calibrate.fewshot_priors import (
    CPU_KERNEL_WIDTH,
    PRIORS,
    Priors,
)
from specsim.errors import CalibrationError, FormatError, ProfileError
from specsim.hardware.store import load_profile
from specsim.latency.engine import engine_from_dict, find_engine, list_engines
from specsim.latency.engine_text import engine_toml, write_engine
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.shape import PrefillChunk, StepShape, decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_model
from specsim.sim.build import Deployment
from specsim.speculation.acceptance import Acceptance

VLLM = find_engine("vllm")
QWEN = find_model("qwen3.6-27b")
H200 = load_profile("h200-sxm")
SETUP = resolve_setup(QWEN, VLLM, "mtp", 3)
SPEC = System(QWEN, H200, VLLM, setup=SETUP, acceptance=Acceptance.from_mean_length(3.18, 3))
LOAD = Workload(600, 400)
SURE = replace(PRIORS, shared=0.0)  # of servers that the model describes at every load


def point(system: System, concurrency: float, truth: System | None = None) -> FewShotPoint:
    """A point of `system` whose time per token is the one of `truth`."""
    bare = FewShotPoint(f"c={concurrency:g}", system, LOAD, concurrency)
    if truth is None:
        return bare
    return replace(bare, measured={"tpot_s": predict_point(bare, truth)["tpot_s"]})


def moved(scale: float = 1.0, **factors: float) -> System:
    """SPEC with kernels and overheads multiplied."""
    over = VLLM.overheads
    return SPEC.with_overheads(
        replace(over, **{name: getattr(over, name) * f for name, f in factors.items()}),
        kernel_scale=scale,
    )


# --- factors on kernels ---------------------------------------------------------------------------


def test_a_kernel_scale_multiplies_kernels_and_nothing_else() -> None:
    free = replace(VLLM, overheads=Overheads(step_s=1e-3))
    shape = replace(decode_shape(8, 2000, SETUP), prefill=(PrefillChunk(512),))
    base = LatencyModel(Instance(QWEN, H200, free, setup=SETUP)).step(shape)
    for engine, target, draft in (
        (replace(free, kernel_scale=1.5), 1.5, 1.0),
        (replace(free, drafter_scale=2.0), 1.0, 2.0),
    ):
        model = LatencyModel(Instance(QWEN, H200, engine, setup=SETUP))
        step = model.step(shape)
        assert step.target_s == pytest.approx(target * base.target_s)
        assert step.sample_s == pytest.approx(target * base.sample_s)
        assert step.draft_s == pytest.approx(draft * base.draft_s)
        assert step.host_s == base.host_s == pytest.approx(1e-3)
        assert sum(t.seconds for t in step.ops) == pytest.approx(step.total_s - step.host_s)
        assert model.with_overheads(free.overheads).seconds(shape) == step.total_s
        back = model.with_overheads(free.overheads, kernel_scale=1.0, drafter_scale=1.0)
        assert back.seconds(shape) == base.total_s


def test_a_datasheet_knows_no_scale() -> None:
    shape = decode_shape(8, 2000)
    engine = replace(VLLM, kernel_scale=3.0)
    scaled, plain = (
        LatencyModel(Instance(QWEN, H200, side), fidelity="datasheet") for side in (engine, VLLM)
    )
    assert scaled.seconds(shape) == plain.seconds(shape)


def test_the_simulation_prices_the_scale_too() -> None:
    shape = StepShape(8, SETUP.verify_tokens, 8 * 2000.0, num_drafts=3)
    slow = replace(SPEC, engine=replace(VLLM, kernel_scale=1.5))
    found = Deployment(slow).cost.seconds(shape)
    assert found == pytest.approx(slow.latency.seconds(shape), rel=0.03)
    assert found > 1.3 * Deployment(SPEC).cost.seconds(shape)


def test_profiles_that_differ_in_scale_differ() -> None:
    other = replace(VLLM, kernel_scale=1.1)
    assert other != VLLM and hash(other) != hash(VLLM)
    body = {"engine": {"name": "x", "version": "1", "kernel_scale": 0.0}}
    with pytest.raises(ProfileError, match=r"kernel_scale is 0.0; it must be a factor"):
        engine_from_dict(body, "x.toml")


# --- the fit --------------------------------------------------------------------------------------


def test_two_points_predict_the_rest_of_a_curve() -> None:
    # Half a width to two widths from the profile.
    names, away = ("kernel_scale", "spec_step_s", "step_s"), (1.0, 2.0, 0.5)
    truth = on_engine(SPEC, engine_at(VLLM, names, away, PRIORS))
    fitted = [point(SPEC.plain(), 1, truth.plain()), point(SPEC, 1, truth)]
    rest = [point(SPEC.plain(), c, truth.plain()) for c in (4, 16, 48)]
    rest += [point(SPEC, c, truth) for c in (4, 16, 48)]
    found = fit(fitted, VLLM, SURE)
    assert all(abs(e.error_after) < 0.05 for e in found.fitted)
    errors = found.errors(rest)
    before = np.median([abs(e.error_before) for e in errors])
    after = np.median([abs(e.error_after) for e in errors])
    assert before > 0.12
    assert after < 0.04
    assert all(abs(math.log(e.after / e.measured)) < 3 * math.hypot(e.sd, 0.01) for e in errors)


@pytest.mark.slow
def test_parameters_drawn_from_the_prior_are_found_within_their_error() -> None:
    """Standardised errors of 20 random engines, five points each with 1 % noise. Widths of 0.3: the
    stated errors are those of a fit that is linear near its optimum."""
    random = np.random.default_rng(5)
    narrow = Priors(dict.fromkeys(PRIORS.widths, 0.3), {**PRIORS.noise, "tpot_s": 0.01})
    scores: list[float] = []
    for _ in range(20):
        names = parameters([point(SPEC, 8)], VLLM, narrow)
        x = random.standard_normal(len(names)).clip(-2, 2)
        engine = engine_at(VLLM, names, x.tolist(), narrow)
        truth = on_engine(SPEC, engine)
        points = [point(SPEC.plain(), c, truth.plain()) for c in (1, 64)]
        points += [point(SPEC, c, truth) for c in (1, 16, 64)]
        noisy = [
            replace(p, measured={"tpot_s": p.measured["tpot_s"] * math.exp(0.01 * e)})
            for p, e in zip(points, random.standard_normal(len(points)), strict=True)
        ]
        found = fit(noisy, VLLM, narrow)
        true = dict(zip(names, x.tolist(), strict=True))
        scores += [
            (math.log(e.value / e.before) - narrow.width(e.name) * true[e.name]) / e.sd
            for e in found.estimates
        ]
    values = np.array(scores)
    assert np.abs(values).max() < 4
    assert 0.7 < values.std() < 1.25
    assert abs(values.mean()) < 0.25


def test_an_acceptance_nobody_stated_is_found_with_the_rest() -> None:
    expected = replace(SPEC, acceptance=Acceptance.from_mean_length(2.4, 3))
    fitted = [
        point(SPEC.plain(), 1, SPEC.plain()),
        replace(point(expected, 1, SPEC), acceptance_group="unknown"),
    ]
    found = fit(fitted, VLLM)
    rate = found.acceptance_rates["unknown"]
    assert rate > (2.4 - 1) / 3
    (held,) = found.errors([replace(point(expected, 16, SPEC), acceptance_group="unknown")])
    assert abs(held.error_after) < 0.4 * abs(held.error_before)


def test_what_points_cannot_show_is_named_and_stays() -> None:
    plain = [point(SPEC.plain(), 1, moved(1.2).plain())]
    found = fit(plain, VLLM)
    assert {"spec_step_s", "spec_seq_s", "draft_pass_s", "drafter_scale"} <= set(found.unseen)
    assert {"request_s", "sync_s", "mixed_step_s"} <= set(found.unseen)
    assert all(
        getattr(found.engine.overheads, name) == getattr(VLLM.overheads, name)
        for name in found.unseen if name not in SCALES
    )
    # One sequence among a device's worth of kernels moves nothing per sequence.
    assert "seq_s" in found.not_moved
    assert "kernel_scale" not in found.not_moved
    (scale,) = (e for e in found.estimates if e.name == "kernel_scale")
    assert 1 < scale.value < 1.2
    assert scale.sd < scale.sd_before


def test_routed_experts_have_a_factor_of_their_own() -> None:
    spec = find_model("qwen3.6-35b-a3b")
    routed = System(spec, H200, VLLM)
    shape = decode_shape(16, 1000)
    base = routed.latency.step(shape)
    experts = sum(t.seconds for t in base.ops if t.op.kind == "moe")
    slow = routed.with_overheads(VLLM.overheads, expert_scale=2.0).latency.step(shape)
    assert slow.total_s - base.total_s == pytest.approx(experts)
    assert sum(t.seconds for t in slow.ops) - sum(t.seconds for t in base.ops) == pytest.approx(
        experts
    )
    assert "expert_scale" in parameters([FewShotPoint("x", routed, LOAD, 1)], VLLM, PRIORS)
    assert "expert_scale" not in parameters([point(SPEC, 1)], VLLM, PRIORS)


def test_kernels_of_a_cpu_are_less_certain() -> None:
    spec = find_model("smollm2-135m")
    cpu = System(spec, load_profile("cpu-generic"), VLLM)
    slow = cpu.with_overheads(VLLM.overheads, kernel_scale=2.5)
    found = fit([point(cpu, 1, slow)], VLLM)
    (kernels,) = (e for e in found.estimates if e.name == "kernel_scale")
    assert kernels.sd_before == CPU_KERNEL_WIDTH > PRIORS.width("kernel_scale")
    assert kernels.value > 1.3


def test_a_constant_host_of_a_cpu_is_not_taken_for_slow_kernels() -> None:
    cpu = System(find_model("smollm2-135m"), load_profile("cpu-generic"), VLLM)
    slow = cpu.with_overheads(replace(VLLM.overheads, step_s=20e-3))
    # A measured machine: its kernels are known better than what its server adds.
    own = replace(load_profile("cpu-generic"), name="mine")
    mine, theirs = replace(cpu, profile=own), replace(slow, profile=own)
    one = fit([point(mine, 1, theirs)], VLLM)
    for error in one.errors([point(mine, c, theirs) for c in (4, 16)]):
        assert abs(error.error_after) < 0.6 * abs(error.error_before)
    two = fit([point(cpu, 1, slow), point(cpu, 16, slow)], VLLM)
    (kernels,) = (e for e in two.estimates if e.name == "kernel_scale")
    (host,) = (e for e in two.estimates if e.name == "step_s")
    assert kernels.value == pytest.approx(1, abs=0.1)
    assert host.value == pytest.approx(20e-3, rel=0.25)


def test_points_as_predicted_move_nothing() -> None:
    """Whatever the load and side: where the profile is right it stays."""
    found = fit([point(SPEC.plain(), 1, SPEC.plain()), point(SPEC, 32, SPEC)], VLLM)
    assert all(e.value == pytest.approx(e.before, rel=1e-4) for e in found.estimates)
    assert not found.kept


def test_a_miss_at_one_load_is_carried_to_others_in_part() -> None:
    """What nearby loads miss together need not be missed at far ones; what both sides of a load
    tell apart is told in full."""
    truth = moved(1.15, step_s=1.15, layer_s=1.15, spec_step_s=3.0)
    near = [point(SPEC.plain(), 1, truth.plain()), point(SPEC, 1, truth)]
    (sure,), (unsure,) = (
        fit(near, VLLM, priors).errors([point(SPEC.plain(), 64, truth.plain())])
        for priors in (SURE, PRIORS)
    )
    assert unsure.before < unsure.after < 0.98 * sure.after
    plain, spec = fit(near, VLLM).fitted
    assert abs(spec.after / plain.after / (spec.measured / plain.measured) - 1) < 0.5 * abs(
        spec.before / plain.before / (spec.measured / plain.measured) - 1)


def test_points_that_contradict_one_another_leave_the_profile() -> None:
    def off(c: int, factor: float) -> FewShotPoint:
        found = point(SPEC.plain(), c, SPEC.plain())
        return replace(found, measured={"tpot_s": factor * found.measured["tpot_s"]})

    torn = fit([off(1, 1.4), off(8, 1.0), off(64, 1.4)], VLLM)
    assert "do not bear one another out" in torn.kept
    assert torn.engine == VLLM and not any(e.moved for e in torn.estimates)
    assert all(e.after == e.before for e in torn.fitted)
    alike = fit([off(1, 1.4), off(8, 1.4), off(64, 1.4)], VLLM)
    assert not alike.kept and alike.engine != VLLM


def test_points_in_flight_need_not_be_whole() -> None:
    low, high = (predict_point(point(SPEC, c), SPEC)["tpot_s"] for c in (4, 5))
    assert predict_point(point(SPEC, 4.25), SPEC)["tpot_s"] == pytest.approx(
        0.75 * low + 0.25 * high
    )


def test_a_speedup_alone_can_be_fitted() -> None:
    truth = moved(spec_step_s=3.0)
    bare = replace(point(SPEC, 1), measured={"speedup": 1.0})
    speedup = predict_point(bare, truth)["speedup"]
    found = fit([replace(bare, measured={"speedup": speedup})], VLLM)
    (only,) = found.fitted
    assert only.before > speedup * 1.05
    assert abs(only.error_after) < 0.5 * abs(only.error_before)


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CalibrationError, match="none of the points has a time per token"):
        fit([point(SPEC, 1)], VLLM)


def test_priors_are_complete() -> None:
    known = {*SCALES, "acceptance"}
    assert {name for name in PRIORS.widths if name not in known} <= set(Overheads.__slots__)
    assert known <= set(PRIORS.widths)
    assert 0 < PRIORS.shared < 1 and 0.1 <= PRIORS.reach <= 20
    assert all(0 < width < 3 for width in (*PRIORS.widths.values(), *PRIORS.noise.values()))


# --- engines as files -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", list_engines(), ids=lambda e: f"{e.name}-{e.version}")
def test_every_engine_survives_being_written(engine: object, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    odd = replace(engine, kernel_scale=1.25, sources={'a "b"': "x\ny\\z ü"})  # type: ignore[type-var]
    write_engine(odd, path, "two\nlines")
    assert find_engine(str(path)) == odd
    assert path.read_text(encoding="utf-8").startswith("# two\n# lines\n")


def test_a_folder_cannot_be_written_as_a_profile(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FormatError, match="cannot write"):
        write_engine(VLLM, tmp_path / "file" / "mine.toml")
    assert "kernel_scale" not in engine_toml(VLLM)

"""Round trips: known parameters come back within their errors, and what is not seen is named."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from thinned import some

from calibrate_samples import (
    SHAPES,
    decoder,
    header,
    kernel_shapes,
    machine,
    measured,
    step_shapes,
)
from specsim.calibrate.parameters import Parameter
from specsim.calibrate.records_fit import Data, Outcome, calibrate, read_all
from specsim.calibrate.samples import run_id, runs_seen, split_of
from specsim.calibrate.write import engine_path, report, write_outcome
from specsim.errors import CalibrationError, ProfileError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine

TRUE = machine(**{
    "gemm.bf16/floor_s": 12e-6, "gemm.bf16/mem_frac": 0.7, "gemm.bf16/peak_frac": 0.75,
    "gemm.bf16/p": 2.8, "attn_decode.bf16/floor_s": 40e-6, "attn_decode.bf16/mem_frac": 0.4,
    "attn_decode.bf16/peak_frac": 0.1, "attn_decode.bf16/block_s": 2e-6,
    "attn_prefill/floor_s": 40e-6, "attn_prefill/peak_frac": 0.4, "attn_prefill/wide_frac": 0.4,
    "elementwise/floor_s": 15e-6, "elementwise/mem_frac": 0.6, "sample/floor_s": 200e-6,
    "sample/mem_frac": 0.5,
})
RUN = header()


def fitted(seed: int, noise: float = 0.02, **kwargs: object) -> Outcome:
    data = measured(TRUE, kernel_shapes(SHAPES), RUN, noise, seed)
    return calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False,
                     **kwargs)  # type: ignore[arg-type]


def true_value(parameter: Parameter, profile: HardwareProfile = TRUE) -> float:
    table, name = parameter.targets[0]
    return profile.kernel(table)[name]


def z_scores(outcome: Outcome) -> dict[str, float]:
    """(fitted - true) in predicted standard errors, of what the data saw."""
    return {
        p.name: math.log(value / true_value(p)) / outcome.fit.sd[p]
        for p, value in outcome.fit.values.items() if p not in outcome.fit.blind
    }


@pytest.mark.parametrize("seed", some(range(3), 1))
def test_known_parameters_are_recovered_within_three_predicted_errors(seed: int) -> None:
    outcome = fitted(seed)
    found = z_scores(outcome)
    assert {"gemm.bf16: mem_frac", "gemm.bf16: peak_frac", "attn_decode.bf16: mem_frac",
            "sample: floor_s"} <= set(found)
    # The priors lie elsewhere, and pull what the data see least by a part of their own width.
    assert max(abs(z) for z in found.values()) < 3
    values = {p.name: v for p, v in outcome.fit.values.items()}
    assert values["gemm.bf16: mem_frac"] == pytest.approx(0.7, rel=0.03)
    assert values["gemm.bf16: peak_frac"] == pytest.approx(0.75, rel=0.03)
    assert values["sample: floor_s"] == pytest.approx(200e-6, rel=0.06)


@pytest.mark.slow
def test_predicted_errors_have_the_size_of_the_real_ones() -> None:
    found: dict[str, list[float]] = {}
    for seed in range(12):
        for name, z in z_scores(fitted(100 + seed)).items():
            found.setdefault(name, []).append(z)
    well_seen = ["gemm.bf16: floor_s", "gemm.bf16: peak_frac", "attn_decode.bf16: mem_frac",
                 "attn_decode.bf16: peak_frac", "sample: floor_s", "sample: mem_frac"]
    scores = [z for name in well_seen for z in found[name]]
    inside = sum(abs(z) < 2 for z in scores) / len(scores)
    assert inside > 0.88
    assert 0.5 < statistics.pstdev(scores) < 1.5


def test_a_blind_grid_says_what_it_is_blind_to() -> None:
    few = [shape for shape in kernel_shapes(["small"], rows=(1, 2))
           if shape[1] == "gemm" and shape[2]["matrix"] == "lm_head"]
    data = measured(TRUE, few, RUN, 0.02, 1)
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False)
    blind = {p.name for p in outcome.fit.blind}
    # Two rows through one large matrix: neither the floor nor the knee nor the peak can be seen.
    assert {"gemm.bf16: floor_s", "gemm.bf16: p", "gemm.bf16: peak_frac"} <= blind
    for parameter in outcome.fit.blind:
        assert outcome.fit.values[parameter] == parameter.start
        assert outcome.fit.sd[parameter] == parameter.width
    table = outcome.profile.kernel("gemm.bf16")
    assert "not seen by the data" in table.source and "floor_s" in table.source
    assert report(outcome)["not_seen"] == [p.name for p in outcome.fit.blind]


def test_attention_is_not_seen_without_attention() -> None:
    shapes = [shape for shape in kernel_shapes(SHAPES) if shape[1] == "gemm"]
    outcome = calibrate(measured(TRUE, shapes, RUN, 0.02, 1), load_profile("cpu-generic"),
                        decoder(), "mine", leave_out=False)
    assert all(not p.name.startswith(("attn", "sample")) for p in outcome.fit.values)
    assert outcome.profile.kernel("attn_decode.bf16").assumed
    assert not outcome.profile.kernel("gemm.bf16").assumed


@pytest.mark.slow
def test_outliers_do_not_move_the_fit() -> None:
    data = measured(TRUE, kernel_shapes(SHAPES), RUN, 0.02, 5)
    spoilt = tuple(
        replace(r, timing=replace(r.timing, **{
            name: getattr(r.timing, name) * 3
            for name in ("median_s", "p10_s", "p90_s", "min_s")
        })) if i % 12 == 5 else r
        for i, r in enumerate(data.records)
    )
    base = load_profile("cpu-generic")
    clean = calibrate(data, base, decoder(), "mine", leave_out=False)
    dirty = calibrate(Data(spoilt, data.headers), base, decoder(), "mine", leave_out=False)
    for parameter, value in clean.fit.values.items():
        if parameter.name in ("gemm.bf16: mem_frac", "gemm.bf16: peak_frac"):
            assert dirty.fit.values[parameter] == pytest.approx(value, rel=0.05)


@pytest.mark.slow
def test_whole_steps_are_predicted_from_kernels_and_host_time_from_a_few_of_them() -> None:
    engine = decoder(step_s=1e-3, seq_s=20e-6, spec_step_s=0.5e-3, ngram_seq_s=50e-6,
                     draft_pass_s=0.2e-3)
    shapes = [*kernel_shapes(SHAPES), *step_shapes(SHAPES)]
    data = measured(TRUE, shapes, RUN, 0.01, 3, engine)
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False)
    assert outcome.host is not None and outcome.engine is not None
    anchors = {record.key for record in outcome.host.anchors}
    held = {sample.record.key for sample, _ in outcome.steps}
    assert anchors and held and not anchors & held
    assert {str(r.shape["model"]) for r in outcome.host.anchors} == {"small"}
    errors = [abs(e) for e in outcome.step_errors]
    assert statistics.median(errors) < 0.03 and max(errors) < 0.10
    over = outcome.engine.overheads
    assert over.step_s == pytest.approx(1e-3, rel=0.3)
    assert over.seq_s == pytest.approx(20e-6, rel=0.5)


@pytest.mark.slow
def test_leaving_shapes_out_gives_an_error_for_every_shape() -> None:
    data = measured(TRUE, kernel_shapes(SHAPES), RUN, 0.02, 4)
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine")
    assert len(outcome.groups) > 10
    assert sum(len(errors) for errors in outcome.groups.values()) == len(outcome.fitted)
    everything = sorted(abs(e) for errors in outcome.groups.values() for e in errors)
    assert everything[len(everything) // 2] < 0.05


@pytest.mark.slow
def test_the_profile_and_engine_are_ordinary_files(tmp_path: Path) -> None:
    data = measured(TRUE, [*kernel_shapes(SHAPES), *step_shapes(["small"])], RUN, 0.02, 1)
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False)
    path = tmp_path / "mine.toml"
    files = write_outcome(outcome, path)
    assert files == [path, engine_path(path)]
    loaded = load_profile(str(path))
    assert loaded.kernels == outcome.profile.kernels
    assert loaded.mem_bytes_per_s == pytest.approx(TRUE.mem_bytes_per_s)
    assert loaded.flops["bf16"] == pytest.approx(TRUE.flops["bf16"], rel=1e-6)
    table = loaded.kernel("gemm.bf16")
    assert table.measured_on is not None and "made-up machine" in table.measured_on
    assert "2026-01-02" in table.measured_on and "torch 2.13.0" in table.measured_on
    assert not table.assumed
    assert runs_seen(loaded) == {run_id(RUN)}
    assert find_engine(str(files[1])).overheads == outcome.engine.overheads  # type: ignore[union-attr]
    record = next(r for r in data.records if r.part == "B")
    assert split_of(record, runs_seen(loaded)) == "fitted"
    step = next(r for r in data.records if r.part == "E")
    assert split_of(step, runs_seen(loaded)) == "held-out"


@pytest.mark.slow
def test_no_profile_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    data = measured(TRUE, kernel_shapes(SHAPES), RUN, 0.02, 1)
    outcome = calibrate(data, load_profile("cpu-generic"), decoder(), "mine", leave_out=False)

    def with_bf16(peak: float) -> HardwareProfile:
        return replace(outcome.profile, flops={**outcome.profile.flops, "bf16": peak})

    path = tmp_path / "mine.toml"
    slow = with_bf16(2e8)  # 16-bit products emulated on one core
    write_outcome(replace(outcome, profile=slow, engine=None), path)
    assert load_profile(str(path)).flops["bf16"] == 2e8
    with pytest.raises(ProfileError, match=r"mine.toml: flops.bf16 = 20000000.0 is outside"):
        write_outcome(replace(outcome, profile=with_bf16(2e7)), path)
    assert load_profile(str(path)).flops["bf16"] == 2e8  # the good file stays


@pytest.mark.slow
def test_a_gpu_round_trip_keeps_its_datasheet_peaks() -> None:
    base = load_profile("h200-sxm")
    kernels = dict(base.kernels)
    gemm = kernels["gemm.bf16"]
    kernels["gemm.bf16"] = replace(gemm, params={
        **gemm.params, "mem_frac": 0.75 * gemm["mem_frac"], "floor_s": 2 * gemm["floor_s"],
    })
    true = replace(base, kernels=kernels)
    run = header("cuda")
    shapes = [s for s in kernel_shapes(SHAPES, (1, 8, 32, 128, 512, 2048)) if s[0] != "A"]
    data = measured(true, shapes, run, 0.02, 7)
    outcome = calibrate(data, base, decoder(), "mine", leave_out=False)
    values = {p.name: v for p, v in outcome.fit.values.items()}
    assert outcome.profile.mem_bytes_per_s == base.mem_bytes_per_s
    assert values["gemm.bf16: mem_frac"] == pytest.approx(0.75 * gemm["mem_frac"], rel=0.06)
    for p in outcome.fit.values:
        if p not in outcome.fit.blind and p.name.startswith("gemm"):
            z = math.log(outcome.fit.values[p] / true_value(p, true)) / outcome.fit.sd[p]
            assert abs(z) < 3, p.name


def test_two_machines_are_not_fitted_together(tmp_path: Path) -> None:
    import json

    paths = []
    for name in ("one", "two"):
        run = RUN.model_copy(update={"device": {**RUN.device, "name": name}})
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(run.to_dict()) + "\n")
        paths.append(path)
    with pytest.raises(CalibrationError, match="several devices"):
        read_all(paths)


def test_a_base_of_another_kind_is_refused() -> None:
    data = measured(TRUE, kernel_shapes(["small"]), RUN, 0.02, 1)
    with pytest.raises(CalibrationError, match=r"records are of a CPU.*--base cpu-generic"):
        calibrate(data, load_profile("h200-sxm"), decoder(), "mine")


def test_nothing_to_fit_is_said() -> None:
    data = Data((), (RUN,))
    with pytest.raises(CalibrationError, match="no record of a kernel"):
        calibrate(data, load_profile("cpu-generic"), decoder(), "mine")

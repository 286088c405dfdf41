"""The catalogue of measured acceptance: names, the rule of choice, the user's own cluster."""

from collections import defaultdict
from pathlib import Path

import pytest

from specsim.errors import FormatError, UsageError
from specsim.speculation import acceptance_catalogue as catalogue
from specsim.speculation.acceptance import CONDITIONAL_DECLINE, Acceptance
from specsim.speculation.acceptance_catalogue import lookup, normalise_method, normalise_model


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("qwen3.6-27b", "Qwen/Qwen3.6-27B-FP8"),
        ("qwen3.5-122b", "Qwen/Qwen3.5-122B-A10B"),
        ("gemma-4-31b", "google/gemma-4-31B-it"),
        ("gemma-4-31b", "gemma-4-31B-it AWQ4"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3-8b", "Meta-Llama-3-8B-Instruct"),
        ("qwen3-30b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8"),
        ("nemotron-3-super-120b", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
        ("glm-5.1", "zai-org/GLM-5.1-FP8"),
    ],
)
def test_names_of_one_model_are_one(a: str, b: str) -> None:
    assert normalise_model(a) == normalise_model(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Qwen3.6-27B", "Qwen3.5-27B"),
        ("Qwen3-30B-A3B", "Qwen3-30B-A3B-Instruct-2507"),
        ("Qwen3-30B-A3B", "Qwen3-Coder-30B-A3B-Instruct"),
        ("gemma-4-31B-it", "gemma-4-31B-it QAT W4A16"),
        ("Nemotron-3-Ultra-550B-A55B", "Nemotron-3-Ultra + MTP-Boosting"),
        ("DeepSeek-V4-Pro", "DeepSeek-V4-Pro-0813"),
    ],
)
def test_different_models_stay_different(a: str, b: str) -> None:
    assert normalise_model(a) != normalise_model(b)


def test_method_names() -> None:
    assert normalise_method("qwen3_next_mtp") == normalise_method("NEXTN") == "mtp"
    assert normalise_method("draft-model") == normalise_method("STANDALONE") == "draft_model"
    assert normalise_method("EAGLE3") == normalise_method("eagle-3") == "eagle3"
    assert normalise_method("p-eagle") == "p_eagle"


@pytest.mark.parametrize(
    ("model", "method", "k", "length"),
    [
        # The MindRouter cluster, as its reports state it.
        ("qwen3.6-27b", "mtp", 1, 1.93),
        ("qwen3.6-27b", "mtp", 2, 2.68),
        ("qwen3.6-27b", "mtp", 3, 3.18),
        ("gemma-4-31b", "draft_model", 4, 3.08),
        ("gemma-4-31b", "mtp", 4, 3.08),
        ("qwen3.5-122b", "mtp", 1, 1.83),
        ("qwen3.5-122b", "mtp", 2, 2.43),
        ("qwen3.5-35b", "mtp", 2, 2.46),
        # Published sweeps.
        ("Llama-3.1-8B-Instruct", "eagle", 5, 2.43),
        ("Llama-3.1-8B-Instruct", "eagle3", 4, 3.08),
        ("gpt-oss-20b", "eagle3", 7, 3.27),
        ("Qwen/Qwen3.8-2.4T-A95B", "mtp", 1, 1.648),
    ],
)
def test_measured_lengths_are_met(model: str, method: str, k: int, length: float) -> None:
    found = lookup(model, method, k=k)
    assert found is not None
    assert found.acceptance.expected_tokens() == pytest.approx(length, abs=1e-9)
    assert found.acceptance.positions == k
    assert not found.acceptance.extrapolated
    assert found.points[0].rows
    assert found.spread[0] - 1e-9 <= length <= found.spread[1] + 1e-9


def test_golden_rates_by_data_set() -> None:
    found = lookup("Qwen3.5-397B-A17B", "mtp", dataset="SPEED-Bench coding (thinking on)", k=8)
    assert found is not None
    golden = (0.93, 0.80, 0.66, 0.58, 0.44, 0.39, 0.24, 0.17)
    assert found.acceptance.unconditional == pytest.approx(golden, abs=1e-9)
    head = lookup("DeepSeek-V4-Pro", "mtp", dataset="SPEED-Bench coding (thinking on)", k=5)
    assert head is not None
    assert head.acceptance.unconditional == pytest.approx((0.79, 0.48, 0.22, 0.05, 0.01), abs=1e-9)


def test_every_measured_k_of_a_noisy_curve_is_met_exactly() -> None:
    # 3.77 at k=6 falls to 3.47 at k=8; each k is answered by its own measurement.
    found = lookup("DeepSeek-V4-Pro-0813", "dspark")
    assert found is not None
    for k, length in ((6, 3.77), (7, 3.73), (8, 3.47)):
        assert found.at(k).expected_tokens() == pytest.approx(length, abs=1e-9)


def test_no_value_is_invented() -> None:
    # MindRouter calls the acceptance of these two "high"; other measurements may answer, these not.
    for model in ("qwen3.6-35b", "nemotron-3-super"):
        found = lookup(model, "mtp", k=2)
        assert found is not None
        assert not any(row.startswith("MR") for point in found.points for row in point.rows)
    assert lookup("qwen3.6-27b", "eagle3") is None
    assert lookup("qwen3.7-27b", "mtp") is None
    # Several models carry that name with different sizes.
    assert lookup("qwen3", "eagle3") is None


def test_random_prompts_only_on_request() -> None:
    assert lookup("GLM-5.1", "mtp", k=3) is None
    found = lookup("GLM-5.1", "mtp", k=3, dataset="random")
    assert found is not None
    assert found.acceptance.unconditional == pytest.approx((0.366, 0.204, 0.07))
    for m in catalogue.measurements():
        assert (m.kind == "random") == ("random" in m.dataset.lower())


def test_chat_comes_before_tasks_and_the_source_says_so() -> None:
    found = lookup("Llama-3.1-8B-Instruct", "eagle3", k=3)
    assert found is not None
    assert found.points[0].kind == "chat"
    assert "[chat]" in found.acceptance.source
    assert "VLLMK" in found.acceptance.source
    assert "all measured span" in found.acceptance.source
    assert len(found.datasets) > 3
    code = lookup("qwen3.6-35b", "mtp", k=3)
    assert code is not None
    assert code.points[0].kind == "task"


def test_beyond_the_measured_k_is_flagged() -> None:
    found = lookup("qwen3.6-27b", "mtp", k=5)
    assert found is not None
    assert found.acceptance.extrapolated
    assert "positions 4..5 extrapolated" in found.acceptance.source
    assert found.at(3).expected_tokens() == pytest.approx(3.18)


def test_gap_between_measured_lengths_is_filled() -> None:
    found = lookup("gpt-oss-20b", "eagle3", k=5)
    assert found is not None
    assert 2.70 < found.acceptance.expected_tokens() < 3.27
    assert not found.acceptance.extrapolated


def test_drafters_that_skip_steps_carry_their_share() -> None:
    found = lookup("SmolLM2-135M-Instruct", "ngram", draft="prompt lookup n=3..2", k=8)
    assert found is not None
    # 1.58 tokens per step, a draft in a quarter of the steps.
    assert found.acceptance.draft_probability == pytest.approx(0.251, abs=0.001)
    assert found.acceptance.tokens_per_step() == pytest.approx(1.58, abs=0.005)


def test_no_draft_length_has_no_acceptance() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        lookup("qwen3.6-27b", "mtp", k=0)


def test_every_line_is_sound() -> None:
    lines = catalogue.measurements()
    assert len(lines) > 500
    for m in lines:
        assert m.kind in catalogue.DATASET_KINDS
        assert m.grade in ("A", "B")
        assert m.rows
        assert m.k >= 1
        if m.tree_topk == 1:
            assert m.num_draft_tokens == m.k + 1
        assert 1.0 <= m.acceptance_length <= m.num_draft_tokens
        if m.per_position:
            assert len(m.per_position) == m.k
            rounding = 0.005 * m.k + 0.006
            assert 1 + sum(m.per_position) == pytest.approx(m.acceptance_length, abs=rounding)


MODELS = sorted(
    {normalise_model(m.model) for m in catalogue.measurements() if m.tree_topk == 1}
)


def test_every_curve_answers_at_its_own_k() -> None:
    for model in MODELS:
        for curve in catalogue._curves()[model]:
            for point in curve:
                acceptance, _ = catalogue._evaluate(curve, point.k)
                length = acceptance.expected_tokens(point.k)
                assert length == pytest.approx(point.acceptance_length, abs=1e-6)


def shape_errors(decline: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Mean absolute error, sets weighted equally, of AL at shorter and at longer drafts."""
    monkeypatch.setattr("specsim.speculation.acceptance.CONDITIONAL_DECLINE", decline)
    shorter: dict[str, list[float]] = defaultdict(list)
    longer: dict[str, list[float]] = defaultdict(list)
    for model in MODELS:
        for curve in catalogue._curves()[model]:
            first = curve[0]
            if first.draft_probability < 1.0 or first.method == "ngram":
                continue
            lengths: dict[int, float] = {}
            for point in curve:
                for k in range(1, len(point.per_position) + 1):
                    lengths.setdefault(k, 1.0 + sum(point.per_position[:k]))
            lengths |= {point.k: point.acceptance_length for point in curve}
            for known, length in lengths.items():
                given = Acceptance.from_mean_length(length, known)
                given = Acceptance(given.unconditional, decline=decline)
                for k, measured in lengths.items():
                    error = abs(given.expected_tokens(k) / measured - 1.0)
                    if k < known == max(lengths):
                        shorter[first.set_id].append(error)
                    elif k > known:
                        longer[first.set_id].append(error)
    return tuple(  # type: ignore[return-value]
        sum(sum(e) / len(e) for e in errors.values()) / len(errors) for errors in (shorter, longer)
    )


def test_the_declining_shape_is_the_best_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter, longer = shape_errors(CONDITIONAL_DECLINE, monkeypatch)
    assert shorter < 0.024
    assert longer < 0.041
    for other in (1.0, 0.93):
        worse = shape_errors(other, monkeypatch)
        assert worse[0] > shorter + 0.003
        assert worse[1] > longer + 0.003


def test_broken_catalogue_files(tmp_path: Path) -> None:
    path = tmp_path / "acceptance.csv"
    with pytest.raises(FormatError, match="cannot be read"):
        catalogue.measurements(path)
    path.write_text("model,method\n", encoding="utf-8")
    with pytest.raises(FormatError, match="must have model,method"):
        catalogue.measurements(path)
    path.write_text(
        ",".join(catalogue.COLUMNS) + "\nm,mtp,,d,chat,,three,1,4,2,,1,A,S,R,\n", encoding="utf-8"
    )
    with pytest.raises(FormatError, match="record 1"):
        catalogue.measurements(path)

"""The mixed model of residuals on residuals of known make."""

import numpy as np
import pytest
from residual_intervals import LeftOut, ends, quantiles
from residual_model import Residual, ResidualModel, Spread

KNOWN, RARE = "plain|dense|vllm|measured|one", "plain|moe|sglang|assumed|several"


def drawn(sources: int, rows: int, source_scale: float, klass: str = KNOWN, bias: float = 0.0,
          seed: int = 1) -> list[Residual]:
    rng = np.random.default_rng(seed)
    out = []
    for s in range(sources):
        effect = bias + source_scale * rng.normal()
        out += [Residual(effect + 0.05 * rng.normal(), f"{klass[:9]}{s}", f"m{s % 5}", "v", f"g{s}",
                         klass) for _ in range(rows)]
    return out


def test_scale_of_the_next_source_is_that_of_those_seen() -> None:
    found = ResidualModel(drawn(30, 5, 0.2)).spread(KNOWN)
    assert found.scale == pytest.approx(0.2, rel=0.3)
    assert abs(found.middle) < 0.08
    assert (found.sources, found.n) == (30, 150)


def test_rows_do_not_make_up_for_sources() -> None:
    """Two thousand rows of three sources say little about the next source."""
    few = ResidualModel(drawn(3, 700, 0.2)).spread(KNOWN)
    many = ResidualModel(drawn(40, 3, 0.2)).spread(KNOWN)
    assert few.scale > 0.7 * many.scale


def test_a_class_nobody_measured_is_wider_than_its_relatives() -> None:
    model = ResidualModel(drawn(20, 4, 0.1))
    assert model.spread(RARE).scale > 1.1 * model.spread(KNOWN).scale
    assert model.spread(RARE).sources == 0


@pytest.mark.slow
def test_a_bias_over_sources_moves_the_interval_which_keeps_the_prediction() -> None:
    biased = ResidualModel(drawn(20, 4, 0.05, bias=0.4)).spread(KNOWN)
    assert biased.middle == pytest.approx(0.4, abs=0.1)
    low, high = ends(biased, 1.6)
    assert low == 0.0 and high > 0.4
    one = ResidualModel(drawn(20, 4, 0.2) + drawn(1, 4, 0.0, RARE, bias=0.4)).spread(RARE)
    assert 0.0 < one.middle < 0.3  # one source is believed in part


def test_one_source_far_off_does_not_widen_everything() -> None:
    usual = drawn(20, 4, 0.1)
    odd = [Residual(1.5, "odd", "m", "v", "godd", KNOWN)] * 4
    before, after = ResidualModel(usual).spread(KNOWN), ResidualModel(usual + odd).spread(KNOWN)
    assert after.scale < 2 * before.scale


def test_scales_to_an_end_are_read_from_sources_left_out() -> None:
    rng = np.random.default_rng(3)
    found = [
        LeftOut(Residual(y, f"s{i}", "m", "v", "g", KNOWN), Spread(0.0, 1.0, 1, 1))
        for i, y in enumerate(rng.normal(size=400))
    ]
    assert quantiles(found)["plain"] == pytest.approx(1.645, abs=0.2)
    wide = [LeftOut(f.residual, Spread(0.0, 0.7, 1, 1)) for f in found]
    assert quantiles(wide)["plain"] > quantiles(found)["plain"] + 0.4

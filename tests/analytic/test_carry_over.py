"""What a measurement says of another system: by hand for one, and what must hold for several."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.analytic.carry_over import (
    KINDS,
    TAIL,
    CarryOver,
    Seen,
    Setting,
    carried,
    carry_overs,
    condition,
    distances,
)
from specsim.analytic.intervals import log_ends
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.options.groups import DeploymentOptions

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "validation" / "reports" / "carry_over.json"
QUANTITIES = json.loads(REPORT.read_text(encoding="utf-8"))["quantities"]
SMALL = {"model": "llama-3.1-8b", "method": "none"}


def setting(
    clients: float = 8, prompt: int = 1000, output: int = 200, **options: object
) -> Setting:
    asked = DeploymentOptions.of_values({**SMALL, **options})
    return Setting(build_request(asked).system, Workload(prompt, output), clients)


H200 = setting()


def test_distances_are_logarithms_of_what_differs() -> None:
    other = setting(16, 4000, 200, gpu="b200", tp=2, engine="sglang")
    assert distances(H200, H200) == {}
    assert distances(H200, other) == pytest.approx({
        "gpu": 1.0, "gpus": math.log(2), "engine": 1.0, "context": math.log(4),
        "concurrency": math.log(2),
    })
    assert distances(H200, other) == distances(other, H200)
    drafts = {"method": "eagle3", "acceptance_length": 2.0}
    longer = distances(setting(**drafts, k=1), setting(**drafts, k=3))
    assert longer == pytest.approx({"k": math.log(2)})


@pytest.mark.parametrize("metric", ["tpot_s", "output_tok_s"])
def test_one_measurement_by_hand(metric: str) -> None:
    """Both deployments have the same interval, so half widths cancel in the expected miss."""
    law, up = carry_overs()["tpot"], 1 if metric == "tpot_s" else -1
    other = replace(H200, concurrency=32.0)
    found = carried(metric, other, 10.0, [Seen(H200, 6.0, 5.0)])
    assert found is not None
    alike = math.exp(-law.loss["concurrency"] * math.log(4))
    share = law.scale**2 * alike / (law.scale**2 + law.noise**2)
    assert found.share == pytest.approx(share)
    assert found.value == pytest.approx(10 * (6 / 5) ** share)
    ends = log_ends(H200.system, "tpot", up)
    assert ends is not None
    miss = math.log(6 / 5) / ((ends[1] - ends[0]) / 2)
    odd = (TAIL + miss**2 / (law.scale**2 + law.noise**2)) / (TAIL + 1)
    left = math.sqrt((1 - share * alike * law.scale**2 / (law.scale**2 + law.noise**2)) * odd)
    assert [math.log(end / found.value) for end in found.interval_90] == pytest.approx(
        [end * left * law.widen["concurrency"] for end in ends])


def test_a_right_prediction_stays_where_it_is_and_is_surer() -> None:
    other = replace(H200, concurrency=32.0)
    found = carried("tpot_s", other, 10.0, [Seen(H200, 5.0, 5.0)])
    ends = log_ends(H200.system, "tpot")
    assert found is not None
    assert ends is not None
    assert found.value == pytest.approx(10.0)
    low, high = (math.log(end / 10) for end in found.interval_90)
    assert ends[0] < low < 0 < high < ends[1]


def test_what_is_far_tells_less() -> None:
    def share(other: Setting) -> float:
        found = carried("tpot_s", other, 10.0, [Seen(H200, 6.0, 5.0)])
        assert found
        return found.share

    assert share(replace(H200, concurrency=4.0)) > share(replace(H200, concurrency=64.0))
    assert share(setting(tp=2)) > share(setting(tp=4)) > share(setting(gpu="b200", tp=4))


def test_several_count_together_and_repeats_hardly_more_than_one() -> None:
    law = carry_overs()["tpot"]
    one = condition(law, [0.5], [[1.0]], [1.0])[0]
    same = condition(law, [0.5] * 3, [[1.0] * 3] * 3, [1.0] * 3)[0]
    apart = condition(law, [0.5] * 3, [[1, 0.5, 0.5], [0.5, 1, 0.5], [0.5, 0.5, 1]], [1.0] * 3)[0]
    assert sum(one) < sum(same) < 0.51
    assert sum(apart) > sum(same) + 0.1


def test_misses_alike_leave_less_than_one_and_an_odd_one_leaves_more() -> None:
    law = carry_overs()["tpot"]
    between = [[1.0, 0.9], [0.9, 1.0]]
    left = [condition(law, [0.9, 0.9], between, [0.5, miss])[1] for miss in (0.5, 3.0)]
    assert left[0] < condition(law, [0.9], [[1.0]], [0.5])[1] < left[1]


def test_bounds_have_no_interval_to_move() -> None:
    bound = setting(fidelity="datasheet")
    assert carried("tpot_s", bound, 10.0, [Seen(bound, 6.0, 5.0)]) is None


@settings(max_examples=examples(40), deadline=None)
@given(
    scale=st.floats(0.05, 2), noise=st.floats(0.01, 1), alike=st.floats(0, 1),
    miss=st.floats(-3, 3),
)
def test_less_is_carried_over_than_was_missed(
    scale: float, noise: float, alike: float, miss: float
) -> None:
    law = CarryOver(scale, noise, dict.fromkeys(KINDS, 0.1), {})
    (weight,), left = condition(law, [alike], [[1.0]], [miss])
    assert 0 <= weight <= alike
    assert left >= 0


# --- what it is judged by ----------------------------------------------------------------------


def test_the_catalogue_is_what_the_report_fitted() -> None:
    for name, law in carry_overs().items():
        kept = QUANTITIES[name]["law"]
        assert law.scale == pytest.approx(kept["scale"], abs=1e-4)
        assert law.loss == pytest.approx(kept["loss"], abs=1e-4)
        assert law.widen == pytest.approx(kept["widen"], abs=1e-4)
        assert set(law.loss) == set(law.widen) == set(KINDS)


@pytest.mark.parametrize("quantity", ["tpot", "ttft", "speedup"])
def test_a_measurement_helps_and_intervals_hold(quantity: str) -> None:
    """Over all kinds, on sources left out: half of TPOT's and the speedup's error goes."""
    whole = QUANTITIES[quantity]["kinds"]["all"]
    medians = whole["median_of_source_medians"]
    most = 0.9 if quantity == "ttft" else 0.55
    assert medians["carried"] < most * medians["plain"]
    assert medians["carried"] < 0.55 * medians["naive"]
    covered = whole["covered"]
    for which in ("", "unseen "):  # as the factors aim: half by value, half by source
        assert 0.85 <= (covered[f"{which}by value"] + covered[f"{which}by source"]) / 2 <= 0.95


def test_the_report_says_the_medians_of_its_sources() -> None:
    for item in QUANTITIES.values():
        for kind in item["kinds"].values():
            for way, medians in kind["source_medians"].items():
                assert kind["median_of_source_medians"][way] == median(medians.values())


def test_the_page_has_the_figures_of_the_report() -> None:
    page = (ROOT / "docs" / "howto" / "from-measured.md").read_text(encoding="utf-8")
    tpot = QUANTITIES["tpot"]
    whole = tpot["kinds"]["all"]
    shares = whole["median_of_source_medians"]
    for figure in (f"{whole['pairs']:,} public", f"{whole['sources']} sources",
                   *(f"{shares[way] * 100:.1f}%" for way in ("carried", "plain", "naive")),
                   f"{tpot['several_loads']['all'] * 100:.1f}%"):
        assert figure in page

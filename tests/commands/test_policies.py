"""`specsim policies`: the same load under several policies, and which differences are real."""

import json
import math
from functools import partial
from typing import Any

import pytest
from command_line import answer
from typer.testing import CliRunner

import specsim
from specsim.commands import app
from specsim.errors import UsageError

MODEL = ("llama-3.1-8b", "--method", "eagle3", "--k", "4", "--acceptance-rate", "0.7")
SHORT = ("--input-len", "200", "--output-len", "60", "--range-ratio", "0.5")
LOAD = (*MODEL, *SHORT, "--concurrency", "48", "--requests", "150", "--replications", "3")


call = partial(answer, "policies")


def compared(*policies: str, load: tuple[str, ...] = LOAD) -> dict[str, Any]:
    flags = [word for policy in policies for word in ("--policy", policy)]
    out: dict[str, Any] = json.loads(call(*load, *flags, "--json"))
    return out


@pytest.mark.slow
def test_equal_policies_do_not_differ_and_unlike_ones_do() -> None:
    found = compared("static", "table,1=4", "static,k=0", "none")
    table, off, none = found["policies"][1:]
    for difference in (*table["against_first"].values(), table["behind_best"]):
        if difference is not None:
            assert difference["mean"] == 0 and difference["better"] is None
    assert found["best"] in ("static", "table,1=4") and found["ranked_by"] == "output_tok_s"
    for lost in (off, none):
        assert lost["against_first"]["output_tok_s"]["better"] is False
        assert lost["against_first"]["tpot_s.mean"]["better"] is False
        assert lost["behind_best"]["interval"][1] < 0
        assert lost["drafting"]["off_share"] == 1 and lost["drafting"]["wasted_tokens"] == 0
    fixed = found["policies"][0]["drafting"]
    assert fixed["drafts_mean"] == 4 and fixed["switches"] == 0
    assert fixed["wasted_share"] == pytest.approx(1 - found["policies"][0]["acceptance_rate"])


def test_a_policy_has_the_figures_that_simulate_gives_it() -> None:
    load = (*MODEL, *SHORT, "--concurrency", "8", "--requests", "60")
    mine = compared("static", "goodput", load=(*load, "--replications", "1"))["policies"][1]
    alone = json.loads(CliRunner().invoke(
        app, ["simulate", *load, "--policy", "goodput", "--no-baseline", "--json"]
    ).stdout)
    for name in ("ttft_s", "tpot_s", "output_tok_s", "steps", "requests"):
        assert mine[name] == alone[name], name
    assert mine["against_first"]["output_tok_s"]["interval"] is None


@pytest.mark.slow
def test_the_same_bytes_again_and_no_infinite_number() -> None:
    names = ("static", "goodput", "utility", "per-request", "off-above,batch=16")
    load = (*MODEL, *SHORT, "--concurrency", "24", "--requests", "60", "--replications", "2")
    first, second = compared(*names, load=load), compared(*names, load=load)
    assert first == second

    def finite(value: object) -> bool:
        if isinstance(value, dict):
            return all(map(finite, value.values()))
        if isinstance(value, list):
            return all(map(finite, value))
        return not isinstance(value, float) or math.isfinite(value)

    assert finite(first)
    off = first["policies"][4]["drafting"]
    assert 0 < off["off_share"] < 1 and off["switches"] > 0
    for policy in first["policies"]:
        counts = policy["requests"]
        assert counts["finished"] == counts["measured"] == 60


@pytest.mark.slow
def test_gates_make_goodput_the_measure() -> None:
    found = compared("none", "static", load=(
        *MODEL, *SHORT, "--rate", "20", "--requests", "150", "--replications", "3",
        "--slo", "tpot_p95=0.005",
    ))
    assert found["ranked_by"] == "goodput" and found["best"] == "static"
    assert found["policies"][1]["behind_best"] is None
    assert "requests/s within the limits: static" in call(
        *MODEL, *SHORT, "--rate", "20", "--requests", "60", "--slo", "tpot_p95=0.005",
        "--replications", "2", "--policy", "none", "--policy", "static",
    )


def test_the_text_says_what_is_real() -> None:
    text = call(*LOAD, "--policy", "static", "--policy", "static,k=4", "--policy", "none")
    assert "3 runs do not tell it from static" in text
    assert "no difference shown" in text and "worse" in text
    one = call(*MODEL, *SHORT, "--concurrency", "4", "--requests", "20", "--replications", "1",
               "--policy", "static", "--policy", "none")
    assert "one run says nothing of what is real" in one


@pytest.mark.slow
def test_on_a_routed_model_that_accepts_nothing_utility_and_goodput_turn_off() -> None:
    """Qwen3-30B-A3B at a batch in which each verified token wakes further experts."""
    found = compared("static", "static,k=0", "utility", "goodput", load=(
        "qwen3-30b-a3b", "--method", "eagle3", "--k", "4", "--acceptance-rate", "0.05", *SHORT,
        "--output-len", "400", "--concurrency", "8", "--requests", "24", "--replications", "2",
    ))
    static, off, *dynamic = found["policies"]
    assert static["output_tok_s"] < 0.75 * off["output_tok_s"]
    for policy in dynamic:
        assert policy["drafting"]["off_share"] > 0.8, policy["policy"]
        assert policy["output_tok_s"] > 0.93 * off["output_tok_s"]
        assert policy["against_first"]["output_tok_s"]["better"]


@pytest.mark.parametrize(("options", "words"), [
    ({"method": "none", "policy": ["static"]}, "the method is 'none'"),
    ({"policy": ["static", "static"]}, "named twice"),
    ({"policy": ["godput"]}, "did you mean 'goodput'"),
    ({"policy": ["adaptive"]}, "is SGLang's"),
    ({"policy": ["static"], "replications": 0}, "--replications is 0"),
])
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], words: str) -> None:
    given = {"method": "eagle3", "concurrency": 4, **options}
    with pytest.raises(UsageError, match=words):
        specsim.policies("llama-3.1-8b", **given)

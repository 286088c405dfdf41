"""How a model's traffic chooses experts: its kind of router, its own capture, or what was said."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.instance import Instance
from specsim.latency.routing import KINDS, parse_routing, router_kind, routing_of
from specsim.latency.step import LatencyModel
from specsim.model.catalogue import find_model, has_model, list_models
from specsim.ops.work import UNIFORM, Routing

COUNTS = Path(__file__).parents[2] / "validation" / "data" / "routing" / "expert_counts.csv"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen3-30b-a3b", "softmax"),
        ("qwen3-coder-480b-a35b-instruct", "softmax"),
        ("gemma-4-26b-a4b", "softmax"),  # its dense branch is no expert
        ("gpt-oss-20b", "softmax"),  # its router has biases, but none that balance
        ("qwen3-next-80b-a3b", "gated-shared"),
        ("qwen3.5-122b-a10b-fp8", "gated-shared"),
        ("deepseek-v3", "sigmoid"),  # within groups of experts
        ("kimi-k2-instruct", "sigmoid"),
        ("glm-4.5-air", "sigmoid"),
        ("glm-4.7-flash", "sigmoid"),
        ("minimax-m2", "sigmoid"),  # without a shared expert
        ("ernie-4.5-21b-a3b", "sigmoid"),
        ("ling-mini-2.0", "sigmoid"),
        ("hy3-295b-a21b", "sigmoid"),
        ("nemotron-3-super", "relu2"),
        ("mixtral-8x22b", "coarse"),
        ("llama-4-maverick-17b-128e-instruct", "coarse"),
        ("qwen1.5-moe-a2.7b", "coarse"),
        ("qwen2-57b-a14b", "coarse"),
        ("deepseek-v2", "coarse"),
        ("llama-3.1-8b", ""),
    ],
)
def test_kinds_of_routers(name: str, kind: str) -> None:
    assert router_kind(find_model(name)) == kind


def test_every_routed_model_of_the_catalogue_has_a_kind() -> None:
    specs = (find_model(entry.name) for entry in list_models())
    routed = [spec for spec in specs if spec.has_experts]
    assert len(routed) > 50
    for spec in routed:
        assert router_kind(spec) in KINDS, spec.name
        found = routing_of(spec)
        assert 0.5 < found.beta < 1, spec.name
        assert 0.3 < found.shape < 5, spec.name


def test_captures_stand_under_the_kind_that_shapes_tell() -> None:
    with COUNTS.open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row["kind"] for row in csv.DictReader(file)}
    known = {name: kind for name, kind in rows.items() if has_model(name)}
    assert len(known) >= 10
    assert {name: router_kind(find_model(name)) for name in known} == known


def test_a_captured_model_has_its_own_numbers_in_every_format() -> None:
    own = routing_of(find_model("qwen3-30b-a3b"))
    assert own == routing_of(find_model("qwen3-30b-a3b-fp8"))
    assert own != parse_routing("softmax") == routing_of(find_model("qwen3-235b-a22b"))
    assert routing_of(find_model("glm-5.2-fp8")) != routing_of(find_model("glm-5"))


def test_predicts_the_captures_within_their_scatter() -> None:
    with COUNTS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if has_model(row["model"])]
    for row in rows:
        counted, *call = (
            float(row[name]) for name in ("distinct", "experts", "top_k", "tokens", "seqs")
        )
        found = routing_of(find_model(row["model"])).distinct(*call)
        assert found == pytest.approx(counted, rel=0.09), row


def test_what_a_latency_model_takes() -> None:
    spec = find_model("qwen3-30b-a3b")
    instance = Instance(spec, load_profile("h200-sxm"), find_engine("vllm"))
    assert LatencyModel(instance).routing == routing_of(spec)
    assert LatencyModel(instance, fidelity="datasheet").routing == UNIFORM
    assert LatencyModel(instance, routing=UNIFORM).routing == UNIFORM


def test_routing_in_words_and_numbers() -> None:
    assert parse_routing("uniform") == UNIFORM
    assert parse_routing(" Sigmoid ") == routing_of(find_model("deepseek-v3"))
    assert parse_routing("0.75,1.2") == Routing(0.75, 1.2)
    spec = find_model("deepseek-v3")
    assert parse_routing("EPLB", spec) == replace(routing_of(spec), evened=True)
    assert parse_routing("1, inf") == Routing(1.0, math.inf)


@pytest.mark.parametrize(
    "text",
    ["", "random", "0.7", "0.7,1,2", "0.7,x", "1.1,1", "-0.1,1", "0.7,0", "0.7,nan", "nan,1"],
)
def test_routing_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match=r"--routing is .*; it must be uniform, softmax.*BETA"):
        parse_routing(text)

"""Any damage to a valid config gives a model or one clear line, never another exception."""

import copy
import json
from typing import Any

import pytest
from catalogue_build import read_entries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.errors import SpecSimError
from specsim.formats.hf_config import model_from_config
from specsim.formats.hf_drafters import drafter_from_config
from specsim.model.catalogue import catalogue_root
from specsim.model.counts import (
    active_parameters,
    kv_bytes_per_token,
    parameters,
    state_bytes,
    weight_bytes,
)
from specsim.model.drafter_counts import (
    drafter_kv_bytes,
    drafter_parameters,
    drafter_pass_bytes,
    drafter_weight_bytes,
)
from specsim.model.serial import spec_from_dict, to_dict
from specsim.model.weights import quantized

MODELS = read_entries(catalogue_root() / "models")
DRAFTERS = read_entries(catalogue_root() / "drafters")

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 9),
    st.sampled_from([10**12, 10**30, 10**5000, -1, 0]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["re:(a+)+$", "*" * 40, "mamba", "M*E-" * 300, "FP8", "full_attention"]),
    st.lists(st.one_of(st.none(), st.integers(-2, 9), st.text(max_size=5)), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def places(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = []
    items = data.items() if isinstance(data, dict) else enumerate(data[:4])
    for name, value in items:
        found.append((*prefix, name))
        if isinstance(value, dict | list):
            found += places(value, (*prefix, name))
    return found


def damaged(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        where = places(data)
        if not where:
            break
        path = draw(st.sampled_from(where))
        holder: Any = data
        for step in path[:-1]:
            holder = holder[step]
        if draw(st.booleans()):
            holder[path[-1]] = draw(JUNK)
        else:
            del holder[path[-1]]
    return data


@st.composite
def damaged_models(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any] | None]:
    entry = draw(st.sampled_from(MODELS))
    quant = entry.get("hf_quant_config")
    if quant is not None and draw(st.booleans()):
        return entry["config"], damaged(draw, quant)
    return damaged(draw, entry["config"]), quant


@given(damaged_models())
@settings(
    max_examples=examples(1500) // 2, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_damaged_model_configs(case: tuple[dict[str, Any], dict[str, Any] | None]) -> None:
    config, quant = case
    try:
        spec = model_from_config(config, "fuzzed", quant)
    except SpecSimError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        return
    assert parameters(spec).total > 0
    assert active_parameters(spec).body <= parameters(spec).text
    assert weight_bytes(spec).total > 0
    assert kv_bytes_per_token(spec).per_token >= 0
    assert state_bytes(spec).total >= 0
    assert parameters(quantized(spec, "fp8")).total == parameters(spec).total
    assert spec_from_dict(json.loads(json.dumps(to_dict(spec)))) == spec


@st.composite
def damaged_drafters(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    entry = draw(st.sampled_from(DRAFTERS))
    kinds = st.sampled_from(["", "", "", "eagle", "eagle3", "medusa", "dflash", "nonsense"])
    return damaged(draw, entry["config"]), draw(kinds)


@given(damaged_drafters())
@settings(max_examples=examples(1000), deadline=None, derandomize=True)
def test_damaged_drafter_configs(case: tuple[dict[str, Any], str]) -> None:
    config, kind = case
    try:
        drafter = drafter_from_config(config, "fuzzed", kind)
    except SpecSimError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1000
        return
    assert drafter_parameters(drafter) > 0
    assert drafter_pass_bytes(drafter) > 0
    assert drafter_weight_bytes(drafter) > 0
    assert drafter_kv_bytes(drafter).per_token >= 0


@pytest.mark.parametrize("config", [None, 1, "x", [], ()])
def test_configs_that_are_no_objects(config: Any) -> None:
    with pytest.raises(SpecSimError):
        model_from_config(config, "x")
    with pytest.raises(SpecSimError):
        drafter_from_config(config, "x")

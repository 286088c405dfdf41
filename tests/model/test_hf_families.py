"""Every family reader against the reference implementation, on small configs of all options.

reference_small.jsonl: configs drawn at random (biases, q/k norms, tied tables, dense layers
among mixtures, latent widths, ...) with the number of parameters that transformers 5.24.0
(Apache-2.0) gives the model it builds from each. It keeps the routers' correction biases of
some families as buffers, which do not count there.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from catalogue_build import read_entries

from specsim.formats.hf_config import READERS, model_from_config
from specsim.model.catalogue import catalogue_root
from specsim.model.counts import active_parameters, parameters
from specsim.model.feedforward import MoE

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("reference_small.jsonl").read_text().splitlines()
]
COUNTED_THERE = ("gpt_oss", "ernie4_5_moe", "afmoe")  # their router biases are parameters there too


def ident(case: dict[str, Any]) -> str:
    return str(case["config"]["model_type"])


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_small_models_equal_the_reference(case: dict[str, Any]) -> None:
    spec = model_from_config(case["config"], "small")
    biases = sum(
        group.count * branch.n_experts
        for group in spec.layers
        for branch in group.branches
        if isinstance(branch, MoE) and branch.router_bias
    )
    if case["config"]["model_type"] in COUNTED_THERE:
        biases = 0
    assert parameters(spec).text == case["parameters"] + biases
    assert active_parameters(spec).total <= parameters(spec).text + spec.vocab * spec.hidden


SAVED = [
    json.loads(line)
    for line in Path(__file__).with_name("saved_configs.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", SAVED, ids=lambda case: case["model"])
def test_files_that_transformers_saved_are_the_same_models(case: dict[str, Any]) -> None:
    """saved_configs.jsonl: what transformers 5.24 (Apache-2.0) writes otherwise than the publisher
    when it saves a model: further fields, other names of kinds, fields that are gone."""
    entry = catalogue_root() / "models" / f"{case['model']}.json"
    config = json.loads(entry.read_text())["config"]
    published = parameters(model_from_config(config, "m")).text
    text = config.get("text_config", config)
    text.update(case["changed"])
    config.update(case.get("top", {}))
    for name in case["gone"]:
        del text[name]
    assert parameters(model_from_config(config, "m")).text == published


def test_every_reader_is_held_to_something() -> None:
    small = Counter(ident(case) for case in CASES)
    catalogued = {
        entry["config"].get("text_config", entry["config"])["model_type"]
        for entry in read_entries(catalogue_root() / "models")
    }
    stated = {
        json.loads(line)["config"].get("text_config", json.loads(line)["config"])["model_type"]
        for line in Path(__file__).with_name("stated_totals.jsonl").read_text().splitlines()
    }
    # 'ministral' reads as mistral does
    assert set(READERS) - set(small) - catalogued - stated == {"ministral"}
    assert min(small.values()) == 4

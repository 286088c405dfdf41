"""Objects of a config: what is declared, what is needed, and the one line for what is wrong."""

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_drafters import DraftConfig
from specsim.formats.hf_shape import QuantConfig, TextConfig


def test_a_field_fails_only_where_it_is_read() -> None:
    config = TextConfig.of({"hidden_size": 64}, "m")
    assert config.hidden_size == 64
    with pytest.raises(ModelConfigError, match=r"^m: vocab_size is missing: this architecture"):
        _ = config.vocab_size
    with pytest.raises(ModelConfigError, match=r"num_local_experts \(or num_experts, n_routed"):
        _ = config.experts


def test_null_is_missing_and_other_spellings_are_read() -> None:
    config = TextConfig.of({"n_routed_experts": 8, "hidden_size": None, "moe_k": 2}, "m")
    assert (config.experts, config.spelling("top_k"), config.top_k) == (8, "moe_k", 2)
    with pytest.raises(ModelConfigError, match="hidden_size is missing"):
        _ = config.hidden_size


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"hidden_size": 0}, "m: hidden_size = 0: must be an integer from 1 to 10000000"),
        ({"head_dim": True}, "m: head_dim = True: must be an integer from 1 to 65536"),
        ({"layer_types": "full"}, "m: layer_types = 'full': must be a list of strings"),
        ({"layer_types": ["a", 3]}, "m: layer_types = ['a', 3]: must be a list of strings"),
        ({"mlp_only_layers": [1, True]}, "m: mlp_only_layers = [1, True]: must be a list of int"),
        ({"mlp_bias": 1}, "m: mlp_bias = 1: must be true or false"),
        ({"transformer_layer_config": {"head_dim": 0}},
         "m.transformer_layer_config: head_dim = 0: must be an integer from 1"),
        ({"dflash_config": 3}, "m: dflash_config = 3: must be an object"),
        ({"text_config": [1]}, "m: text_config = [1]: must be an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(fields: dict[str, object], line: str) -> None:
    config = DraftConfig.of({**fields, "vocab_size": 9}, "m")
    assert config.vocab_size == 9  # what nobody reads does no harm
    with pytest.raises(ModelConfigError) as caught:
        getattr(config, next(iter(fields)))
    assert str(caught.value).startswith(line)


def test_an_odd_field_of_another_architecture_does_no_harm() -> None:
    config = TextConfig.of({"num_experts": 0, "moe_intermediate_size": [1, 2]}, "m")
    assert config.shared_experts == 0
    with pytest.raises(ModelConfigError, match="m: num_experts = 0: must be an integer from 1"):
        _ = config.experts


def test_inner_objects_know_their_place() -> None:
    raw = {"config_groups": {"g0": {"weights": {"num_bits": 3}}}}
    group = QuantConfig.of(raw, "m.quantization_config").config_groups["g0"]
    assert str(group.weights.fail("num_bits", "is odd")) == (
        "m.quantization_config.config_groups.g0.weights: num_bits = 3: is odd"
    )


def test_a_default_holds_where_the_file_does_not_mention_the_field() -> None:
    config = TextConfig.of({"sliding_window": None}, "m")
    assert config.with_default("sliding_window", 4096).sliding_window is None
    assert config.with_default("max_window_layers", 3).max_window_layers == 3

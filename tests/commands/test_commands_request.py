"""From options to a system: what is inferred, what is kept, and what the user is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.api.deployment import TABLE_NOTE, DeploymentRequest, build_request
from specsim.api.requests import build_workload
from specsim.errors import FormatError, UsageError
from specsim.formats.load_model import load_drafter, load_model
from specsim.latency.engine import find_engine
from specsim.methods.base import find_method, method_of
from specsim.methods.registry import method_name
from specsim.methods.resolve import default_method, named_drafter, resolve_setup
from specsim.model.catalogue import find_model
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.values import parse_concurrency, parse_numbers, parse_rates

QWEN, LLAMA = "qwen3.6-27b", "llama-3.1-8b"
VLLM = find_engine("vllm")


def build(model: str, **options: object) -> DeploymentRequest:
    return build_request(Options(model=model, **options))  # type: ignore[arg-type]


# --- methods and drafters -----------------------------------------------------------------------


def test_the_method_is_what_the_model_ships_or_the_catalogue_has() -> None:
    assert default_method(find_model(QWEN), VLLM) == "mtp"
    assert default_method(find_model(LLAMA), VLLM) == "eagle3"
    assert default_method(find_model("gemma-4-31b"), VLLM) == "draft-model"
    # A drafter that is only assumed is never taken unasked.
    assert default_method(find_model("qwen3-1.7b"), VLLM) == "none"
    # An engine without the method is not asked to run it.
    assert default_method(find_model(QWEN), find_engine("transformers")) == "none"


@pytest.mark.parametrize(
    ("text", "name"),
    [("MTP", "mtp"), ("qwen3_5_mtp", "mtp"), ("nextn", "mtp"), ("draft_model", "draft-model"),
     ("standalone", "draft-model"), ("EAGLE-3", "eagle3"), ("eagle2", "eagle"),
     ("prompt-lookup", "ngram"), ("off", "none"), ("PLD", "ngram"), ("HASS", "eagle"),
     ("draft_target", "draft-model"), ("MTP_ONE_MODEL", "mtp"), ("Medusa-2", "medusa"),
     ("LayerSkip", "early-exit"), ("eagle3.1", "eagle3")],
)
def test_methods_as_engines_spell_them(text: str, name: str) -> None:
    assert method_name(text) == name


def test_a_vocabulary_padded_otherwise_is_refused() -> None:
    """As vLLM and SGLang do: one tokenizer, but 151,936 rows up to 3B and 152,064 above."""
    with pytest.raises(UsageError, match="padding included: name one of 152064 tokens"):
        build("qwen2.5-32b", method="draft-model", draft="qwen2.5-0.5b", acceptance_length=2.0)


def test_a_kind_of_drafter_names_its_method() -> None:
    for word, method in (("p-eagle", "eagle3"), ("dflash2", "dflash")):
        with pytest.raises(UsageError, match=f"such drafters run under '{method}'"):
            method_name(word)


def test_a_drafter_brings_its_method() -> None:
    setup = build(LLAMA, draft="EAGLE3-Llama-3.1-8B", acceptance_length=2.0).system.setup
    assert (setup.method, setup.k) == ("eagle3", 3)
    assert method_of(named_drafter("Medusa-Vicuna-7B-v1.3")).name == "medusa"
    assert method_of(named_drafter("qwen3-0.6b")).name == "draft-model"
    p_eagle = build("qwen3-8b", draft="P-EAGLE-Qwen3-8B", acceptance_length=2.0).system.setup
    assert (p_eagle.method, p_eagle.parallel_drafting) == ("eagle3", True)


def test_a_model_of_the_catalogue_can_draft() -> None:
    system = build("qwen3-8b", method="draft-model", draft="Qwen/Qwen3-0.6B", k=4,
                   acceptance_length=3.0).system
    drafter = system.setup.drafter
    assert drafter is not None and drafter.kind == "model"
    assert system.memory.drafter_bytes == 596_049_920 * 2


def test_drafters_from_files(tmp_path: Path) -> None:
    eagle3 = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096,
              "vocab_size": 128256, "draft_vocab_size": 32000, "num_hidden_layers": 1,
              "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
              "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(eagle3))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        setup = build(LLAMA, draft=name, acceptance_length=2.0).system.setup
        assert setup.method == "eagle3"
        assert setup.drafter is not None and setup.drafter.draft_vocab == 32_000
    assert load_drafter("EAGLE3-Llama-3.1-8B", find_model(LLAMA)) is None  # a name
    with pytest.raises(UsageError, match="another vocabulary"):
        build("qwen3-8b", draft=str(tmp_path), acceptance_length=2.0)


def test_a_shared_head_is_read_as_the_target_stores_it() -> None:
    setup = build(LLAMA, weights="fp8", method="eagle", acceptance_length=2.0).system.setup
    assert setup.drafter is not None
    assert setup.drafter.head_weight.name == "bf16"  # FP8 checkpoints keep the head in 16 bits


def test_assumed_drafters_are_said_to_be_assumed() -> None:
    request = build("qwen3-1.7b", method="eagle3", acceptance_length=2.0)
    assert any(text.startswith("drafter: assumed shape") for text in request.warnings)


def test_natural_draft_lengths() -> None:
    assert find_method("mtp").default_k(find_model(QWEN).mtp) == 3
    assert find_method("ngram").default_k(None) == 3
    assert find_method("dflash").default_k(named_drafter("DFlash-Qwen3.6-27B")) == 15
    assert find_method("medusa").default_k(named_drafter("Medusa-Vicuna-7B-v1.3")) == 5


def test_multiples_of_physical_mtp_layers() -> None:
    spec = find_model(QWEN)
    assert spec.mtp is not None
    three = replace(spec, mtp=replace(spec.mtp, n_predict=3))
    assert resolve_setup(three, VLLM, "mtp").k == 3
    assert resolve_setup(three, VLLM, "mtp", 6).k == 6
    assert resolve_setup(three, VLLM, "mtp", 2).k == 2  # fewer than there are
    with pytest.raises(UsageError, match="use 3 or 6"):
        resolve_setup(three, VLLM, "mtp", 4)
    assert resolve_setup(three, find_engine("sglang"), "mtp", 4).k == 4


# --- acceptance ---------------------------------------------------------------------------------


def test_rates_by_position_give_the_draft_length() -> None:
    system = build(QWEN, acceptance="0.9,0.8,0.5,0.5").system
    assert system.setup.k == 4
    assert system.acceptance is not None
    assert system.acceptance.unconditional == (0.9, 0.8, 0.5, 0.5)
    conditional = build(QWEN, acceptance_conditional="0.9,0.5").system
    assert conditional.acceptance is not None and conditional.setup.k == 2
    assert conditional.acceptance.unconditional == pytest.approx((0.9, 0.45))


@pytest.mark.parametrize(
    ("options", "length"),
    [({"acceptance_rate": 0.5}, 1.875), ({"acceptance_mean": 0.73}, 3.19),
     ({"acceptance_length": 2.5}, 2.5), ({"acceptance": "1,1,1"}, 4.0),
     ({"acceptance_rate": 0.0}, 1.0), ({"acceptance_rate": 1.0}, 4.0)],
)
def test_forms_of_acceptance(options: dict[str, object], length: float) -> None:
    system = build(QWEN, **options).system
    assert system.acceptance is not None
    assert system.acceptance.expected_tokens(3) == pytest.approx(length)


def test_measured_acceptance_names_its_source_and_its_spread() -> None:
    request = build(QWEN)
    acceptance = request.system.acceptance
    assert acceptance is not None and "MindRouter TESTING.md" in acceptance.source
    assert any("depends on the text" in text for text in request.warnings)


def test_without_a_measurement_plain_decoding_is_predicted_and_said() -> None:
    request = build("qwen2.5-7b")
    assert not request.system.speculative and request.unknown is not None
    assert any("whether it pays is open" in text for text in request.warnings)
    with pytest.raises(UsageError, match=r"no acceptance of eagle3 for Qwen2\.5-7B"):
        build("qwen2.5-7b", method="eagle3")
    with pytest.raises(UsageError, match="catalogue has no drafter"):
        build("qwen2.5-7b", acceptance_length=2.0)


def test_lookups_that_seldom_draft() -> None:
    system = build(LLAMA, method="ngram", acceptance_length=3.0, k=4, draft_share=0.5).system
    assert system.tokens_per_step == pytest.approx(0.5 * 3 + 0.5 * 1)
    assert system.setup.draft_share == 0.5


# --- vLLM's JSON --------------------------------------------------------------------------------


def test_vllms_json_stands_instead_of_the_flags() -> None:
    config = '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2, "model": "x"}'
    setup = build(QWEN, speculative_config=config, acceptance_length=2.0).system.setup
    assert (setup.method, setup.k) == ("mtp", 2)
    assert setup.drafter is find_model(QWEN).mtp  # vLLM takes the target's own head
    assistant = (
        '{"method": "mtp", "model": "google/gemma-4-31B-it-assistant", '
        '"num_speculative_tokens": 4}'
    )
    setup = build("gemma-4-31b", speculative_config=assistant, acceptance_length=3).system.setup
    assert setup.drafter is not None and setup.drafter.kind == "gemma-assistant"


def test_a_target_named_as_its_own_draft_model_is_its_own_head() -> None:
    """vLLM makes DeepSeek's MTP head of it; a target without a head is a draft model as any."""
    itself = f'{{"model": "{QWEN}", "num_speculative_tokens": 1}}'
    setup = build(QWEN, speculative_config=itself, acceptance_length=1.8).system.setup
    assert (setup.method, setup.k) == ("mtp", 1)
    assert setup.drafter is find_model(QWEN).mtp
    plain = '{"model": "smollm2-135m", "num_speculative_tokens": 1}'
    setup = build("smollm2-135m", speculative_config=plain, acceptance_length=1.8).system.setup
    assert setup.method == "draft-model"


def test_vllms_synthetic_length_is_its_own_schedule() -> None:
    config = ('{"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": '
              '"synthetic", "synthetic_acceptance_length": 2.5}')
    acceptance = build(QWEN, speculative_config=config).system.acceptance
    assert acceptance is not None
    assert acceptance.unconditional == (1.0, 0.5, 0.0)


def test_what_is_not_modelled_is_said() -> None:
    config = ('{"method": "mtp", "draft_lm_head_quantization": "fp8", '
              '"num_speculative_tokens_per_batch_size": [[1, 8, 3]]}')
    warnings = build(QWEN, speculative_config=config, acceptance_length=2.0).warnings
    assert any(text == TABLE_NOTE for text in warnings)
    assert any("not modelled: draft_lm_head_quantization" in text for text in warnings)


# --- everything else ----------------------------------------------------------------------------


def test_workloads_and_lengths() -> None:
    assert build_workload(Options(model="x", workload="rag")).input_len == 8192
    mixed = build_workload(Options(model="x", workload="rag", output_len=7, cached_share=0.5))
    assert (mixed.input_len, mixed.output_len, mixed.cached_share) == (8192, 7, 0.5)
    assert mixed.name == "custom"
    assert build_workload(Options(model="x")).name == "chat"


def test_routing_changes_what_a_batch_reads() -> None:
    def step_s(**options: object) -> float:
        system = build("qwen3-30b-a3b", **options).system
        return system.latency.seconds(system.decode_shape(8, 1024))

    own, even = step_s(), step_s(routing="uniform")
    assert own < step_s(routing="0.9,2.5") < even
    assert step_s(fidelity="datasheet", routing="softmax") < step_s(fidelity="datasheet")


def test_warnings_about_devices_and_positions() -> None:
    assert any("assumed" in text for text in build(LLAMA, gpu="a100-80gb").warnings)
    assert not any("kernel efficiencies" in text for text in build(LLAMA).warnings)
    assert not any("kernel" in text
                   for text in build(LLAMA, gpu="a100-80gb", fidelity="datasheet").warnings)
    assert any("rope scaling" in text
               for text in build("llama-2-7b", input_len=8000, acceptance_length=2.0,
                                 method="ngram").warnings)
    assert any("more than the 8 of one node" in text
               for text in build("deepseek-v3", tp=16, acceptance_length=1.8).warnings)


def test_numbers_in_lists() -> None:
    assert parse_numbers("1, 2,3 ", "x") == [1.0, 2.0, 3.0]
    assert parse_concurrency("16,1,1e1,16") == [1, 10, 16]
    assert parse_concurrency(None, (2, 3)) == [2, 3]
    assert parse_rates("2,0.5") == [0.5, 2.0]
    with pytest.raises(UsageError, match="finite"):
        parse_numbers("1e400", "x", whole=False)


def test_models_by_name_and_path(tmp_path: Path) -> None:
    assert load_model("Qwen/Qwen3.6-27B-FP8").weights == "fp8_block"
    for odd in ("x" * 5000, "~nobody/none", "a\x00b"):
        with pytest.raises(Exception, match="catalogue"):
            load_model(odd)
    file = tmp_path / "weights.bin"
    file.write_bytes(b"x")
    with pytest.raises(FormatError, match=r"config\.json"):
        load_model(str(file))

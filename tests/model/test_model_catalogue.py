"""The bundled catalogue: every entry loads and is current; names as people type them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue_build import (
    derive_drafter,
    derive_model,
    index_lines,
    read_entries,
)
from thinned import some

from specsim.errors import ModelConfigError, UsageError
from specsim.methods.eagle import Eagle3Method
from specsim.methods.resolve import default_drafter
from specsim.model.catalogue import (
    catalogue_root,
    copies_of,
    find_drafter,
    find_model,
    has_drafter,
    has_model,
    key,
    list_drafters,
    list_models,
    same_shapes,
    served_name,
    variant,
)
from specsim.model.counts import parameters, weight_bytes
from specsim.model.drafter_counts import drafter_parameters
from specsim.model.feedforward import MoE
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.part import BF16
from specsim.model.serial import drafter_from_dict, spec_from_dict
from specsim.model.spec import ModelSpec
from specsim.model.weights import FP8, FP8_BLOCK, NVFP4, NVFP4_W4A16

MODELS = read_entries(catalogue_root() / "models")
DRAFTERS = read_entries(catalogue_root() / "drafters")


def test_size_of_the_catalogue() -> None:
    assert len(list_models()) >= 150
    assert len(list_drafters()) >= 16
    assert sum(entry.has_mtp for entry in list_models()) >= 30


@pytest.mark.parametrize("entry", some(MODELS, 40), ids=lambda entry: entry["name"])
def test_model_entry_is_current(entry: dict[str, Any]) -> None:
    """`python validation/scripts/catalogue_build.py` was run after the last change."""
    spec = spec_from_dict(entry["spec"])
    assert spec == derive_model(entry)
    assert spec == find_model(entry["name"])
    assert entry["source"]
    assert spec.max_position > 0
    assert weight_bytes(spec).total > 0


@pytest.mark.parametrize("entry", DRAFTERS, ids=lambda entry: entry["name"])
def test_drafter_entry_is_current(entry: dict[str, Any]) -> None:
    targets = {name: find_model(name) for name in entry["targets"]}
    drafter = drafter_from_dict(entry["spec"])
    assert drafter == derive_drafter(entry, targets)
    assert drafter == find_drafter(entry["name"])
    assert entry["source"]
    assert drafter.target == entry["targets"][0]
    assert drafter_parameters(drafter) > 0


def test_index_is_current() -> None:
    stored = json.loads((catalogue_root() / "index.json").read_text(encoding="utf-8"))
    assert stored == index_lines(MODELS, DRAFTERS)


@pytest.mark.parametrize("refused", [False, True])
def test_what_is_served_widely_is_known(refused: bool) -> None:
    """By its repository; what no reader models is refused with the reason, not as unknown."""
    lines = Path(__file__).with_name("served_ids.txt").read_text().splitlines()[1:]
    ids = [line.removeprefix("!") for line in lines if line.startswith("!") == refused]
    assert len(ids) > (5 if refused else 300)
    for name in ids:
        assert has_model(name) is not refused, name
        if refused:
            with pytest.raises(ModelConfigError, match="is not in the catalogue: "):
                find_model(name)


def test_names_and_aliases_are_unambiguous() -> None:
    for entries in (MODELS, DRAFTERS):
        seen: dict[str, str] = {}
        for entry in entries:
            for name in (entry["name"], *entry["aliases"]):
                owner = seen.setdefault(key(name), entry["name"])
                assert owner == entry["name"], f"{name} names both {owner} and {entry['name']}"


def test_quantised_forms_have_the_shapes_of_their_base() -> None:
    for entry in list_models():
        if entry.base:
            spec, base = find_model(entry.name), find_model(entry.base)
            assert same_shapes(spec, base), entry.name
            assert parameters(spec).text == parameters(base).text
            assert weight_bytes(spec).text < weight_bytes(variant(base, "bf16")).text


@pytest.mark.parametrize(
    ("typed", "name", "weights"),
    [
        ("qwen3.6-27b", "Qwen3.6-27B", "bf16"),
        ("Qwen/Qwen3.6-27B-FP8", "Qwen3.6-27B-FP8", "fp8_block"),
        ("QWEN3.6-35B", "Qwen3.6-35B-A3B", "bf16"),
        ("qwen3.5-122b", "Qwen3.5-122B-A10B", "bf16"),
        ("gemma-4-31b", "Gemma-4-31B", "bf16"),
        ("google/gemma-4-31B-it", "Gemma-4-31B", "bf16"),
        ("nemotron-3-super", "Nemotron-3-Super-120B-A12B", "bf16"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "Nemotron-3-Super-120B-A12B", "bf16"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "Nemotron-3-Super-120B-A12B-FP8", "fp8"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B", "bf16"),
        ("Meta-Llama-3.1-8B", "Llama-3.1-8B", "bf16"),
        ("Llama3.1-8B-Instruct", "Llama-3.1-8B", "bf16"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "Llama-3-70B", "bf16"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3", "bf16"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "Mistral-7B-v0.1", "bf16"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen3-235B-A22B-Instruct-2507", "bf16"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1", "fp8_block"),
        ("openai/gpt-oss-120b", "gpt-oss-120b", "mxfp4"),
        ("lmsys/vicuna-7b-v1.5", "Vicuna-7B-v1.3", "bf16"),
        (" qwen3_8b ", "Qwen3-8B", "bf16"),
        ("Qwen3-Coder-Next (80B-A3B)", "Qwen3-Coder-Next", "bf16"),
        ("mistral-small-2409", "Mistral-Small-Instruct-2409", "bf16"),
        ("huggyllama/llama-7b", "LLaMA-7B", "bf16"),
        ("Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "Qwen2.5-VL-7B-Instruct", "int4"),
        ("allenai/Olmo-3-7B-Think", "OLMo-3-7B", "bf16"),
        ("MiniMaxAI/MiniMax-M1-80k", "MiniMax-Text-01", "bf16"),
        # known without the ending: the usual rules, which the notes say
        ("Qwen/Qwen3-14B-FP8", "Qwen3-14B", "fp8_block"),
        ("RedHatAI/Qwen3-14B-FP8-dynamic", "Qwen3-14B", "fp8"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen2.5-72B", "int4"),
    ],
)
def test_names_as_people_type_them(typed: str, name: str, weights: str) -> None:
    spec = find_model(typed)
    assert (spec.name, spec.weights) == (name, weights)


def test_a_format_made_by_rule_says_so() -> None:
    assert "usual rules" in " ".join(find_model("Qwen3-14B-FP8").notes)
    assert "usual rules" not in " ".join(find_model("Qwen3-32B-FP8").notes)


def test_windows_tell_mistral_versions_apart() -> None:
    first = find_model("Mistral-7B-v0.1").layers[0].mixer
    third = find_model("Mistral-7B").layers[0].mixer
    assert isinstance(first, Attention)
    assert isinstance(third, Attention)
    assert (first.window, third.window) == (4096, 0)


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("qwen3.6-28b", "Qwen3.6-27B"),
        ("lama-3.1-8b", "Llama-3.1-8B"),
        ("gptoss-20b", "gpt-oss-20b"),
    ],
)
def test_unknown_names_get_near_matches(typed: str, near: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        find_model(typed)
    message = str(caught.value)
    assert typed in message
    assert near in message
    assert "\n" not in message


def test_names_that_are_no_names() -> None:
    for typed in ("", "/", "-", "x" * 100_000, "\x00", "../../etc/passwd"):
        assert not has_model(typed)
        with pytest.raises(ModelConfigError) as caught:
            find_model(typed)
        assert len(str(caught.value)) < 500


def test_drafters_by_published_names() -> None:
    for typed, name in (
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "EAGLE3-Llama-3.1-8B"),
        ("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", "EAGLE3-Llama-3.1-8B"),
        (
            "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
            "Llama-3.1-8B-Instruct-speculator.eagle3",
        ),
        ("Tengyunw/qwen3_8b_eagle3", "EAGLE3-Qwen3-8B"),
        ("google/gemma-4-31B-it-assistant", "Gemma-4-31B-it-assistant"),
    ):
        assert find_drafter(typed).name == name
    assert not has_drafter("Llama-3.1-8B")
    with pytest.raises(ModelConfigError, match="EAGLE3-Qwen3-8B"):
        find_drafter("eagle3-qwen3-9b")


@pytest.mark.parametrize(("typed", "name", "weights", "cache"), [
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "Llama-3.3-70B-Instruct", "int4", "bf16"),
    ("RedHatAI/Qwen3-8B-quantized.w8a8", "Qwen3-8B", "int8", "bf16"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen2.5-7B", "int8_w8a16", "bf16"),
    ("amd/Mixtral-8x7B-Instruct-v0.1-FP8-KV", "Mixtral-8x7B", "fp8", "fp8"),
    ("amd/Llama-2-70b-chat-hf-MXFP4", "Llama-2-70B", "mxfp4_w4a4", "bf16"),
    ("gpt-oss-20b-mxfp4", "gpt-oss-20b", "mxfp4", "bf16"),
    ("llama3.1:8b", "Llama-3.1-8B", "bf16", "bf16"), ("gemma3:27b", "Gemma-3-27B", "bf16", "bf16"),
])
def test_publishers_endings_say_the_format(
    typed: str, name: str, weights: str, cache: str
) -> None:
    found = find_model(typed)
    assert same_shapes(found, find_model(name))
    assert (found.weights, found.default_kv_dtype) == (weights, cache)


def test_variant_prefers_a_catalogued_checkpoint() -> None:
    spec = find_model("Qwen3.6-27B")
    assert variant(spec, "fp8").name == "Qwen3.6-27B-FP8"
    assert variant(spec, "nvfp4").name == "Qwen3.6-27B-NVFP4"
    assert variant(spec, "bf16") is spec
    assert variant(find_model("Qwen3.6-27B-FP8"), "bf16").name == "Qwen3.6-27B"
    assert variant(find_model("DeepSeek-V3"), "fp8").weights == "fp8_block"
    assert variant(find_model("DeepSeek-V3"), "bf16").weights == "bf16"
    assert variant(find_model("Qwen3-8B"), "awq").weights == "int4"
    with pytest.raises(UsageError, match="fp9"):
        variant(spec, "fp9")


def test_variant_of_a_file_that_only_shares_a_name() -> None:
    other = find_model("Qwen3-8B")
    impostor = ModelSpec(
        name="Qwen3.6-27B",
        family="qwen3",
        hidden=other.hidden,
        vocab=other.vocab,
        layers=other.layers,
    )
    found = variant(impostor, "fp8")
    assert found.hidden == 4096
    assert found.weights == "fp8"


def test_a_weight_format_keeps_the_cache_dtype_of_the_model_it_was_asked_of() -> None:
    assert variant(find_model("Qwen3-32B"), "fp8").default_kv_dtype == "bf16"
    for typed in (
        "RedHatAI/Qwen3-32B-FP8-dynamic",
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic",
    ):
        spec = find_model(typed)
        assert (spec.weights, spec.default_kv_dtype) == ("fp8", "bf16")
    # A checkpoint named outright has the cache that its config asks for.
    assert find_model("nvidia/Llama-3.3-70B-Instruct-FP8").default_kv_dtype == "fp8"


def test_a_copy_is_known_by_its_shapes_whatever_its_name() -> None:
    for name in ("Qwen3-32B", "Qwen3-32B-FP8", "Qwen3-8B", "gpt-oss-120b", "Gemma-4-31B-NVFP4"):
        spec = find_model(name)
        copy = replace(spec, name="snapshot", source="file snapshot", mtp=None)
        base = next(e.base or e.name for e in list_models() if e.name == spec.name)
        assert copies_of(copy) == (base,)
        assert default_drafter(copy, "eagle3", assume=False) == default_drafter(
            find_model(base), "eagle3", assume=False
        )
    # Generations with the same shapes are all named; another tower or context is another model.
    assert set(copies_of(replace(find_model("Qwen3.6-27B"), name="mine"))) == {
        "Qwen3.5-27B", "Qwen3.6-27B", "Qwen3.8-27B",
    }
    vision = replace(find_model("Qwen3-VL-8B-Instruct"), name="mine")
    assert copies_of(vision) == ("Qwen3-VL-8B-Instruct",)
    assert copies_of(replace(find_model("Qwen3-8B"), name="mine", hidden=4032)) == ()


def test_default_drafters() -> None:
    def name(model: str, method: str) -> str | None:
        drafter = default_drafter(find_model(model), method, assume=False)
        return drafter.name if drafter else None

    assert name("Qwen3.6-27B", "mtp") == "Qwen3.6-27B-MTP"
    assert name("Gemma-4-31B", "mtp") == "Gemma-4-31B-it-assistant"
    assert name("Gemma-4-31B-NVFP4", "draft-model") == "Gemma-4-31B-it-assistant"
    assert name("Qwen3.6-27B-FP8", "dflash") == "DFlash-Qwen3.6-27B"
    assert name("Llama-3.3-70B", "eagle3") == "EAGLE3-Llama-3.1-70B"
    assert name("Qwen3-8B", "mtp") is None
    assert name("Qwen3-30B-A3B", "eagle3") is None


def test_assumed_drafters_say_that_they_are() -> None:
    spec = find_model("Qwen3-30B-A3B")
    drafter = default_drafter(spec, "eagle3")
    assert drafter is not None
    assert drafter.source == "assumed"
    assert "assumed" in drafter.notes[0]
    # fc 3h*h; q, k, v of 2h; o; MLP six times as wide; head of 32000; four norms
    h = 2048
    own = 3 * h * h + 2 * h * 4096 + 4 * h * 512 + 4096 * h + 18 * h * h + 32_000 * h + 4 * h
    assert drafter_parameters(drafter) == own
    assert default_drafter(spec, "ngram") is None
    # the assumed shape of a dense target is that of the published one
    llama = find_model("Llama-3.1-8B")
    published = find_drafter("EAGLE3-Llama-3.1-8B")
    assumed = Eagle3Method().assumed_drafter(llama)
    assert drafter_parameters(assumed) == drafter_parameters(published)


def test_shared_heads_are_read_in_the_targets_format() -> None:
    spec = find_model("Qwen3.6-27B-NVFP4")
    drafter = default_drafter(spec, "dflash")
    assert drafter is not None
    assert drafter.head_weight == spec.head_weight == NVFP4_W4A16
    assert spec.mtp is not None
    assert spec.mtp.head_weight == NVFP4_W4A16


def test_formats_of_published_checkpoints() -> None:
    """Which parts each checkpoint quantises, from the module lists of the files."""
    fp8 = find_model("Qwen3.6-27B-FP8")
    assert {group.mixer.weight for group in fp8.layers if group.mixer} == {FP8_BLOCK}
    assert fp8.head_weight == BF16
    assert fp8.mtp is not None
    assert fp8.mtp.fc_weight == BF16
    assert fp8.mtp.layers[0].ffn is not None

    nv = find_model("Qwen3.6-27B-NVFP4")
    assert {group.mixer.weight for group in nv.layers if group.mixer} == {FP8}
    assert {getattr(group.ffn, "weight", None) for group in nv.layers} == {NVFP4_W4A16}
    assert nv.default_kv_dtype == "fp8"

    moe = find_model("Qwen3.5-122B-A10B-NVFP4").layers[0].ffn
    assert isinstance(moe, MoE)
    assert (moe.weight, moe.shared_weight) == (NVFP4, BF16)

    gemma = find_model("Gemma-4-31B-NVFP4")
    assert {group.mixer.weight for group in gemma.layers if group.mixer} == {BF16}

    nano = find_model("Nemotron-3-Nano-30B-A3B-NVFP4")
    mixers = [(group.count, group.mixer.weight) for group in nano.layers if group.mixer]
    # 6 attention layers and the 6 Mamba layers before them stay in 16 bits
    assert sorted(mixers, key=str) == sorted([(17, NVFP4), (6, BF16), (6, BF16)], key=str)

    v32 = find_model("DeepSeek-V3.2-NVFP4").layers[0].mixer
    assert isinstance(v32, LatentAttention)
    assert (v32.weight, v32.o_weight) == (BF16, NVFP4)


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        ("EAGLE3-Qwen3-8B", "AngelSlim/Qwen3-8B_eagle3"),
        ("qwen3-14b", "Qwen3-14B"),  # no source states its repository
        ("deepseek-v3.1", "deepseek-v3.1"),  # shapes of DeepSeek-V3, another checkpoint
        ("mistral-7b-v0.1-fp8", "mistral-7b-v0.1-fp8"),  # no checkpoint of that format is listed
        ("my/folder", "my/folder"),
    ],
)
def test_a_server_loads_the_repository(name: str, served: str) -> None:
    assert served_name(name) == served


def test_repositories_are_of_what_they_stand_at() -> None:
    known = [entry for entry in (*list_models(), *list_drafters())
             if entry.hf_id]
    assert len({entry.hf_id for entry in known}) == len(known) > 90
    for entry in known:
        assert re.fullmatch(r"[\w-]+/[\w.-]+", entry.hf_id)
        # The repository's own name finds the entry, so that what a command prints can be asked of.
        keys = find_model if entry.kind == "model" else find_drafter
        assert keys(entry.hf_id).name == entry.name

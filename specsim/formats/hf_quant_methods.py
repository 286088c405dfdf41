"""Quantisation configs of the libraries that quantise by themselves: GPTQ and AWQ, auto-round,
bitsandbytes, HQQ, torchao and AMD Quark.

What each field means follows the readers of vLLM and transformers. lm_head is no linear to them:
it stays in 16 bits unless a config says so.
"""

from collections.abc import Mapping

from specsim.errors import shown
from specsim.formats.hf_quant_rules import (
    NameSet,
    Quantisation,
    by_rules,
    kv_dtype,
    ordered_rules,
    whole_numbers,
)
from specsim.formats.hf_shape import Bits, QuantConfig, QuarkLayer
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import (
    FP8,
    FP8_W8A16,
    INT8,
    INT8_W8A16,
    MXFP4,
    MXFP4_W4A4,
    NVFP4,
    NVFP4_W4A16,
)

ZERO_AND_SCALE_BYTES = 4.0  # of a group, both in 16 bits
NF4_BLOCK = 64  # weights under one fp32 scale
NF4_SCALES = 256  # scales that a second quantisation to 8 bits joins
_UNTIMED = "kernels were not timed: priced as the weight-only kernels of GPTQ and AWQ"


def gptq_or_awq(section: QuantConfig) -> Quantisation:
    """One width, with GPTQModel's `dynamic`: the first pattern that matches a module's name from
    its start decides; '-:' leaves the module in 16 bits, else its entry's bits hold."""
    default = _bits(section, section.bits, section.group_size, section.spelling("bits"))
    pairs = (
        (
            f"re:{pattern.removeprefix('-:').removeprefix('+:')}",
            BF16 if pattern.startswith("-:") else _override(section, entry),
        )
        for pattern, entry in section.dynamic.items()
    )
    rules = ordered_rules(pairs, f"{section.where}.dynamic")
    inside = [name for names in section.modules_in_block_to_quantize for name in names]
    if inside:
        rules.append((NameSet(inside, section.where), default))
    return by_rules(section, rules, BF16 if inside else default, head=section.lm_head)


def auto_round(section: QuantConfig) -> Quantisation:
    """One width for the blocks, `extra_config` for single modules (names, or regular expressions
    that are searched for)."""
    if section.data_type != "int" or section.act_bits < 16:
        raise section.fail("data_type", "only weight-only 'int' is modelled")
    default = _bits(section, section.bits, section.group_size, "bits")
    pairs = (
        (_searched(name), _override(section, entry))
        for name, entry in section.extra_config.items()
    )
    rules = ordered_rules(pairs, f"{section.where}.extra_config")
    blocks = section.block_name_to_quantize
    names = blocks.split(",") if isinstance(blocks, str) else blocks
    head = any("lm_head" in names for names, _ in rules)
    if not names:
        return by_rules(section, rules, default, head=head)
    rules.append((NameSet([name.strip() for name in names], section.where), default))
    return by_rules(section, rules, BF16, head=head)


def _searched(name: str) -> str:
    """auto-round searches a name for a regular expression; a plain name is one without marks."""
    if any(mark in name for mark in "*+?^$()[]{}|\\"):
        return f"re:.*{name.removeprefix('.*').removeprefix('^')}"
    return name


def bitsandbytes(section: QuantConfig) -> Quantisation:
    """NF4 or FP4 with an fp32 scale per 64 weights (quantised to 8 bits once more under double
    quantisation; arXiv 2305.14314), or LLM.int8() (arXiv 2208.07339)."""
    if section.load_in_8bit:
        note = "bitsandbytes kernels were not timed: priced as products in 8-bit integers"
        return by_rules(section, (), INT8, head=False, notes=(note,))
    if not section.load_in_4bit:
        raise section.fail("load_in_4bit", "or load_in_8bit must be true")
    scale = 4.0 / NF4_BLOCK
    if section.bnb_4bit_use_double_quant:
        scale = (1.0 + 4.0 / NF4_SCALES) / NF4_BLOCK
    fmt = WeightFormat("int4", 0.5 + scale, "bf16")
    return by_rules(section, (), fmt, head=False, notes=(f"bitsandbytes {_UNTIMED}",))


def hqq(section: QuantConfig) -> Quantisation:
    """One width for all linears, or one for each kind named ('self_attn.q_proj')."""
    config = section.quant_config
    notes = (f"HQQ {_UNTIMED}",)
    if "weight_quant_params" in config:
        return by_rules(section, (), _hqq(section, config), head=False, notes=notes)
    rules = ordered_rules(
        (
            (name, _hqq(section, _object(section, "quant_config", one)))
            for name, one in config.items()
        ),
        section.where,
    )
    if not rules:
        raise section.missing("quant_config")
    return by_rules(section, rules, BF16, head=False, notes=notes)


def _hqq(section: QuantConfig, config: Mapping[str, object]) -> WeightFormat:
    params = _object(section, "quant_config", config.get("weight_quant_params"))
    bits, group = params.get("nbits"), params.get("group_size")
    size = group if isinstance(group, int) else 0
    return _bits(section, bits, size, "quant_config", ZERO_AND_SCALE_BYTES)


_TORCHAO = {
    "int8weightonly": INT8_W8A16,
    "int8dynamicactivationint8weight": INT8,
    "float8weightonly": FP8_W8A16,
    "float8dynamicactivationfloat8weight": FP8,
    "float8staticactivationfloat8weight": FP8,
    "nvfp4dynamicactivationnvfp4weight": NVFP4,
    "nvfp4weightonly": NVFP4_W4A16,
}


def torchao(section: QuantConfig) -> Quantisation:
    """One config for all linears, or a config for each name (`ModuleFqnToConfig`)."""
    kind = section.quant_type
    if isinstance(kind, str):
        given: object = {"_type": kind, "_data": section.quant_type_kwargs}
    else:
        given = kind.get("default", kind)
    config = _object(section, "quant_type", given)
    data = _object(section, "quant_type", config.get("_data", {}))
    named = data.get("module_fqn_to_config", data.get("fqn_to_config"))
    if named is None:
        return by_rules(section, (), _torchao(section, config), head=False)
    each = dict(_object(section, "quant_type", named))
    default = _torchao(section, each.pop("_default", None))
    rules = ordered_rules(
        ((name, _torchao(section, one)) for name, one in each.items()), section.where
    )
    head = any("lm_head" in names for names, _ in rules)
    return by_rules(section, rules, default, head=head)


def _torchao(section: QuantConfig, given: object) -> WeightFormat:
    if given is None:
        return BF16
    config = _object(section, "quant_type", given)
    name = str(config.get("_type", "")).replace("_", "").lower().removesuffix("config")
    if name == "int4weightonly":
        group = _object(section, "quant_type", config.get("_data", {})).get("group_size", 128)
        size = group if isinstance(group, int) else 128
        return _bits(section, 4, size, "quant_type", ZERO_AND_SCALE_BYTES)
    if name not in _TORCHAO:
        known = ", ".join(["int4weightonly", *_TORCHAO])
        raise section.fail("quant_type", f"has {shown(name)}, which is not known; known: {known}")
    return _TORCHAO[name]


def quark(section: QuantConfig) -> Quantisation:
    """One config for all layers, others for names with wildcards; a cache in 8 bits shows as
    outputs of the K and V projections."""
    layers = section.layer_quant_config
    rules = ordered_rules(((name, _quark(one)) for name, one in layers.items()), section.where)
    everything = section.global_quant_config
    default = BF16 if everything is None else _quark(everything)
    found = by_rules(section, rules, default)
    outputs = [one.output_tensors for one in layers.values()]
    if kv_dtype(section) == "bf16" and any(o and o.dtype.startswith("fp8") for o in outputs):
        return Quantisation(found.format_of, found.label, "fp8", found.notes)
    return found


def _quark(layer: QuarkLayer) -> WeightFormat:
    weight, inputs = layer.weight, layer.input_tensors
    if weight is None:
        return BF16
    kind, size = weight.dtype.lower(), weight.group_size
    if kind.startswith("fp8"):
        return FP8 if inputs else FP8_W8A16
    if kind in ("fp4", "fp4_e2m1", "mxfp4") and size in (0, 32):
        if inputs is not None and inputs.dtype.lower().startswith("fp4"):
            return MXFP4_W4A4
        return MXFP4
    if kind == "int8" and inputs:
        return INT8
    if kind in ("int4", "uint4", "int8", "uint8") and not inputs:
        return whole_numbers(4 if kind.endswith("4") else 8, size)
    raise weight.fail("dtype", "is not modelled with these input_tensors")


def _override(section: QuantConfig, entry: Bits) -> WeightFormat:
    """The format of a module with an entry of its own; 16 bits and more are not quantised."""
    bits = section.bits if entry.bits is None else entry.bits
    size = section.group_size if entry.group_size is None else entry.group_size
    return BF16 if bits >= 16 else _bits(entry, bits, size, "bits")


def _bits(
    section: QuantConfig | Bits, bits: object, group_size: int, name: str,
    extra_bytes: float | None = None,
) -> WeightFormat:
    if isinstance(bits, int) and bits in {4, 8}:
        return whole_numbers(bits, group_size, extra_bytes)
    raise section.fail(name, "only 4 and 8 bits are modelled")


def _object(section: QuantConfig, field: str, given: object) -> Mapping[str, object]:
    if isinstance(given, dict):
        return given
    raise section.fail(field, "must be an object")

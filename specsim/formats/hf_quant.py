"""Which weight format each linear of a checkpoint has, from its quantisation config.

Understood: quant_method fp8 (per tensor or 128 x 128 blocks), fbgemm_fp8, modelopt and
hf_quant_config.json (FP8, NVFP4, W4A16, W8A8, MIXED_PRECISION with quantized_layers),
compressed-tensors (config_groups), mxfp4 here; awq, gptq, auto-round, bitsandbytes, hqq, torchao
and quark in `hf_quant_methods`. Anything else is refused by name, with the way on.
"""

from collections.abc import Mapping
from dataclasses import replace

from specsim.errors import ModelConfigError, shown
from specsim.formats.hf_object import MAX_WIDTH
from specsim.formats.hf_quant_methods import (
    auto_round,
    bitsandbytes,
    gptq_or_awq,
    hqq,
    quark,
    torchao,
)
from specsim.formats.hf_quant_rules import (
    NameSet,
    Quantisation,
    by_rules,
    kept_names,
    kv_dtype,
    whole_numbers,
)
from specsim.formats.hf_shape import FormatGroup, LayerFormat, QuantConfig
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import (
    FP8,
    FP8_BLOCK,
    FP8_W8A16,
    INT4,
    INT8,
    INT8_W8A16,
    MXFP4,
    MXFP4_W4A4,
    MXFP4_W4A8,
    NVFP4,
    NVFP4_W4A16,
    checkpoint_label,
)


def quantisation(
    section: QuantConfig | None, hf_quant: Mapping[str, object] | None = None, name: str = "",
    *, needed: bool = True,
) -> Quantisation:
    """Rules of a checkpoint: config's `quantization_config`, or a hf_quant_config.json.

    needed: False where another format will be put in its place; then a config that cannot be read
    counts as 16 bits, with a note. Else it raises ModelConfigError.
    """
    if section is None and hf_quant is not None:
        section, method = QuantConfig.of(hf_quant, name), "modelopt"
    elif section is not None:
        method = section.quant_method.lower()
    if section is None:
        return Quantisation(lambda module: BF16, "bf16", "bf16")
    try:
        if not method and (section.has("quant_algo") or section.has("quantization")):
            method = "modelopt"
        if method not in _READERS:
            raise section.fail("quant_method", f"is not known; known are {', '.join(_READERS)}")
        return _READERS[method](section)
    except ModelConfigError as error:
        if needed:
            raise ModelConfigError(
                f"{error}; --weights FORMAT prices the model in a format of your choice"
            ) from None
        note = f"the checkpoint's own format was not read: {error}"
        return Quantisation(lambda module: BF16, "bf16", "bf16", (note,))


def _fp8(section: QuantConfig) -> Quantisation:
    """DeepSeek-style FP8. Engines leave lm_head and embeddings in 16 bits under this method."""
    blocks = section.weight_block_size
    fmt = FP8_BLOCK if blocks else FP8
    if section.expert_dtype not in ("", "fp8", "fp4"):
        raise section.fail("expert_dtype", "must be fp4 or fp8")
    # DeepSeek-V4: routed experts have one scale per 32 weights.
    narrow = section.expert_dtype == "fp4"
    rules = [(NameSet(("*.experts.*",), section.where), MXFP4_W4A8)] * narrow
    if section.quantized_layers is not None:
        # Experts made into another format; what it lists to ignore stays as it was.
        listed = _by_format(section.quantized_layers)
        rules = [(NameSet(names, section.where), fmt) for fmt, names in listed.items()] + rules
        found = by_rules(QuantConfig.of({}, section.where), rules, FP8_BLOCK, head=False)
        label = checkpoint_label(min(listed, key=lambda fmt: fmt.bytes_per_weight))
        return replace(found, label=label, kv_dtype=kv_dtype(section))
    if blocks and (len(blocks) != 2 or not all(0 < size <= MAX_WIDTH for size in blocks)):
        raise section.fail("weight_block_size", f"must be two integers from 1 to {MAX_WIDTH}")
    if blocks and blocks != (128, 128):
        fmt = replace(FP8_BLOCK, bytes_per_weight=1.0 + 4.0 / (blocks[0] * blocks[1]))
    return by_rules(section, rules, fmt, head=False)


def _mxfp4(section: QuantConfig) -> Quantisation:
    """gpt-oss: the routed experts only."""
    kept = kept_names(section)

    def format_of(module: str) -> WeightFormat:
        return MXFP4 if ".experts." in module and module not in kept else BF16

    return Quantisation(format_of, "mxfp4", kv_dtype(section))


_ALGORITHMS: dict[str, WeightFormat] = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": FP8_BLOCK,
    "MXFP8": WeightFormat("fp8_block", 1.0 + 1.0 / 32.0, "fp8"),
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4_W4A16,
    "NVFP4_AWQ": NVFP4,
    "W4A16_AWQ": INT4,
    "W8A8_SQ_PER_CHANNEL": INT8,
    "W8A16": INT8_W8A16,
}


def _algorithm(section: LayerFormat) -> WeightFormat:
    name = section.quant_algo.upper()
    if name not in _ALGORITHMS:
        known = ", ".join([*_ALGORITHMS, "MIXED_PRECISION"])
        raise section.fail("quant_algo", f"is not known; known are {known}")
    return _ALGORITHMS[name]


def _modelopt(section: QuantConfig) -> Quantisation:
    section = section.quantization or section
    if section.quant_algo.upper() != "MIXED_PRECISION":
        return by_rules(section, (), _algorithm(section))
    if section.quantized_layers is None:
        return _compressed(section)
    return _by_names(section, _by_format(section.quantized_layers), BF16)


def _by_format(layers: Mapping[str, LayerFormat]) -> dict[WeightFormat, list[str]]:
    """Names of modules by their format."""
    found: dict[WeightFormat, list[str]] = {}
    for name, layer in layers.items():
        found.setdefault(_algorithm(layer), []).append(name)
    return found


def _by_names(
    section: QuantConfig, by_format: dict[WeightFormat, list[str]], default: WeightFormat
) -> Quantisation:
    rules = [(NameSet(names, section.where), fmt) for fmt, names in by_format.items()]
    return by_rules(section, rules, default)


def _compressed(section: QuantConfig) -> Quantisation:
    """config_groups of compressed-tensors, also written by modelopt."""
    if "24" in section.format:
        raise section.fail("format", "2:4 sparse weights are not modelled")
    if section.sparsity_config.get("format", "dense") != "dense":
        raise section.fail("sparsity_config", "sparse weights are not modelled")
    default = BF16
    by_format: dict[WeightFormat, list[str]] = {}
    for group in section.config_groups.values():
        fmt = _group_format(group)
        for target in group.targets:
            if target == "Linear":
                default = fmt
            elif "." not in target and target[:1].isupper():
                raise ModelConfigError(
                    f"{group.where}: targets has the class {shown(target)}: only 'Linear' and "
                    "module names are understood"
                )
            else:
                by_format.setdefault(fmt, []).append(target)
    return _by_names(section, by_format, default)


def _group_format(group: FormatGroup) -> WeightFormat:
    weights = group.weights
    bits, kind, size = weights.num_bits, weights.type, weights.group_size
    weight_only = not group.input_activations
    if kind == "float" and bits == 8:
        if weights.strategy == "block" or weights.has("block_structure"):
            return FP8_BLOCK
        return FP8_W8A16 if weight_only else FP8
    if kind == "float" and bits == 4:
        if size in (0, 16):
            return NVFP4_W4A16 if weight_only else NVFP4
        fmt = MXFP4 if weight_only else MXFP4_W4A4
        return replace(fmt, bytes_per_weight=0.5 + 1.0 / size)
    if kind == "int" and bits in (4, 8) and weight_only:
        return whole_numbers(bits, size, 2.0 if weights.symmetric else 2.0 + bits / 8)
    if kind == "int" and bits == 8:
        return INT8
    raise weights.fail("num_bits", f"{bits}-bit {shown(kind)} weights are not modelled")


_READERS = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": _compressed,
    "awq": gptq_or_awq,
    "gptq": gptq_or_awq,
    "awq_marlin": gptq_or_awq,
    "gptq_marlin": gptq_or_awq,
    "mxfp4": _mxfp4,
    "auto-round": auto_round,
    "intel/auto-round": auto_round,
    "bitsandbytes": bitsandbytes,
    "hqq": hqq,
    "torchao": torchao,
    "quark": quark,
}

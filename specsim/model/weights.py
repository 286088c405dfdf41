"""Weight formats by name, and the quantised variant of a model by the usual rules.

Bytes per weight include block scales:
  fp8_block  1 + 4 / 16384   e4m3, one fp32 scale per 128 x 128 block
  nvfp4      0.5 + 1 / 16    e2m1, one e4m3 scale per 16 weights
  mxfp4      0.5 + 1 / 32    e2m1, one e8m0 scale per 32 weights
  int8       1               W8A8: products in 8-bit integers
  int4       0.5 + 2.5 / 128 AWQ/GPTQ: fp16 scale and 4-bit zero per 128 weights
`compute` is the dtype of the product. A weight-only format (mxfp4 as of gpt-oss, int4, names
ending in a16) is unpacked in the kernel and multiplied in 16 bits on every device.
"""

from collections.abc import Iterable
from dataclasses import replace

from specsim.errors import UsageError, closest
from specsim.model.feedforward import FeedForward
from specsim.model.part import BF16, WeightFormat
from specsim.model.spec import LayerGroup, ModelSpec

FP16 = WeightFormat("fp16", 2.0, "bf16")  # same tensor-core rate; widths are all that count
FP32 = WeightFormat("fp32", 4.0, "fp32")
FP8 = WeightFormat("fp8", 1.0, "fp8")
FP8_W8A16 = WeightFormat("fp8_w8a16", 1.0, "bf16")
FP8_BLOCK = WeightFormat("fp8_block", 1.0 + 4.0 / 16384.0, "fp8")
NVFP4 = WeightFormat("nvfp4", 0.5625, "fp4")
NVFP4_W4A16 = WeightFormat("nvfp4_w4a16", 0.5625, "bf16")
MXFP4 = WeightFormat("mxfp4", 0.53125, "bf16")
MXFP4_W4A4 = WeightFormat("mxfp4_w4a4", 0.53125, "fp4")
MXFP4_W4A8 = WeightFormat("mxfp4_w4a8", 0.53125, "fp8")  # DeepSeek-V4: e4m3 activations
INT4 = WeightFormat("int4", 0.5 + 2.5 / 128.0, "bf16")
INT8 = WeightFormat("int8", 1.0, "int8")
INT8_W8A16 = WeightFormat("int8_w8a16", 1.0, "bf16")

FORMATS: dict[str, WeightFormat] = {
    fmt.name: fmt
    for fmt in (BF16, FP16, FP32, FP8, FP8_W8A16, FP8_BLOCK, NVFP4, NVFP4_W4A16, MXFP4, MXFP4_W4A4,
                MXFP4_W4A8, INT4, INT8, INT8_W8A16)
}
_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8-block": "fp8_block",
    "fp8_block128": "fp8_block",
    "fp4": "nvfp4",
    "fp8_per_tensor": "fp8",
    "fbgemm_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "modelopt_fp4": "nvfp4",
    "w4a16": "int4",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "w8a8": "int8",
    "w8a8_int8": "int8",
    "int8_w8a8": "int8",
    "w8a16": "int8_w8a16",
}
# What people call a checkpoint of floats whether or not activations are narrow too.
_CALLED = {"fp8_w8a16": "fp8", "nvfp4_w4a16": "nvfp4", "mxfp4_w4a4": "mxfp4",
           "mxfp4_w4a8": "mxfp4"}
# Which linears of an MTP head follow the body: FP8 checkpoints quantise them, the 4-bit
# checkpoints published so far keep them in 16 bits.
_MTP_FOLLOWS = ("fp8", "fp8_block", "bf16", "fp16", "fp32")


def weight_format(name: str) -> WeightFormat:
    """The format called `name`, or by vLLM's or SGLang's word for it ('awq', 'w4a16')."""
    key = name.strip().lower()
    key = _ALIASES.get(key, key)
    if key not in FORMATS:
        hint = closest(key, [*FORMATS, *_ALIASES], 2)
        raise UsageError(
            f"weight format {name!r} is not known; {hint}use {', '.join(FORMATS)}, or name the "
            "checkpoint's folder or .gguf as MODEL, whose own formats are read"
        )
    return FORMATS[key]


def checkpoint_label(fmt: WeightFormat) -> str:
    """What people call a checkpoint in a format (`ModelSpec.weights`)."""
    return _CALLED.get(fmt.name, fmt.name)


def quantized(spec: ModelSpec, name: str) -> ModelSpec:
    """`spec` with its linears in another format, as such checkpoints are usually made.

    Quantised: attention, latent, Gated DeltaNet and Mamba projections, dense MLPs, routed and
    shared experts, and with FP8 the MTP block's linears. Kept in 16 bits: lm_head, embeddings,
    norms, routers, gates, GDN a/b, convolutions, the MTP fc, the vision tower. Real 4-bit
    checkpoints differ in what they keep; a catalogued one is always preferred.
    """
    fmt = weight_format(name)
    label = next(key for key, value in FORMATS.items() if value == fmt)
    tables = fmt if label in ("bf16", "fp16", "fp32") else BF16
    mtp = spec.mtp
    if mtp is not None:
        layers = reformat_layers(mtp.layers, fmt if label in _MTP_FOLLOWS else BF16)
        mtp = replace(mtp, layers=layers, head_weight=tables)
    note = f"weights set to {label} by the usual rules (lm_head, embeddings, routers in 16 bits)"
    if label in ("bf16", "fp16", "fp32"):
        note = f"all weights set to {label}"
    return replace(
        spec,
        layers=reformat_layers(spec.layers, fmt),
        embed_weight=tables,
        head_weight=tables,
        mtp=mtp,
        weights=label,
        notes=(*spec.notes, note),
    )


def reformat_layers(layers: tuple[LayerGroup, ...], fmt: WeightFormat) -> tuple[LayerGroup, ...]:
    """The layers with every quantisable matrix in `fmt`."""
    return merge_groups(
        replace(
            group,
            mixer=None if group.mixer is None else group.mixer.in_format(fmt),
            ffn=_reformat_ffn(group.ffn, fmt),
        )
        for group in layers
    )


def merge_groups(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers joined into one group each, in the order of first appearance."""
    counts: dict[LayerGroup, int] = {}
    for layer in layers:
        one = replace(layer, count=1)
        counts[one] = counts.get(one, 0) + layer.count
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _reformat_ffn(
    ffn: FeedForward | tuple[FeedForward, ...] | None, fmt: WeightFormat
) -> FeedForward | tuple[FeedForward, ...] | None:
    if isinstance(ffn, tuple):
        return tuple(branch.in_format(fmt) for branch in ffn)
    return None if ffn is None else ffn.in_format(fmt)

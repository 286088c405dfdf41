"""Which weight format each linear of a checkpoint has, from its quantisation config.

Understood: quant_method fp8 (per tensor or 128 x 128 blocks), fbgemm_fp8, modelopt and
hf_quant_config.json (FP8, NVFP4, W4A16, MIXED_PRECISION with quantized_layers),
compressed-tensors (config_groups), awq, gptq, mxfp4. Anything else is refused by name.

Module patterns are untrusted. A name matches a module when it equals it, a dotted parent or
a dotted tail of it; `*` is a wildcard; `re:` starts a regular expression (anchored at the
start, as compressed-tensors does) of which only forms that cannot run away are accepted.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from specsim.errors import ModelConfigError, shown
from specsim.formats.hf_object import MAX_WIDTH
from specsim.formats.hf_shape import FormatGroup, LayerFormat, QuantConfig
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import FP8, FP8_BLOCK, MXFP4, NVFP4, NVFP4_W4A16

MAX_PATTERNS = 32  # inner wildcards and regular expressions
MAX_NUMBERED = 4  # of these, with numbers in them
MAX_PATTERN = 300  # characters
MAX_REPEATS = 3  # of * + ? { in a regular expression: bounds the backtracking
_METHODS = "fp8, fbgemm_fp8, modelopt, compressed-tensors, awq, gptq, mxfp4"
_DIGIT = re.compile(r"\d")
_PREFIXES = ("model.language_model.", "language_model.model.", "backbone.")


@dataclass(frozen=True, slots=True)
class Quantisation:
    """`format_of` maps a module name (`model.layers.3.mlp.up_proj`) to its format."""

    format_of: Callable[[str], WeightFormat]
    label: str  # ModelSpec.weights
    kv_dtype: str  # what the checkpoint asks for
    notes: tuple[str, ...] = ()


class NameSet:
    """Module patterns of one list of a config."""

    def __init__(self, names: Iterable[str], where: str) -> None:
        self._plain: set[str] = set()
        self._stems: set[str] = set()  # 'a.b*' as 'a.b'
        self._patterns: list[re.Pattern[str]] = []  # that do not tell one digit from another
        self._numbered: list[re.Pattern[str]] = []
        self._known: dict[str, bool] = {}  # names with digits as 0 -> whether a pattern matches
        for name in names:
            if name.startswith("re:"):
                self._add(_safe_regex(name[3:], where), name)
            elif not any(mark in name for mark in "*?["):
                self._plain.add(name)
            elif name.endswith(".*") and not any(mark in name[:-2] for mark in "*?["):
                self._plain.add(name[:-2])
            elif name.endswith("*") and not any(mark in name[:-1] for mark in "*?["):
                self._stems.add(name[:-1])
            elif len(name) > MAX_PATTERN:
                raise ModelConfigError(
                    f"{where}: pattern {shown(name)} is over {MAX_PATTERN} characters"
                )
            else:
                whole = fnmatch.translate(name).removesuffix(r"\Z").removesuffix(r"\z")
                self._add(re.compile(whole + r"(?:\..*)?\Z"), name)
        if len(self._patterns) > MAX_PATTERNS or len(self._numbered) > MAX_NUMBERED:
            raise ModelConfigError(
                f"{where}: {len(self._patterns) + len(self._numbered)} wildcard patterns, at most "
                f"{MAX_PATTERNS}, {MAX_NUMBERED} with numbers in them; plain names and names "
                "ending in * are not limited"
            )

    def _add(self, pattern: re.Pattern[str], text: str) -> None:
        numbered = any(mark.isdigit() for mark in text.replace("0-9", ""))
        (self._numbered if numbered else self._patterns).append(pattern)

    def _matches(self, module: str) -> bool:
        """Patterns without numbers are tried once for all layers whose number is as long."""
        if not self._patterns and not self._numbered:
            return False
        blind = _DIGIT.sub("0", module)
        if blind not in self._known:
            self._known[blind] = any(pattern.match(module) for pattern in self._patterns)
        return self._known[blind] or any(pattern.match(module) for pattern in self._numbered)

    def __contains__(self, module: str) -> bool:
        return any(self._one(name) for name in spellings(module))

    def _one(self, module: str) -> bool:
        if self._stems and any(module[:end] in self._stems for end in range(len(module) + 1)):
            return True
        if self._matches(module):
            return True
        if not self._plain:
            return False
        parts = module.split(".")
        return any(
            ".".join(parts[start:end]) in self._plain
            for end in range(len(parts), 0, -1)
            for start in range(end)
        )


def spellings(module: str) -> list[str]:
    """A module under the prefixes that wrappers of a text model give it."""
    found = [module]
    if module.startswith("model.layers."):
        found += [prefix + module[len("model.") :] for prefix in _PREFIXES]
    elif module == "lm_head":
        found.append("language_model.lm_head")
    # fused names: experts stored as one tensor, gate and up as one
    if ".experts.0." in module:
        found += [name.replace(".experts.0.", ".experts.") for name in found]
    return found


def _safe_regex(text: str, where: str) -> re.Pattern[str]:
    """A compiled pattern, refused when its running time could grow without measure."""
    repeats = len(re.findall(r"[*+{?]", text))
    if len(text) > MAX_PATTERN or repeats > MAX_REPEATS or re.search(r"\)[*+{?]", text):
        raise ModelConfigError(
            f"{where}: pattern {shown('re:' + text)} is refused: at most {MAX_PATTERN} "
            f"characters and {MAX_REPEATS} repetitions, none of a group"
        )
    try:
        return re.compile(text)
    except re.error as error:
        raise ModelConfigError(
            f"{where}: pattern {shown('re:' + text)} is not a regular expression ({error})"
        ) from None


def quantisation(
    section: QuantConfig | None, hf_quant: Mapping[str, object] | None = None, name: str = ""
) -> Quantisation:
    """Rules of a checkpoint: config's `quantization_config`, or a hf_quant_config.json."""
    if section is not None:
        method = section.quant_method.lower()
        readers = {
            "fp8": _fp8,
            "fbgemm_fp8": _fp8,
            "modelopt": _modelopt,
            "modelopt_fp4": _modelopt,
            "modelopt_mixed": _modelopt,
            "compressed-tensors": _compressed,
            "awq": _int4,
            "gptq": _int4,
            "awq_marlin": _int4,
            "gptq_marlin": _int4,
            "mxfp4": _mxfp4,
        }
        if not method and (section.has("quant_algo") or section.has("quantization")):
            method = "modelopt"
        if method not in readers:
            raise section.fail("quant_method", f"is not known; known are {_METHODS}")
        return readers[method](section)
    if hf_quant is not None:
        return _modelopt(QuantConfig.of(hf_quant, name))
    return Quantisation(lambda module: BF16, "bf16", "bf16")


def _kept(section: QuantConfig) -> NameSet:
    s = section
    names = (*s.modules_to_not_convert, *s.ignored_layers, *s.ignore, *s.exclude_modules)
    return NameSet(names, section.where)


def _kv_dtype(section: QuantConfig) -> str:
    scheme = section.kv_cache_scheme
    if isinstance(scheme, str):
        return "fp8" if scheme.upper() == "FP8" else "bf16"
    narrow = scheme is not None and scheme.num_bits == 8
    return "fp8" if narrow or section.kv_cache_quant_algo.upper() == "FP8" else "bf16"


def _fp8(section: QuantConfig) -> Quantisation:
    """DeepSeek-style FP8. Engines leave lm_head and embeddings in 16 bits under this method."""
    blocks = section.weight_block_size
    fmt = FP8_BLOCK if blocks else FP8
    if blocks and (len(blocks) != 2 or not all(0 < size <= MAX_WIDTH for size in blocks)):
        raise section.fail("weight_block_size", f"must be two integers from 1 to {MAX_WIDTH}")
    if blocks and blocks != (128, 128):
        fmt = WeightFormat("fp8_block", 1.0 + 4.0 / (blocks[0] * blocks[1]), "fp8")
    kept = _kept(section)

    def format_of(module: str) -> WeightFormat:
        if module == "lm_head" or module in kept or _is_joint(module):
            return BF16
        return fmt

    return Quantisation(format_of, fmt.name, _kv_dtype(section))


def _is_joint(module: str) -> bool:
    """The projection that joins an MTP head's inputs: a plain linear in every engine."""
    return module.endswith((".eh_proj", "mtp.fc"))


def _mxfp4(section: QuantConfig) -> Quantisation:
    """gpt-oss: the routed experts only."""
    kept = _kept(section)

    def format_of(module: str) -> WeightFormat:
        return MXFP4 if ".experts." in module and module not in kept else BF16

    return Quantisation(format_of, "mxfp4", _kv_dtype(section))


def _int4(section: QuantConfig) -> Quantisation:
    bits = section.bits
    if bits not in (4, 8):
        raise section.fail(section.spelling("bits"), "only 4 and 8 bits are modelled")
    group = section.group_size if section.group_size > 0 else 1 << 30
    fmt = WeightFormat(f"int{bits}", bits / 8 + (2 + bits / 8) / group, "bf16")
    kept = _kept(section)
    head_too = section.lm_head

    def format_of(module: str) -> WeightFormat:
        if module in kept or _is_joint(module) or (module == "lm_head" and not head_too):
            return BF16
        return fmt

    return Quantisation(format_of, fmt.name, _kv_dtype(section))


_ALGORITHMS: dict[str, WeightFormat] = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": FP8_BLOCK,
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4_W4A16,
    "W4A16_AWQ": WeightFormat("int4", 0.5 + 2.5 / 128.0, "bf16"),
}


def _algorithm(section: LayerFormat) -> WeightFormat:
    name = section.quant_algo.upper()
    if name not in _ALGORITHMS:
        known = ", ".join([*_ALGORITHMS, "MIXED_PRECISION"])
        raise section.fail("quant_algo", f"is not known; known are {known}")
    return _ALGORITHMS[name]


def _modelopt(section: QuantConfig) -> Quantisation:
    section = section.quantization or section
    kept = _kept(section)
    if section.quant_algo.upper() != "MIXED_PRECISION":
        fmt = _algorithm(section)

        def one_format(module: str) -> WeightFormat:
            return BF16 if module in kept or _is_joint(module) else fmt

        return Quantisation(one_format, fmt.name, _kv_dtype(section))
    if section.quantized_layers is None:
        return _compressed(section)
    by_format: dict[WeightFormat, list[str]] = {}
    for name, layer in section.quantized_layers.items():
        by_format.setdefault(_algorithm(layer), []).append(name)
    return _by_names(section, by_format, kept)


def _by_names(
    section: QuantConfig, by_format: dict[WeightFormat, list[str]], kept: NameSet
) -> Quantisation:
    sets = [(fmt, NameSet(names, section.where)) for fmt, names in by_format.items()]

    def format_of(module: str) -> WeightFormat:
        if module in kept:
            return BF16
        return next((fmt for fmt, names in sets if module in names), BF16)

    # What people call a mixed checkpoint: its lowest precision.
    label = min(by_format, key=lambda fmt: fmt.bytes_per_weight).name if by_format else "bf16"
    return Quantisation(format_of, label, _kv_dtype(section))


def _compressed(section: QuantConfig) -> Quantisation:
    """config_groups of compressed-tensors, also written by modelopt."""
    kept = _kept(section)
    everything: WeightFormat | None = None
    by_format: dict[WeightFormat, list[str]] = {}
    for group in section.config_groups.values():
        fmt = _group_format(group)
        for target in group.targets:
            if target == "Linear":
                everything = fmt
            elif "." not in target and target[:1].isupper():
                raise ModelConfigError(
                    f"{group.where}: targets has the class {shown(target)}: only 'Linear' and "
                    "module names are understood"
                )
            else:
                by_format.setdefault(fmt, []).append(target)
    named = _by_names(section, by_format, kept)
    if everything is None:
        return named
    default = everything

    def format_of(module: str) -> WeightFormat:
        if module in kept or _is_joint(module):
            return BF16
        found = named.format_of(module)
        return default if found == BF16 else found

    label = min((*by_format, default), key=lambda fmt: fmt.bytes_per_weight).name
    return Quantisation(format_of, label, _kv_dtype(section))


def _group_format(group: FormatGroup) -> WeightFormat:
    weights = group.weights
    bits, kind, size = weights.num_bits, weights.type, weights.group_size
    weight_only = not group.input_activations
    if kind == "float" and bits == 8:
        if weights.strategy == "block" or weights.has("block_structure"):
            return FP8_BLOCK
        return WeightFormat("fp8", 1.0, "bf16") if weight_only else FP8
    if kind == "float" and bits == 4:
        if size in (0, 16):
            return NVFP4_W4A16 if weight_only else NVFP4
        return WeightFormat("mxfp4", 0.5 + 1.0 / size, "bf16" if weight_only else "fp4")
    if kind == "int" and bits in (4, 8) and weight_only:
        scale = 2.0 / size if size > 0 else 0.0
        zero = 0.0 if weights.symmetric or size < 1 else bits / 8 / size
        return WeightFormat(f"int{bits}", bits / 8 + scale + zero, "bf16")
    if kind == "int" and bits == 8:
        return WeightFormat("int8", 1.0, "int8")
    raise weights.fail("num_bits", f"{bits}-bit {shown(kind)} weights are not modelled")

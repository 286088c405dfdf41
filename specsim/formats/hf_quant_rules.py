"""What every reader of a quantisation config makes: a format for each module of a checkpoint."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specsim.errors import ModelConfigError
from specsim.formats.hf_modules import NameSet, is_pattern
from specsim.formats.hf_shape import QuantConfig
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import INT8_W8A16, checkpoint_label

MAX_SETS = 32  # of names, each bounded by itself
Rules = Sequence[tuple[NameSet, WeightFormat]]


@dataclass(frozen=True, slots=True)
class Quantisation:
    """`format_of` maps a module name (`model.layers.3.mlp.up_proj`) to its format."""

    format_of: Callable[[str], WeightFormat]
    label: str  # ModelSpec.weights
    kv_dtype: str  # what the checkpoint asks for
    notes: tuple[str, ...] = ()


def kept_names(section: QuantConfig) -> NameSet:
    """The modules that stay in 16 bits, under every name a config has for their list."""
    s = section
    names = (
        *s.modules_to_not_convert, *s.ignored_layers, *s.ignore, *s.exclude_modules, *s.exclude,
        *s.llm_int8_skip_modules, *s.skip_modules,
    )
    return NameSet(names, section.where)


def kv_dtype(section: QuantConfig) -> str:
    scheme = section.kv_cache_scheme
    if isinstance(scheme, str):
        return "fp8" if scheme.upper() == "FP8" else "bf16"
    narrow = scheme is not None and scheme.num_bits == 8
    return "fp8" if narrow or section.kv_cache_quant_algo.upper() == "FP8" else "bf16"


def is_joint(module: str) -> bool:
    """The projection that joins an MTP head's inputs: a plain linear in every engine."""
    return module.endswith((".eh_proj", "mtp.fc"))


def ordered_rules(
    pairs: Iterable[tuple[str, WeightFormat]], where: str
) -> list[tuple[NameSet, WeightFormat]]:
    """Names and their formats, of which the first that matches holds. Neighbours of one format
    are matched together; without patterns all of one format, as then the order says nothing."""
    listed = list(pairs)
    if not any(is_pattern(name) for name, _ in listed):
        listed.sort(key=lambda pair: (pair[1].bytes_per_weight, pair[1].name))
    runs: list[tuple[WeightFormat, list[str]]] = []
    for name, fmt in listed:
        if not runs or runs[-1][0] != fmt:
            runs.append((fmt, []))
        runs[-1][1].append(name)
    if len(runs) > MAX_SETS:
        raise ModelConfigError(
            f"{where}: {len(runs)} changes between formats in a list with patterns, at most "
            f"{MAX_SETS}"
        )
    return [(NameSet(names, where), fmt) for fmt, names in runs]


def by_rules(
    section: QuantConfig, rules: Rules, default: WeightFormat, *, head: bool = True,
    notes: tuple[str, ...] = (),
) -> Quantisation:
    """The first of `rules` that names a module gives its format, else `default`; what the config
    keeps stays in 16 bits. head: whether lm_head is a module like the others."""
    kept = kept_names(section)

    def format_of(module: str) -> WeightFormat:
        if module in kept or (module == "lm_head" and not head):
            return BF16
        if default != BF16 and is_joint(module):
            return BF16
        return next((fmt for names, fmt in rules if module in names), default)

    # What people call a mixed checkpoint: its lowest precision.
    used = [*(fmt for _, fmt in rules), default]
    label = checkpoint_label(min(used, key=lambda fmt: fmt.bytes_per_weight))
    return Quantisation(format_of, label, kv_dtype(section), notes)


def whole_numbers(bits: int, group_size: int, extra_bytes: float | None = None) -> WeightFormat:
    """Weight-only integers of 4 or 8 bits. group_size: weights that share a scale, below 1 for
    one scale a row. extra_bytes: of a group's scale and zero, by default a 16-bit scale and a zero
    of `bits` (AWQ, GPTQ)."""
    extra = 2 + bits / 8 if extra_bytes is None else extra_bytes
    name = "int4" if bits == 4 else INT8_W8A16.name
    return WeightFormat(name, bits / 8 + (extra / group_size if group_size > 0 else 0.0), "bf16")

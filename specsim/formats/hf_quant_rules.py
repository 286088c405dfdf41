"""What every reader of a quantisation config makes: a format for each module of a checkpoint.

Names of modules, and the patterns that stand for many of them, are untrusted. A name matches a
module when it equals it, a dotted parent or a dotted tail of it; `*` is a wildcard; `re:` starts a
regular expression (anchored at the start, as compressed-tensors does) of which only forms that
cannot run away are accepted.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specsim.errors import ModelConfigError, shown
from specsim.formats.hf_shape import QuantConfig
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import INT8_W8A16, checkpoint_label

MAX_PATTERNS = 32  # inner wildcards and regular expressions
MAX_NUMBERED = 4  # of these, with numbers in them
MAX_PATTERN = 300  # characters
MAX_REPEATS = 3  # of * + ? { in a regular expression: bounds the backtracking
_DIGIT = re.compile(r"\d")
_PREFIXES = ("model.language_model.", "language_model.model.", "backbone.")


def is_pattern(name: str) -> bool:
    """Whether a name stands for many by a wildcard or as a regular expression."""
    return name.startswith("re:") or any(mark in name for mark in "*?[")


class NameSet:
    """Module patterns of one list of a config."""

    def __init__(self, names: Iterable[str], where: str) -> None:
        self._plain: set[str] = set()
        self._stems: set[str] = set()  # 'a.b*' as 'a.b'
        self._ends: set[int] = set()  # their lengths
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
                self._ends.add(len(name) - 1)
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
        if self._stems and any(module[:end] in self._stems for end in self._ends):
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

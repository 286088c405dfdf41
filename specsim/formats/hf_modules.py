"""Names of modules in a quantisation config, and the patterns that stand for many of them.

Module patterns are untrusted. A name matches a module when it equals it, a dotted parent or
a dotted tail of it; `*` is a wildcard; `re:` starts a regular expression (anchored at the
start, as compressed-tensors does) of which only forms that cannot run away are accepted.
"""

import fnmatch
import re
from collections.abc import Iterable

from specsim.errors import ModelConfigError, shown

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

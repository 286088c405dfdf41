"""Flags and environment variables of a server's command, by what they mean for a prediction.

They fall into four kinds: read (they decide cost or memory), left out (they change neither), not
modelled (they change cost, so a prediction must say that it does not know them) and unknown. Which
is which stands in `engines/commands/*.toml`, one file per server.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache

from specsim.data import data_table
from specsim.errors import UsageError
from specsim.model.counts import cache_dtype
from specsim.model.weights import weight_format

CommandValues = dict[str, object]
"""Options of `specsim predict` that a command line can set, by their names."""


def those_set(**values: object) -> CommandValues:
    """The values that are not None."""
    return {name: item for name, item in values.items() if item is not None}


@dataclass(frozen=True)
class ServerCommand:
    """What a command line starts. model: as it was written, '' when none was named.

    values: only those that the command sets. ignored: flags that change neither cost nor memory.
    not_modelled: flags that change cost in a way no prediction here knows. unknown: flags that
    are not known to the engine's versions read here. max_model_len: the longest request that the
    server takes, None: the model's."""

    engine: str
    model: str
    values: CommandValues = field(default_factory=CommandValues)
    ignored: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags of one engine (`engines/commands/*.toml`). read: flag -> the name it is kept under;
    switches: flags without a value; lists: those of several words; ignored, not_modelled: see
    `ServerCommand`; unchanged: flags of the latter with a value that changes nothing. Names
    are without the dashes in front."""

    read: Mapping[str, str]
    switches: frozenset[str]
    lists: frozenset[str]
    ignored: frozenset[str]
    not_modelled: frozenset[str]
    unchanged: frozenset[str]

    def whole_name(self, name: str) -> str:
        """The one flag that a beginning of it stands for, as in argparse; else the name itself."""
        known = {**dict.fromkeys((*self.ignored, *self.not_modelled, *self.switches)), **self.read}
        if name in known or len(name) < 3:
            return name
        found = {flag: target or flag for flag, target in known.items() if flag.startswith(name)}
        return next(iter(found)) if len(set(found.values())) == 1 else name


@cache
def flag_table(engine: str) -> FlagTable:
    """The flags of an engine's server."""
    raw = data_table("engines", f"commands/{engine}.toml")
    kinds = {kind: frozenset(names) for kind, names in raw.items() if kind != "read"}
    return FlagTable(raw["read"], **kinds)


@dataclass(frozen=True)
class ServerWords:
    """A command line taken apart. version: of a container's image, '' for none. words: those
    behind the server's name. environment: variables set in front of it. files: what the text itself
    writes, by name."""

    engine: str
    version: str
    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine_asked(self) -> str:
        """As --engine takes it."""
        return f"{self.engine}=={self.version}" if self.version else self.engine


@dataclass
class ParsedFlags:
    """Flags of one command line, sorted by kind; values as text (switches: '')."""

    read: dict[str, str] = field(default_factory=dict)
    dotted: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def sort_flags(server: ServerWords) -> ParsedFlags:
    """Flags by kind. A flag may be written --a-b, --a_b, --a-b=VALUE; a later one wins."""
    table, words = flag_table(server.engine), server.words
    out = ParsedFlags()
    unchanged: list[str] = []
    for name, value in server.environment.items():
        if name in table.read:
            out.read[table.read[name]] = value
        elif name in table.ignored:
            out.ignored.append(name)
        elif name in table.not_modelled:
            text = f"{name}={value}"
            (unchanged if text in table.unchanged else out.not_modelled).append(text)
        elif name.startswith(_OWN_VARIABLES):
            out.unknown.append(name)
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not _is_flag(word):
            out.positional.append(word)
            continue
        name, sign, value = word.partition("=")
        if re.fullmatch(r"-O\d", name):  # as one word
            name, sign, value = "O", "=", name[2:]
        name = table.whole_name(name.lstrip("-").replace("_", "-"))
        parent = name.split(".", 1)[0]
        opposite = name[3:] if name.startswith("no-") else f"no-{name}"
        if sign and name in table.switches:
            raise UsageError(
                f"--command has --{name}={value[:40]}, which {server.engine} refuses: the flag "
                "takes no value; leave the value out, or the flag where it is to be off"
            )
        if not sign and name not in table.switches and i < len(words) and not _is_flag(words[i]):
            value = words[i]
            i += 1
            while name in table.lists and i < len(words) and not _is_flag(words[i]):
                value += f" {words[i]}"
                i += 1
        if opposite in table.switches and opposite in table.read:
            out.read.pop(table.read[opposite], None)  # the later one wins
        if parent != name and parent in table.read:
            if not value:
                raise UsageError(f"--command has --{name} without a value")
            out.dotted[name] = value
        elif name in table.read:
            if not value and name not in table.switches:
                raise UsageError(f"--command has --{name} without a value")
            out.read[table.read[name]] = value
        elif name in table.ignored or parent in table.ignored:
            out.ignored.append(f"--{name}")
        elif name in table.not_modelled or parent in table.not_modelled:
            text = f"--{name} {value}".strip()
            (unchanged if text in table.unchanged else out.not_modelled).append(text)
        elif server.engine == "vllm" and opposite in table.switches and name.startswith("no-"):
            pass  # a switch of vLLM has its opposite
        else:
            out.unknown.append(_with_hint(name, table))
    out.ignored += unchanged
    out.unknown += out.positional[1:]  # the model is one word
    return out


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


def _with_hint(name: str, table: FlagTable) -> str:
    near = get_close_matches(name, list(table.read), n=1, cutoff=0.85)
    return f"--{name[:60]}" + (f" (did you mean --{near[0]}?)" if near else "")


def check_speculation_known(flags: ParsedFlags) -> None:
    """A command that asks for speculation in words not known here is not priced with another
    method. UsageError."""
    asked = [name for name in flags.unknown if name.startswith("--spec")]
    if asked:
        raise UsageError(
            f"--command has {asked[0]}, which is not known here, so its speculation cannot be "
            "read; leave the flag out of it and give --method with --k (and --draft) instead"
        )


def json_or_text(text: str) -> object:
    """A word that is no JSON stands for itself, as in vLLM."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def whole(read: Mapping[str, str], name: str, flag: str) -> int | None:
    """A flag's value as a whole number from 1, None where it is not set."""
    return None if (text := read.get(name)) is None else whole_number(text, flag)


def whole_number(text: str, flag: str) -> int:
    """A text as a whole number from 1; vLLM's 1k, 1K, 1.5k are read too."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6}(?=[km]))?)([kKmM]?)", text.strip())
    factor = {"": 1, "k": 1000, "K": 1024, "m": 1_000_000, "M": 1 << 20}
    value = round(float(match.group(1)) * factor[match.group(2)]) if match else 0
    if value < 1:
        unset = "; the command does not set this variable, write its value" if "$" in text else ""
        raise UsageError(
            f"--command has {flag} {text[:40]!r}; it must be a whole number from 1{unset}"
        )
    return value


def longest(read: Mapping[str, str], flag: str) -> int | None:
    """The longest request, in tokens; None where the engine is to find out itself."""
    if read.get("longest", "").strip().lower() in ("auto", "-1"):
        return None
    return whole(read, "longest", flag)


def share(read: Mapping[str, str], name: str, flag: str) -> float | None:
    """A flag's value as a share of memory."""
    text = read.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        percent = re.fullmatch(r"(\d{1,2}(?:\.\d+)?)%?", text.strip())
        meant = f"; write {float(percent.group(1)) / 100:g}" if percent else ""
        raise UsageError(
            f"--command has {flag} {text[:40]!r}; it must be above 0 and at most 1{meant}"
        )
    return value


_OWN_VARIABLES = ("VLLM_", "SGLANG_", "SGL_")
# What the engine finds out from the checkpoint.
_OWN = ("auto", "compressed-tensors")


def numeric_formats(read: Mapping[str, str], not_modelled: list[str]) -> CommandValues:
    """weights and kv from the flags of both engines; formats not known go to `not_modelled`."""
    out: CommandValues = {}
    weights = read.get("quantization", "auto")
    if weights.lower() not in _OWN:
        try:
            out["weights"] = weight_format(weights).name
        except UsageError:
            not_modelled.append(f"--quantization {weights[:40]}")
    cache = read.get("kv", "auto")
    if cache_dtype(cache) in ("bf16", "fp8"):
        out["kv"] = cache_dtype(cache)
    elif cache.lower() not in _OWN:
        not_modelled.append(f"--kv-cache-dtype {cache[:40]}")
    if read.get("dtype", "auto") == "float32":
        not_modelled.append("--dtype float32")
    return out


MAX_VALUE = 300  # characters of one value that a server tells
_OTHER_NAMES = {"cache-dtype": "kv-cache-dtype"}  # labels of vLLM that are no names of flags
_STARTS = {"vllm": ["vllm", "serve"], "sglang": ["sglang", "serve"]}


def told_command(engine: str, model: str, facts: Mapping[str, object]) -> str:
    """What a server says of its own flags (`facts`, names as in Python: SGLang's /server_info,
    labels of vLLM's metrics) as the command that would set them; '' for an engine without one. Only
    flags that decide cost or memory are taken over; the rest, a key among it, is not looked at."""
    if engine not in _STARTS:
        return ""
    table = flag_table(engine)
    words = [*_STARTS[engine], *([model] if engine == "vllm" else ["--model-path", model])]
    for key, value in facts.items():
        name = key.replace("_", "-")
        name = _OTHER_NAMES.get(name, name)
        known = table.read.get(name)
        if known in (None, "model") or value in (None, False, "", "None", "auto"):
            continue
        if name in table.switches:
            words += [f"--{name}"] if value is True else []
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            words += [f"--{name}", str(value)[:MAX_VALUE]]
    return shlex.join(words)

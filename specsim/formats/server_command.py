"""A server's command line, `vllm serve ...` or `python -m sglang.launch_server ...`, as a whole.

What is read: everything in front of the server (environment variables, sudo, docker with its
image) is passed over, the image's tag gives the version, the rest is split as a POSIX shell would
and ends at the first shell operator. Nothing is run and no file is opened.

Flags fall into four kinds: read (they decide cost or memory), left out (they change neither),
not modelled (they change cost, so a prediction must say that it does not know them) and unknown.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from specsim.errors import FormatError, UsageError

MAX_COMMAND = 100_000  # characters
MAX_WORDS = 2_000
_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"})
_IMAGE = re.compile(r"(?:^|/)(vllm-openai|sglang)(?::v?(\d+\.\d+(?:\.\d+)?))?\S*$")
EXAMPLE = "'vllm serve MODEL --max-num-seqs 64' or 'python -m sglang.launch_server --model-path M'"


@dataclass(frozen=True)
class ServerCommand:
    """What a command line starts. model: as it was written, '' when none was named.

    values: options of `specsim predict` by their names (tp, weights, kv, speculative_config, ...),
    only those that the command sets. ignored: flags that change neither cost nor memory.
    not_modelled: flags that change cost in a way no prediction here knows. unknown: flags that
    are not known to the engine's versions read here. max_model_len: the longest request that the
    server takes, None: the model's."""

    engine: str
    model: str
    values: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags of one engine. read: flag -> the name it is kept under; switches: flags without a
    value; ignored, not_modelled: see `ServerCommand`. Names are without the dashes in front."""

    read: Mapping[str, str]
    switches: frozenset[str]
    ignored: frozenset[str]
    not_modelled: frozenset[str]


@dataclass
class ParsedFlags:
    """Flags of one command line, sorted by kind; values as text (switches: '')."""

    read: dict[str, str] = field(default_factory=dict)
    dotted: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def parse_command(text: str) -> ServerCommand:
    """Reads a command line. FormatError where no server is started in it or the quoting is
    broken, UsageError for a flag with a value that the engine would refuse."""
    from specsim.formats.sglang_args import read_sglang
    from specsim.formats.vllm_command import read_vllm

    engine, version, words = find_server(split_words(text))
    reader = {"vllm": read_vllm, "sglang": read_sglang}[engine]
    return reader(words, f"{engine}=={version}" if version else engine)


def split_words(text: str) -> list[str]:
    """The words of the first command of a line, as a POSIX shell splits them."""
    if len(text) > MAX_COMMAND:
        raise FormatError(f"--command is longer than {MAX_COMMAND} characters; give one command")
    try:
        # A backslash before a line end joins the lines.
        words = shlex.split(re.sub(r"\\\r?\n", " ", text), comments=False)
    except ValueError as error:
        raise FormatError(
            f"--command has broken quotes ({error}); put the whole command in double quotes and "
            "JSON in single ones"
        ) from None
    if len(words) > MAX_WORDS:
        raise FormatError(f"--command has {len(words)} words; give one command")
    return words


def find_server(words: list[str]) -> tuple[str, str, list[str]]:
    """(engine, version from a container image or '', the words behind the server's name)."""
    version = ""
    for i, word in enumerate(words):
        behind = words[i + 1 :]
        base = word.rsplit("/", 1)[-1]
        if base == "vllm" and behind[:1] == ["serve"]:
            return "vllm", version, until_operator(behind[1:])
        if word.startswith("vllm.entrypoints"):
            return "vllm", version, until_operator(behind)
        if base == "sglang" and behind[:1] == ["serve"]:
            return "sglang", version, until_operator(behind[1:])
        if word in ("sglang.launch_server", "sglang.serve"):
            return "sglang", version, until_operator(behind)
        image = _IMAGE.search(word)
        if image and i and not word.startswith("-"):
            version = image.group(2) or ""
            # vLLM's image starts the server itself: what follows are its flags.
            if image.group(1) == "vllm-openai" and "serve" not in behind[:2]:
                return "vllm", version, until_operator(behind)
    start = " ".join(words[:6])
    raise FormatError(f"--command starts no server known here: {start[:80]!r}; write {EXAMPLE}")


def until_operator(words: Iterable[str]) -> list[str]:
    out = []
    for word in words:
        if word in _OPERATORS:
            break
        out.append(word)
    return out


def sort_flags(words: list[str], table: FlagTable) -> ParsedFlags:
    """Flags by kind. A flag may be written --a-b, --a_b, --a-b=VALUE; a later one wins."""
    out = ParsedFlags()
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not _is_flag(word):
            out.positional.append(word)
            continue
        name, sign, value = word.partition("=")
        name = name.lstrip("-").replace("_", "-")
        parent = name.split(".", 1)[0]
        if not sign and name not in table.switches and i < len(words) and not _is_flag(words[i]):
            value = words[i]
            i += 1
        if parent != name and parent in table.read:
            out.dotted[name] = value
        elif name in table.read:
            if not value and name not in table.switches:
                raise UsageError(f"--command has --{name} without a value")
            out.read[table.read[name]] = value
        elif name in table.ignored or parent in table.ignored:
            out.ignored.append(f"--{name}")
        elif name in table.not_modelled or parent in table.not_modelled:
            out.not_modelled.append(f"--{name} {value}".strip())
        else:
            out.unknown.append(_with_hint(name, table))
    return out


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


def _with_hint(name: str, table: FlagTable) -> str:
    near = get_close_matches(name, list(table.read), n=1, cutoff=0.85)
    return f"--{name[:60]}" + (f" (did you mean --{near[0]}?)" if near else "")


def whole(read: Mapping[str, str], name: str, flag: str) -> int | None:
    """A flag's value as a whole number from 1; vLLM's 1k, 1K spellings are read too."""
    text = read.get(name)
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})([kKmM]?)", text.strip())
    factor = {"": 1, "k": 1000, "K": 1024, "m": 1_000_000, "M": 1 << 20}
    value = int(match.group(1)) * factor[match.group(2)] if match else 0
    if value < 1:
        raise UsageError(
            f"--command has {flag} {text[:40]!r}; it must be a whole number from 1"
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
        raise UsageError(f"--command has {flag} {text[:40]!r}; it must be above 0 and at most 1")
    return value


_CACHE = {"auto": None, "bfloat16": "bf16", "bf16": "bf16", "float16": "bf16", "fp8": "fp8",
          "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
_FORMATS = {
    "fp8": "fp8", "fp8_per_tensor": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8",
    "modelopt_fp8": "fp8", "w8a8_fp8": "fp8", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4",
    "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4",
    "compressed-tensors": None, "auto": None,
}


def numeric_formats(read: Mapping[str, str], not_modelled: list[str]) -> dict[str, str]:
    """weights and kv from the flags of both engines; formats not known go to `not_modelled`."""
    out: dict[str, str] = {}
    for name, flag, known in (
        ("quantization", "--quantization", _FORMATS), ("kv", "--kv-cache-dtype", _CACHE)
    ):
        text = read.get(name)
        if text is None:
            continue
        if text.lower() not in known:
            not_modelled.append(f"{flag} {text[:40]}")
            continue
        value = known[text.lower()]
        if value is not None:
            out["weights" if name == "quantization" else "kv"] = value
    if read.get("dtype", "auto") == "float32":
        not_modelled.append("--dtype float32")
    return out

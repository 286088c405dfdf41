"""A server's command line, `vllm serve ...` or `python -m sglang.launch_server ...`, as a whole.

What is read: everything in front of the server (environment variables, sudo, docker with its
image) is passed over, the image's tag gives the version, the rest is split as a POSIX shell would
and ends at the first shell operator. Nothing is run and no file is opened.
"""

import re
import shlex
from collections.abc import Iterable

from specsim.errors import FormatError
from specsim.formats.server_flags import ServerCommand
from specsim.formats.sglang_flags import read_sglang
from specsim.formats.vllm_flags import read_vllm

MAX_COMMAND = 100_000  # characters
MAX_WORDS = 2_000
_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"})
_IMAGE = re.compile(r"(?:^|/)(vllm-openai|sglang)(?::v?(\d+\.\d+(?:\.\d+)?))?\S*$")
EXAMPLE = "'vllm serve MODEL --max-num-seqs 64' or 'python -m sglang.launch_server --model-path M'"


def parse_command(text: str) -> ServerCommand:
    """Reads a command line. FormatError where no server is started in it or the quoting is
    broken, UsageError for a flag with a value that the engine would refuse."""
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

"""The words of a pasted shell text: a command over several lines, or a script that holds it.

Comments, line ends, ';' and redirections without spaces around them are the shell's: taken as
words, they would change the model or a number of the command. Nothing is run.
"""

import re
import shlex
from bisect import bisect_left
from collections.abc import Iterable

from specsim.errors import FormatError

MAX_COMMAND = 100_000  # characters
MAX_WORDS = 2_000
_PIECES = re.compile(
    r"""'[^']*' | "(?:\\.|[^"\\])*"                # as they are
      | (?P<joined>[ \t][\\`^][ \t]*\r?\n)         # bash, PowerShell, cmd
      | (?P<also>\\[ \t]*\r?\n) | \\.
      | (?P<comment>(?<!\S)\#[^\n]*)
      | (?P<operator>(?<!\S)\d[<>]+ | [<>|&;]+)
      | (?P<line>\r?\n)""",
    re.VERBOSE | re.DOTALL,
)
_END = ";"
_OPERATORS = frozenset({"|", "||", "&", "&&", _END})
# What editors and web pages make of quotes and of the dashes in front of a flag.
_TYPESET = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_DASH = re.compile(r"(?<!\S)[–—]-?(?=[A-Za-z])")


def split_words(text: str) -> list[str]:
    """The words of a text, with ';' where a command ends. FormatError for broken quotes."""
    if len(text) > MAX_COMMAND:
        raise FormatError(f"--command is longer than {MAX_COMMAND} characters; give one command")
    try:
        words = shlex.split(_plain(text), comments=False)
    except ValueError as error:
        raise FormatError(
            f"--command has broken quotes ({error}); put the whole command in double quotes and "
            "JSON in single ones"
        ) from None
    if len(words) > MAX_WORDS:
        raise FormatError(f"--command has {len(words)} words; give one command")
    return words


_HERE = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(\w+)\1")
_INTO = re.compile(r">[ \t]*([^\s<>|&;]+)|\btee[ \t]+(?:-a[ \t]+)?([^\s<>|&;]+)")
_SAID = re.compile(
    r"\b(?:echo|printf)[ \t]+(?:'%s(?:\\n)?'[ \t]+)?'([^']*)'[ \t]*>[ \t]*([^\s<>|&;]+)"
)


def here_files(text: str) -> tuple[str, dict[str, str]]:
    """A text without the files that it writes (`cat > FILE <<EOF`, `echo '...' > FILE`), and these
    by name."""
    files: dict[str, str] = {}

    def said(found: re.Match[str]) -> str:
        files[found[2].strip("'\"")] = found[1]
        return "true"

    lines = _SAID.sub(said, text).split("\n")
    ends: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        ends.setdefault(line.strip(), []).append(i)
    kept, i = [], 0
    while i < len(lines):
        line, i = lines[i], i + 1
        here, into = _HERE.search(line), _INTO.search(line)
        behind = ends.get(here[2], []) if here is not None else []
        end = bisect_left(behind, i)
        if here is None or into is None or end == len(behind):
            kept.append(line)
            continue
        files[(into[1] or into[2]).strip("'\"")] = "\n".join(lines[i : behind[end]])
        kept.append(line[: here.start()] + line[here.end() :])
        i = behind[end] + 1
    return "\n".join(kept), files


def until_operator(words: Iterable[str]) -> list[str]:
    """The words of the first command."""
    out = []
    for word in words:
        if word in _OPERATORS:
            break
        out.append(word)
    return out


def on_one_line(text: str) -> str:
    """A text whose line ends are no more than blanks, as in a string of compose."""
    return _PIECES.sub(lambda m: " " if m["line"] or m["joined"] or m["also"] else m[0], text)


def _plain(text: str) -> str:
    """A text whose commands are divided by ' ; ' and nothing else."""
    text = _DASH.sub("--", text.translate(_TYPESET))

    def plain(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "line":
            return " " if _goes_on(text, found.start(), found.end()) else f" {_END} "
        return {None: found[0], "operator": f" {_END} "}.get(kind, " ")

    out = _PIECES.sub(plain, text)
    # A line of which nothing is left began with the prompt of root.
    return out if out.strip(f" \t{_END}") else text


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether a line without a mark at its end goes on: a flag begins the next one, or it is a
    flag alone, whose value follows."""
    before = text[text.rfind("\n", 0, start) + 1 : start].split()
    alone = len(before) == 1 and before[0].startswith("--") and "=" not in before[0]
    following = text[end:].lstrip().split("\n", 1)[0]
    return following.startswith("-") or (alone and len(following.split()) == 1)

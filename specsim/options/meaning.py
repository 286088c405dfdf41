"""Near options for a name that is none: first those that mean what the word says, then those that
are spelt like it."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from specsim.data import data_table

if TYPE_CHECKING:
    from specsim.options.declare import Declared

MAX_MEANING = 60  # characters
MIN_BEGINNING = 3  # characters that an option may be asked for by


def near(word: str, known: Mapping[str, "Declared"], most: int = 2) -> "list[Declared]":
    """Up to `most` options of `known` that `word`, with or without its dashes, may mean."""
    plain = _plain(word)
    meant = [known[name] for name, words in data_table("catalog", "option_words.toml").items()
             if name in known and plain in map(_plain, words)]
    if meant:
        return meant[:most]
    spelt: dict[str, Declared] = {}
    for item in known.values():
        for text in (item.name, *item.on, *item.off):
            spelt.setdefault(text.lstrip("-").replace("_", "-"), item)
    written = word.lstrip("-").replace("_", "-")
    close = [text for text in spelt if len(written) >= MIN_BEGINNING and text.startswith(written)]
    close += get_close_matches(written, list(spelt), n=most)
    return list({id(spelt[text]): spelt[text] for text in close}.values())[:most]


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def hint(word: str, known: Mapping[str, "Declared"], most: int = 2) -> str:
    """'did you mean 'concurrency'? ' for what files and Python callers name; '' where none is
    near."""
    names = [repr(item.name) for item in near(word, known, most)]
    return f"did you mean {' or '.join(names)}? " if names else ""


def flag_hint(word: str, known: Mapping[str, "Declared"]) -> str:
    """The same for a command line: the flags, with what the first of them means."""
    found = near(word, known)
    if not found:
        return ""
    first = found[0]
    if first.option.argument:
        return f"{first.flag} stands by place, without a flag"
    others = "".join(f" or {item.flag}" for item in found[1:])
    meaning = re.split(r"\.(?: |$)(?=[A-Z]|$)", first.option.help)[0]
    if len(meaning) > MAX_MEANING:
        meaning = meaning.partition(":")[0]
    return f"did you mean {first.flag} ({meaning}){others}?"

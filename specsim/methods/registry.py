"""All drafting methods by name, in the order in which users see them listed."""

from typing import TypeVar

from specsim.errors import UsageError, closest
from specsim.methods.base import METHODS, DraftMethod

M = TypeVar("M", bound=DraftMethod)


def register(method: type[M]) -> type[M]:
    """Class decorator: makes a method known by its name and spellings, in its place of the list.
    UsageError when one of them is taken."""
    added: DraftMethod = method()
    taken = {word for other in METHODS.values() for word in (other.name, *other.spellings)}
    for word in (added.name, *added.spellings):
        if word in taken:
            raise UsageError(f"a drafting method {word!r} exists already; choose another name")
    ordered = sorted((*METHODS.values(), added), key=lambda m: m.listed)
    METHODS.clear()
    METHODS.update({m.name: m for m in ordered})
    return method


def known_method(text: str) -> str | None:
    """The canonical name of a method as people and engines spell it; None when unknown."""
    key = text.strip().lower()
    plain = key.replace("_", "-")
    if plain in METHODS:
        return plain
    return next((method.name for method in METHODS.values() if method.spelt(key)), None)


def method_name(text: str) -> str:
    """`known_method`, or UsageError with the names there are."""
    found = known_method(text)
    if found is None:
        key = text.strip().lower()
        runs = [m.name for m in METHODS.values() if key in (*m.drafter_kinds, *m.measured_names)]
        hint = f"such drafters run under {runs[0]!r}; " if runs else closest(key, METHODS)
        raise UsageError(f"method {text!r} is not known; {hint}methods: {', '.join(METHODS)}")
    return found


def is_plain(word: str | None) -> bool:
    """Whether a user's word for a method means plain decoding; false for none at all."""
    found = known_method(word) if word is not None else None
    return found is not None and not METHODS[found].speculates


def server_method(engine: str, text: str) -> str | None:
    """The method that an engine's command line calls `text`; None when it has none of that name."""
    return next((m.name for m in METHODS.values() if text in m.server_names.get(engine, ())), None)


def server_methods(engine: str) -> list[str]:
    """All names of methods on an engine's command line, sorted."""
    return sorted(name for m in METHODS.values() for name in m.server_names.get(engine, ()))


def lookup_named(draft: str) -> str | None:
    """The lookup that stands in place of a draft model, as vLLM writes it: ngram or [ngram]."""
    found = known_method(draft.strip().strip("[]"))
    return found if found is not None and METHODS[found].lookup else None


def method_of_checkpoint(name: str) -> str | None:
    """The method that vLLM infers from the name of a draft checkpoint: of the words that it holds
    the longest decides ('eagle-3' before 'eagle-'). None for what looks like an ordinary model."""
    if (lookup := lookup_named(name)) is not None:
        return lookup
    words = {word: m.name for m in METHODS.values() for word in m.checkpoint_words}
    key = name.lower()
    found = [word for word in words if word in key]
    return words[max(found, key=lambda word: (len(word), word))] if found else None

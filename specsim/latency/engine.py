"""Engine profiles by name and version: the packaged `engines/*.toml`, and files of the user's.

    find_engine("vllm==0.33.0")     the newest profile that begins no later than that version
    find_engine("mine.toml")        a file, checked against its declared shape (`engine_schema`)

Packaged files are built without that check, which a test makes; reading them needs no pydantic.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from specsim.data import data_root
from specsim.errors import FormatError, ProfileError, closest
from specsim.latency.engine_profile import EngineProfile, Scheduler, Server, version_key
from specsim.latency.overheads import Overheads

MAX_FILE_BYTES = 1_000_000
Tables = dict[str, Any]  # a parsed file
T = TypeVar("T")


def _read(path: Path) -> Tables:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise FormatError(f"{path.name} is larger than 1 MB; an engine profile is a few kB of TOML")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: syntax, encoding
        raise FormatError(f"{path.name} is not valid TOML: {error}") from None


def engine_from_dict(raw: Tables, where: str) -> EngineProfile:
    """Check a parsed engine TOML of the user's. Unknown keys, wrong types and out-of-range values
    are refused.

    [engine] inherit = "vllm 0.25.1" takes what the file leaves out of [engine] and [overheads]
    from that packaged profile, but for since, current_through, title and aliases. What it leaves
    out of [scheduler] and [server], which say how the engine of that name works, comes from the
    packaged profile of its own name, where there is one."""
    from specsim.latency.engine_schema import check_engine

    check_engine(raw, where)
    body = raw["engine"]
    parent = _named(list_engines(), body["inherit"]) if body.get("inherit") else None
    return _built(raw, parent, packaged(body["name"], body["version"]) or parent)


def _built(
    raw: Tables, parent: EngineProfile | None, same: EngineProfile | None
) -> EngineProfile:
    """A profile from checked tables; see `engine_from_dict` for what is filled in."""
    body = {key: _frozen(value) for key, value in raw["engine"].items()}
    inherited = _fields(parent) if parent is not None else {}
    for own in ("since", "current_through", "title", "aliases", "asked"):
        inherited.pop(own, None)
    return EngineProfile(
        **{
            **inherited,
            **body,
            "overheads": _table(raw, "overheads", parent.overheads if parent else Overheads()),
            "scheduler": _table(raw, "scheduler", same.scheduler if same else Scheduler()),
            "server": _table(raw, "server", same.server if same else Server()),
            "sources": {str(k): str(v) for k, v in raw.get("sources", {}).items()}
            or (parent.sources if parent else {}),
        }
    )


def _fields(profile: object) -> dict[str, Any]:
    return {f.name: getattr(profile, f.name) for f in fields(profile)}  # type: ignore[arg-type]


def _table(raw: Tables, key: str, base: T) -> T:
    """A table as its class, keys that it leaves out as in `base`."""
    given = {name: _frozen(value) for name, value in raw.get(key, {}).items()}
    return type(base)(**{**_fields(base), **given})


def _frozen(value: object) -> object:
    """Lists of a file as tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def list_engines() -> tuple[EngineProfile, ...]:
    """All packaged engine profiles, by name and version."""
    raws = [_read(path) for path in data_root("engines").glob("*.toml")]
    first = _by_version(_built(raw, None, None) for raw in raws if "inherit" not in raw["engine"])
    later = []
    for raw in raws:
        if "inherit" in raw["engine"]:
            parent = _named(first, raw["engine"]["inherit"])
            later.append(_built(raw, parent, parent))
    return _by_version((*first, *later))


def _by_version(found: Iterable[EngineProfile]) -> tuple[EngineProfile, ...]:
    return tuple(sorted(found, key=lambda e: (e.name, version_key(e.version))))


def find_engine(name: str, version: str | None = None) -> EngineProfile:
    """The profile of `name` ('vllm', 'vllm 0.25.1', 'SGLang', 'trtllm', a .toml path).

    Without a version the newest profile. With one: the newest profile that begins no later than
    it, or the oldest there is. ProfileError for an unknown engine.
    """
    text = name.strip()
    if text.lower().endswith(".toml"):
        path = Path(text)
        if not path.is_file():
            raise ProfileError(f"engine profile {text!r} is not a file; give a path to a .toml")
        return engine_from_dict(_read(path), path.name)
    return _named(list_engines(), text, version)


def _named(
    engines: Sequence[EngineProfile], name: str, version: str | None = None
) -> EngineProfile:
    text = name.strip()
    for joint in ("==", "@", " "):
        if joint in text and version is None:
            text, version = (part.strip() for part in text.split(joint, 1))
    key = text.lower().replace("_", "").replace("-", "").replace(" ", "")
    same = [e for e in engines if key == e.name or key in e.aliases]
    if not same:
        names = sorted({e.name for e in engines})
        hint = f"{closest(key, names)}known engines: {', '.join(names)}"
        raise ProfileError(
            f"engine {name[:60]!r} is not known; {hint}; take the nearest, such as --engine vllm, "
            "and fit it to your server with `specsim calibrate --from RESULT.json MODEL`"
        )
    if version is None:
        return same[-1]
    if not re.fullmatch(r"v?\d{1,6}(\.\d{1,6})*([-.+]?[a-z]\w*)*", version.strip().lower()):
        raise ProfileError(
            f"engine version {version[:40]!r} of {same[-1].name} is not a version; write "
            f"{same[-1].name}=={same[-1].version} or leave it out"
        )
    return replace(_at(same, version), asked=version)


def packaged(name: str, version: str) -> EngineProfile | None:
    """The packaged profile of exactly that name, at the version; None for other engines."""
    same = [e for e in list_engines() if e.name == name]
    return _at(same, version) if same else None


def _at(same: Sequence[EngineProfile], version: str) -> EngineProfile:
    """Of one engine the newest profile that begins no later than the version, or the oldest."""
    wanted = version_key(version)
    older = [e for e in same if version_key(e.since or e.version) <= wanted]
    return older[-1] if older else same[0]


def engine_of_year(name: str, year: str) -> EngineProfile:
    """The packaged profile that people ran in `year`; the newest for '' and what is no year."""
    newest = find_engine(name)
    if not year.isdigit():
        return newest
    past = (e for e in list_engines() if e.name == newest.name and int(year) <= e.current_through)
    return next(past, newest)


def asked_version(text: str) -> str | None:
    """The version in an engine as users write it ('vllm==0.33.0', 'sglang 0.5'), None without."""
    match = re.search(r"(?:==|@|\s)\s*v?(\d+(?:\.\d+)*)", text)
    return match.group(1) if match else None

"""Find and load hardware profiles by the names people type.

Searched in this order: the user's folder (argument, or the environment variable
SPECSIM_PROFILES), then the profiles shipped with specsim. A name with a path or a `.toml`
ending is read as a file. In each folder a file name wins over an alias; aliases are compared
without case, punctuation and maker's words, so 'NVIDIA H100 80GB HBM3', 'h100' and 'H100-SXM'
meet; else by the model number and what else the name says of the card, if all of it is true.
Loading reads the one file (and the profile it inherits kernel tables from); only a name that is
no file's makes the store look at the heads of the others.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from specsim.data import data_root, data_table
from specsim.errors import FormatError, ProfileError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.schema import inherit_name, profile_from_document
from specsim.hardware.toml_file import parse_document, read_document, read_text

ENV_FOLDER = "SPECSIM_PROFILES"
MAX_INHERIT_DEPTH = 4

# Words that makers and drivers put around the model number and that tell no two devices apart.
_NOISE = frozenset(
    {"nvidia", "amd", "intel", "geforce", "instinct", "tesla", "arc"}
    | {"gpu", "graphics", "tensor", "core"}
)

# Words that describe a card; they may stand beside its number where they are true of it.
_DESCRIBING = frozenset(
    {"pcie", "sxm", "oam", "nvlink", "hbm", "gddr", "se", "server", "edition"}
    | {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "xe2"}
)


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A profile as a list shows it, read from the head of its file only."""

    name: str
    title: str
    aliases: tuple[str, ...]
    path: Path


@lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """The form in which names and aliases are compared: lower case letters and digits only."""
    plain = re.sub(r"\((r|tm|c)\)", " ", name.lower())
    words = re.findall(r"[a-z0-9]+", plain)
    return "".join(word for word in words if word not in _NOISE)


def profile_folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Folders to search, first match wins. A folder named by the user must exist."""
    named = folder if folder is not None else os.environ.get(ENV_FOLDER) or None
    packaged = data_root("hw_profiles")
    if named is None:
        return [packaged]
    user = Path(named)
    if not user.is_dir():
        asked = "--profiles" if folder is not None else ENV_FOLDER
        raise ProfileError(
            f"{asked} = {str(named)!r} is not a folder; name one that holds .toml files"
        )
    return [user, packaged]


def list_profiles(folder: str | os.PathLike[str] | None = None) -> list[ProfileEntry]:
    """All profiles by name; the user's hide shipped ones of the same name."""
    found: dict[str, ProfileEntry] = {}
    for place in profile_folders(folder):
        for entry in _entries(place):
            found.setdefault(entry.name, entry)
    return sorted(found.values(), key=lambda entry: entry.name)


def find_profile(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """The file of the profile called `name`; ProfileError with near matches when there is none."""
    if name.endswith(".toml") or "/" in name or "\\" in name:
        path = Path(name)
        if not name.endswith(".toml"):
            raise ProfileError(f"GPU {name!r}: a profile file must end in .toml")
        return path
    folders = profile_folders(folder)
    for place in folders:
        match = _find_in(place, name)
        if match is not None:
            return match
    cards = re.fullmatch(r"\s*(\d{1,4})\s*[x*×]\s*(.+)", name, re.IGNORECASE)
    if cards is not None:
        one = find_profile(cards[2], folder).stem
        raise ProfileError(
            f"GPU {name!r} names {cards[1]} devices; write --gpu {one} --tp {cards[1]} (or --ep, "
            "--replicas)"
        )
    for place in folders:
        match = _described(place, name)
        if match is not None:
            return match
    raise ProfileError(_unknown(name, folders))


def load_profile(name: str, folder: str | os.PathLike[str] | None = None) -> HardwareProfile:
    """The profile called `name` (a name, an alias, or the path of a .toml file).

    Raises ProfileError for an unknown name or a bad value, FormatError for a broken file.
    """
    return _load(find_profile(name, folder), folder, ())


def _find_in(place: Path, name: str, skip: tuple[Path, ...] = ()) -> Path | None:
    stem = name.strip().lower()
    # Only a plain file name may be joined: the user's text must not walk out of the folder.
    if re.fullmatch(r"[a-z0-9][a-z0-9._+-]{0,99}", stem):
        path = place / f"{stem}.toml"
        if path.is_file() and not (skip and path.resolve() in skip):
            return path
    wanted = normalise(name)
    found = None
    for key, path in _names(place) if wanted else ():
        if key == wanted and not (skip and path.resolve() in skip):
            found = path  # the last one wins
    return found


def _described(place: Path, name: str) -> Path | None:
    """The one profile with this model number of which every further word (capacity, module, link,
    edition, architecture) is true; None where there is none."""
    core, said = _apart(name)
    found = set()
    for entry in _entries(place):
        names = (entry.name, entry.title, *entry.aliases)
        if core and any(core == _apart(other)[0] for other in names):
            document = _document(entry.path, *_stamp(entry.path))
            tables = [document.get("device"), document.get("link")]
            device, link = (table if isinstance(table, dict) else {} for table in tables)
            true = {word for other in names for word in _apart(other)[1]}
            for text in (device.get("arch"), link.get("kind")):
                true.update(re.findall(r"[a-z0-9]+", str(text).lower()))
            if said <= true:
                found.add(entry.path)
    # Of several, the one that the bare number means.
    bare = _find_in(place, core) if len(found) > 1 else None
    return bare if bare in found else found.pop() if len(found) == 1 else None


def _apart(name: str) -> tuple[str, frozenset[str]]:
    """The comparable model number of a name, and the words that describe the card around it."""
    joined = re.sub(r"(\d+)\s*g(?:i?b)?\b", r"\1gb", name.lower())
    joined = re.sub(r"\b(pcie|nvlink)\s*(?:gen\s*)?\d(?:\.\d)?\b(?:\s*x\s*\d+)?", r"\1", joined)
    words = [re.sub(r"^(sxm|hbm|gddr)\d\w*", r"\1", w) for w in re.findall(r"[a-z0-9]+", joined)]
    said = frozenset(w for w in words if w in _DESCRIBING or re.fullmatch(r"\d+gb", w))
    return normalise(" ".join(w for w in words if w not in said)), said


def _names(place: Path) -> Iterator[tuple[str, Path]]:
    """Every comparable name in a folder; file names come last, so that they win over aliases."""
    entries = _entries(place)
    for entry in reversed(entries):
        for alias in (entry.title, *entry.aliases):
            yield normalise(alias), entry.path
    for entry in entries:
        yield normalise(entry.name), entry.path


def _entries(place: Path) -> list[ProfileEntry]:
    return [_entry(path, *_stamp(path)) for path in sorted(place.glob("*.toml"))]


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when the file does, so that caches never serve an old version."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL character
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"profile {str(path)!r} cannot be read ({reason})") from None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=512)
def _entry(path: Path, _mtime_ns: int, _size: int) -> ProfileEntry:
    """The [device] head of one file. A file that cannot be read is listed by its name alone:
    it must not stop the search for another profile, and loading it says what is wrong."""
    device: object = {}
    try:
        text = read_text(path)
        # [device] comes first by convention; stopping at the next table skips the long
        # kernel tables. A file laid out otherwise is parsed whole.
        head = re.split(r"(?m)^\[(?!device\])", text, maxsplit=1)[0]
        device = tomllib.loads(head).get("device") or parse_document(text, str(path)).get("device")
    except (FormatError, ValueError, RecursionError):
        pass
    if not isinstance(device, dict):
        device = {}
    title, aliases = device.get("title"), device.get("aliases")
    return ProfileEntry(
        path.stem,
        title if isinstance(title, str) else path.stem,
        tuple(a for a in aliases if isinstance(a, str)) if isinstance(aliases, list) else (),
        path,
    )


def _load(
    path: Path, folder: str | os.PathLike[str] | None, chain: tuple[Path, ...]
) -> HardwareProfile:
    stamp = _stamp(path)
    resolved = path.resolve()
    if len(chain) >= MAX_INHERIT_DEPTH:
        names = " -> ".join(p.stem for p in (*chain, resolved))
        raise ProfileError(
            f"{path}: [kernels] inherit is more than {MAX_INHERIT_DEPTH} profiles deep ({names}); "
            "inherit from the measured profile itself"
        )
    doc = _document(path, *stamp)
    parent = inherit_name(doc, str(path))
    inherited = None
    if parent is not None:
        inherited = _load(_parent_path(parent, path, folder, (*chain, resolved)), folder,
                          (*chain, resolved))
    kept = _made.get((path, stamp))
    if kept is None or kept[0] is not inherited:
        kept = (inherited, profile_from_document(doc, path.stem, str(path), inherited))
        if len(_made) >= 64:
            _made.clear()
        _made[path, stamp] = kept
    return kept[1]


# By file and stamp: what the profile inherits from, and the profile, which nobody changes.
_made: dict[tuple[Path, tuple[int, int]], tuple[HardwareProfile | None, HardwareProfile]] = {}


@lru_cache(maxsize=64)
def _document(path: Path, _mtime_ns: int, _size: int) -> dict[str, object]:
    return read_document(path)


def _parent_path(
    parent: str, child: Path, folder: str | os.PathLike[str] | None, chain: tuple[Path, ...]
) -> Path:
    """Where the profile to inherit from is: beside the child, then as every other name.

    A file is never its own parent, so a user's h200-sxm.toml may inherit the shipped h200-sxm.
    """
    folders = [child.parent, *profile_folders(folder)]
    for place in folders:
        path = _find_in(place, parent, skip=(child.resolve(),))
        if path is None:
            continue
        if path.resolve() in chain:
            names = " -> ".join([*(p.stem for p in chain), path.stem])
            raise ProfileError(f"{child}: [kernels] inherit goes in a circle ({names})")
        return path
    raise ProfileError(f"{child}: kernels.inherit: {_unknown(parent, folders)}")


def _unknown(name: str, folders: list[Path]) -> str:
    from difflib import SequenceMatcher, get_close_matches

    names: dict[str, str] = {}  # comparable form -> profile name
    for place in folders:
        for key, path in _names(place):
            names.setdefault(key, path.stem)
    wanted = normalise(name)
    shown = name if len(name) <= 60 else name[:57] + "..."
    for kind in data_table("catalog", "unmodelled_devices.toml").values():
        if any(re.fullmatch(pattern, wanted) for pattern in kind["names"]):
            return (
                f"GPU {shown!r} is not modelled: {kind['why']}; `specsim gpus` lists what is, and "
                "a profile .toml of its datasheet (hw_profiles/SCHEMA.md) prices vLLM's own steps"
            )
    close = get_close_matches(wanted, names, n=8, cutoff=0.6)
    if not close and len(wanted) >= 3:
        close = [key for key in names if wanted in key or key in wanted][:8]
    close.sort(key=lambda key: -SequenceMatcher(None, wanted, key).ratio())
    near = list(dict.fromkeys(names[key] for key in close))[:4]
    hint = f"near matches: {', '.join(near)}; " if near else ""
    listing = "`specsim gpus` lists all, or give the path of a profile .toml"
    return f"unknown GPU {shown!r}; {hint}{listing}"

"""`specsim.report`: results as one self-contained HTML page."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecSimError, UsageError
from specsim.files import check_writable, write_whole
from specsim.jsonable import json_text
from specsim.options.values import profile_folder, shown

if TYPE_CHECKING:
    from specsim.hardware.profile import HardwareProfile
    from specsim.report.kinds import SavedResult

MAX_FILES = 40
MAX_TITLE = 200
MAX_PROFILES = 8


def report(
    *results: object, output: str | PathLike[str] = "report.html", title: str | None = None,
    profiles: str | None = None,
) -> Path:
    """Write one HTML page with interactive charts of `results`; the path it was written to.

    results: what the other functions return, their dicts, or files of `--json`. Raises
    `specsim.errors.SpecSimError` for whatever a caller can correct; plotly is needed
    (`pip install "specsim-llm[report]"`)."""
    path = Path(output)
    write_whole(path, page_of(results, str(output), title, profiles))
    return path


def page_of(
    results: Sequence[object], output: str, title: str | None = None,
    profiles: str | Path | None = None, command: str = "",
) -> str:
    """The page, after all checks. results: as of `report`, or bytes from standard input."""
    from specsim.report.html.render import DEFAULT_TITLE, render

    folder = profile_folder(profiles)
    if not results:
        raise UsageError("nothing to report; give results, or files of --json")
    if len(results) > MAX_FILES:
        raise UsageError(f"{len(results)} results are given; a report shows at most {MAX_FILES}")
    if title is not None and not 0 < len(title.strip()) <= MAX_TITLE:
        raise UsageError(f"--title must have 1 to {MAX_TITLE} characters, got {shown(title)}")
    inputs = [str(item) for item in results if isinstance(item, str | PathLike)]
    check_writable(None if output == "-" else output, "--output", inputs)
    saved = [_saved(item, number) for number, item in enumerate(results, 1)]
    return render(saved, profiles_of(saved, folder), title or DEFAULT_TITLE, command)


def _saved(item: object, number: int) -> "SavedResult":
    from specsim.report.kinds import KINDS, parse, read_text

    if isinstance(item, bytes):
        return parse("standard input", read_text("standard input", item), KINDS)
    if isinstance(item, str | PathLike):
        return parse(Path(item).name or str(item), read_text(str(item)), KINDS)
    value = item if isinstance(item, Mapping) else getattr(item, "to_dict", dict)()
    name = f"result {number}"
    if not value:
        raise UsageError(
            f"{name} is {shown(repr(item))}; it must be a result, its dict, or a file of --json"
        )
    try:
        text = json_text(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is no result of specsim: {error}") from None
    return parse(name, text, KINDS)


def profiles_of(
    documents: "Sequence[SavedResult]", folder: str | None
) -> "dict[str, HardwareProfile]":
    """Profiles of the GPUs that the results name; one this installation lacks is left out."""
    from specsim.hardware.store import list_profiles, load_profile

    known = {entry.name for entry in list_profiles(folder)}
    found: dict[str, HardwareProfile] = {}
    for document in documents:
        for name in _gpu_names(document):
            # Only names: a path in a file from elsewhere is not followed.
            if name in known and name not in found and len(found) < MAX_PROFILES:
                try:
                    found[name] = load_profile(name, folder)
                except SpecSimError:
                    continue
    return found


def _gpu_names(saved: "SavedResult") -> list[str]:
    """GPUs that a result names: its own, those of its inputs, endpoints or cells."""
    value = saved.doc.value
    found = value if isinstance(value, Mapping) else {}
    places = [found, found.get("inputs"), *_list(found.get("endpoints")),
              *_list(found.get("cells"))]
    values = [place.get("gpu") for place in places if isinstance(place, Mapping)]
    return [value for value in values if isinstance(value, str)]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

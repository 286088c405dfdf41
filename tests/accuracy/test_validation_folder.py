"""validation/README.md names every file of the folder, every file it names is there, and every
script imports without running."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "validation"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
# A folder whose every file has one source is named as a whole.
WHOLE = ("data/h200", "data/other_gpus", "data/e2e", "data/cpu_steps", "data/published",
         "scripts/kernels", "measured/h200")
NAMES = set(re.findall(r"`(\w[\w./*-]*)(?: --\w+)?`", README)) - {"NAME.py", "measured/h200/"}
SCRIPTS = sorted(path.stem for path in (FOLDER / "scripts").glob("*.py"))


def files() -> list[str]:
    """Those of the repository; in an unpacked source distribution, all."""
    listed = subprocess.run(
        ["git", "ls-files", "validation"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    found = listed or [
        str(path.relative_to(ROOT)) for path in FOLDER.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return [name.removeprefix("validation/") for name in found]


def test_every_file_is_named() -> None:
    patterns = [re.compile(re.escape(name).replace(r"\*", ".*")) for name in NAMES]
    unnamed = [
        path for path in files()
        if not path.startswith(tuple(f"{folder}/" for folder in WHOLE))
        and not path.endswith(("PROVENANCE.md", "README.md"))
        and not any(
            pattern.fullmatch(name) for pattern in patterns for name in (path, Path(path).name)
        )
    ]
    assert not unnamed


def test_every_name_is_there() -> None:
    known = files()
    missing = [
        name for name in NAMES
        if not (FOLDER / name).exists() and not any(Path(path).name == name for path in known)
        and not list(ROOT.glob(name)) and not list(FOLDER.rglob(name))
    ]
    assert not missing


def test_names_of_folders_differ_by_more_than_their_ending() -> None:
    names = {
        path.name for top in (ROOT, ROOT / "specsim", ROOT / "tests") for path in top.iterdir()
        if path.is_dir() and not path.name.startswith((".", "_"))
    }
    stems = ("validat",)
    assert [name for name in names if name.startswith(stems)] == ["validation"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_imports(name: str) -> None:
    if name == "head_acceptance":
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    assert module.__doc__ and Path(str(module.__file__)).parent == FOLDER / "scripts"

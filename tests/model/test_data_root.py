"""Where packaged data is looked for."""

from pathlib import Path

import pytest

from specsim import data
from specsim.data import data_root


def test_in_a_checkout_or_an_installed_wheel() -> None:
    root = data_root("catalog")
    assert (root / "index.json").is_file()
    assert root.name == "catalog"


def test_packaged_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "repo" / "specsim"
    (package / "inside").mkdir(parents=True)
    (tmp_path / "repo" / "inside").mkdir()
    (tmp_path / "repo" / "beside").mkdir()
    monkeypatch.setattr(data, "_PACKAGE", package)
    assert data_root("inside") == package / "inside"
    assert data_root("beside") == tmp_path / "repo" / "beside"
    assert data_root("absent") == tmp_path / "repo" / "absent"  # for the caller's own message

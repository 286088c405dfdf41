"""What a user's word for a model means: a name of the catalogue or a file."""

from pathlib import Path

import pytest

from specsim.errors import SpecSimError
from specsim.formats.load_model import load_drafter, load_model
from specsim.model.catalogue import find_model, list_drafters


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_results_kept_in_a_folder_per_model_hide_no_name(here: Path) -> None:
    (here / "llama-3.1-8b").mkdir()
    (here / "qwen3-8b").write_text("results", encoding="utf-8")
    assert load_model("llama-3.1-8b") == find_model("llama-3.1-8b")
    assert load_model("qwen3-8b") == find_model("qwen3-8b")
    drafter = list_drafters()[0].name
    (here / drafter).mkdir()
    assert load_drafter(drafter, find_model("qwen3-8b")) is None


def test_a_path_or_a_checkpoint_is_read(here: Path) -> None:
    folder = here / "llama-3.1-8b"
    folder.mkdir()
    with pytest.raises(SpecSimError, match=r"config\.json"):
        load_model("./llama-3.1-8b")
    with pytest.raises(SpecSimError, match=r"config\.json"):
        load_model(str(folder))
    (folder / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SpecSimError, match="model_type"):
        load_model("llama-3.1-8b")

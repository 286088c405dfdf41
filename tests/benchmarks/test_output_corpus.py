"""The corpus of commands: its inputs are there, and a change of output is seen and shown."""

import itertools
from pathlib import Path

import output_corpus as corpus
import pytest
import typer

from specsim.commands import app


def test_the_corpus_covers_every_command_and_its_inputs_exist() -> None:
    cases = corpus.cases()
    assert len(cases) >= 170
    words = [case.command.split() for case in cases]
    called = {after for line in words for before, after in itertools.pairwise(line)
              if before == "specsim"}
    root = typer.main.get_command(app)
    assert set(root.commands) <= called  # type: ignore[attr-defined]
    for case in cases:
        for name in corpus._INPUT.findall(case.command):
            assert corpus.source_of(name).exists()


@pytest.mark.slow
def test_a_case_is_run_in_a_folder_of_its_own_and_kept(tmp_path: Path) -> None:
    corpus.record(tmp_path, corpus.ROOT, "config-wrong-type", 1)
    kept = corpus.kept(tmp_path / "config-wrong-type")
    assert kept["exit"] == b"2\n" and kept["stdout"] == b""
    assert kept["stderr"].startswith(b"specsim: <folder>/specsim.toml")
    assert kept["files/specsim.toml"] == b'[defaults]\ntp = "x"\n'


def case(folder: Path, **parts: str) -> None:
    for name, text in {"command": "specsim x\n", "exit": "0\n", **parts}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_what_differs_is_shown_where_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    case(one / "same", stdout="a\n")
    case(other / "same", stdout="a\n")
    case(one / "long", stdout="x" * 500 + "LEFT\n")
    case(other / "long", stdout="x" * 500 + "RIGHT\n")
    case(one / "new", stdout="a\n")
    case(one / "end", stdout="a\n")
    case(other / "end", stdout="a")
    assert corpus.compare(one, other, "", 5) == 3
    shown = capsys.readouterr().out
    assert "xLEFT" in shown and "xRIGHT" in shown and len(shown) < 1500
    assert "=== new" in shown and "only in" in shown and "=== same" not in shown
    assert corpus.compare(one, one, "", 5) == 0


def test_the_order_of_a_journal_does_not_count() -> None:
    assert corpus.in_order("files/in/x.journal.jsonl", b"b\na\n") == b"a\nb\n"
    assert corpus.in_order("stdout", b"b\na\n") == b"b\na\n"


def test_times_and_folders_do_not_count() -> None:
    text = b'{"wall_s": 1.25e-3, "at": "/a/b/c"}'
    assert corpus.normalise(text, {"/a/b": "<folder>"}) == (
        b'{"wall_s": <seconds>, "at": "<folder>/c"}'
    )

"""Commands as a shell runs them, in this process."""

import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from specsim.commands import app, main


def outcome(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command line, errors as a user sees them."""
    monkeypatch.setattr(sys, "argv", ["specsim", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    code = stop.value.code
    return (code if isinstance(code, int) else 0), out, err


def typing(*first: str) -> Callable[..., str]:
    """A command of these words and those it is called with: its stdout or, where another exit code
    than 0 is expected, its stderr, which is one line of specsim's for a user's error."""

    def command(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object,
        code: int = 0,
    ) -> str:
        found, out, err = outcome(capsys, monkeypatch, *first, *words)
        assert found == code, err
        if code == 2:
            assert err.startswith("specsim: ") and err.count("\n") == 1
        return err if code else out

    return command


def answer(*words: object) -> str:
    """stdout of a command that must succeed."""
    found = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout

"""The journal of a sweep: one JSON line per finished task, so that nothing is computed twice.

What is held in memory is the place of each line; results are read back when they are asked for.

The first line says which sweep it is of; a journal of another definition, of other input files or
of another build of specsim is refused. A last line that was cut short is dropped and its task runs
again. Lines stand in the order in which tasks ended.
"""

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from specsim.errors import FormatError, UsageError
from specsim.files import told
from specsim.jsonable import json_text
from specsim.planning.executors.peers import build_id
from specsim.planning.sweep import Sweep

FORMAT = 2
BEGIN = b'{"specsim_sweep"'


class Journal:
    """Open with `Journal.open`; path None keeps results until it is closed.

    offsets: index of each finished task -> place of its line, in the order of the lines. refused:
    how many of them were refused."""

    def __init__(self, file: IO[bytes], path: Path | None) -> None:
        self._file = file
        self.path = path
        self.offsets: dict[int, int] = {}
        self.refused = 0
        self._end = 0
        self._made = False  # by this run, of nothing

    @classmethod
    def open(cls, path: Path | str | None, sweep: Sweep, *, restart: bool = False) -> Self:
        """A new journal, or the one at `path` with what it has.

        restart: forget what it has. UsageError for a journal of another sweep or one that is in
        use, FormatError for a file that is no journal."""
        header = {
            "specsim_sweep": FORMAT,
            "build": build_id(),
            "fingerprint": sweep.fingerprint,
            "tasks": sweep.count,
            "definition": sweep.to_dict(),
        }
        if path is None:
            journal = cls(tempfile.TemporaryFile(), None)  # noqa: SIM115
            journal._write(header)
            return journal
        place = Path(path)
        made = not place.exists()
        try:
            file = place.open("a+b")
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(
                f"cannot write the journal {str(path)!r}: {reason}; choose another --journal"
            ) from None
        journal = cls(file, place)
        journal._made = made
        try:
            journal._lock()
            file.seek(0, os.SEEK_END)
            if restart and file.tell():
                journal._check_ours()
                file.truncate(0)
            if restart or file.tell() == 0:
                journal._write(header)
            else:
                journal._read(header)
        except BaseException:
            journal.close()
            raise
        return journal

    def _lock(self) -> None:
        """Two runs of one sweep at a time would do every task twice."""
        try:
            import fcntl
        except ImportError:  # not on Windows
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"the journal {str(self.path)!r} is in use by another run; wait for its end or "
                "choose another --journal"
            ) from None
        except OSError:
            return  # a file system without locks

    def _check_ours(self) -> None:
        """Only a journal may be emptied, not a file that was named by mistake."""
        self._file.seek(0)
        if not self._file.read(len(BEGIN)).startswith(BEGIN):
            raise FormatError(
                f"{str(self.path)!r} is not the journal of a sweep; choose another --journal"
            )

    def _read(self, header: dict[str, object]) -> None:
        self._file.seek(0)
        number = 0
        while True:
            start = self._file.tell()
            line = self._file.readline()
            if not line:
                break
            number += 1
            whole = line.endswith(b"\n")
            entry = _parsed(line) if whole else None
            if number == 1:
                if whole or not BEGIN.startswith(line[: len(BEGIN)]):
                    self._check_header(entry, header)
                else:
                    # Killed while the first line was written: nothing was finished.
                    self._file.truncate(0)
                    self._write(header)
                    return
            elif entry is None or not isinstance(index := entry.get("task"), int):
                if self._file.read(1):
                    raise FormatError(
                        f"the journal {str(self.path)!r} is damaged at line {number}; delete that "
                        "line (its task runs again) or start anew with --restart"
                    )
                self._file.truncate(start)
                self._end = start
                return
            else:
                self._found(index, start, entry)
            self._end = self._file.tell()

    def _check_header(self, found: dict[str, object] | None, wanted: dict[str, object]) -> None:
        name = repr(str(self.path))
        if found is None or found.get("specsim_sweep") != FORMAT:
            raise FormatError(f"{name} is not the journal of a sweep; choose another --journal")
        ways = "choose another --journal, or start anew with --restart"
        if found.get("build") != wanted["build"]:
            raise UsageError(
                f"the journal {name} was made by specsim {found.get('build')}, this is "
                f"{wanted['build']}: figures could differ; {ways}"
            )
        if found.get("fingerprint") == wanted["fingerprint"]:
            return
        changed = _changes(found.get("definition"), wanted["definition"])
        what = f"its {changed}" if changed else "a file that it names has changed since"
        raise UsageError(f"the journal {name} is of another sweep: {what}; {ways}")

    def add(self, finished: Iterable[tuple[int, dict[str, object]]]) -> None:
        """Keep what tasks ended with, by their index; it is in the file when this returns."""
        for index, entry in finished:
            self._found(index, self._write({"task": index, **entry}), entry)

    def _found(self, index: int, start: int, entry: dict[str, object]) -> None:
        self.offsets[index] = start
        self.refused += entry.get("error") is not None

    def get(self, index: int) -> dict[str, object]:
        """What `add` kept."""
        self._file.seek(self.offsets[index])
        entry = _parsed(self._file.readline())
        assert entry is not None
        return entry

    def _write(self, value: dict[str, object]) -> int:
        line = json_text(value, compact=True).encode() + b"\n"
        start = self._end
        with told(self.path or "the journal"):
            self._file.seek(start)
            self._file.write(line)
            self._file.flush()
        self._end = start + len(line)
        return start

    def close(self) -> None:
        with suppress(OSError):  # a full disk, which was said
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """A run that was refused, or each of its tasks, leaves no journal of nothing behind."""
        nothing = len(self.offsets) == self.refused
        if kind is not None and self._made and self.path is not None and nothing:
            self.path.unlink(missing_ok=True)
        self.close()


def _parsed(line: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _changes(old: object, new: object) -> str:
    """The first difference of two definitions, in words; '' if there is none."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return "definition was another"
    for part in ("run", "fixed", "grid", "cases", "repeats"):
        before, now = old.get(part), new[part]
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            for name in dict.fromkeys([*before, *now]):
                if before.get(name) != now.get(name):
                    was, is_ = _short(before.get(name)), _short(now.get(name))
                    return f"{part}.{name} was {was}, now {is_}"
        return f"{part} was {_short(before)}, now {_short(now)}"
    return ""


def _short(value: object) -> str:
    if value is None:
        return "not there"
    text = json_text(value)
    return text if len(text) <= 60 else text[:57] + "..."

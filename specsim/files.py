"""Files that a user names: what can be read without waiting for ever, what can be written at all.

A named pipe has no end until somebody writes to it and closes it, and a device such as /dev/zero
has none at all; both look like empty files to a check of their size. Pipes that the shell has
opened for this process, `/dev/stdin` and `<(command)`, are files like any other.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from specsim.errors import FormatError, SpecSimError, UsageError

MAX_BYTES = 1_000_000  # of a file that people write
_OPENED = ("/dev/fd/", "/proc/", "/dev/stdin")
_OPENED_TO_WRITE = ("/dev/fd/", "/proc/self/fd/", "/dev/stdout", "/dev/stderr")


def check_readable(path: Path) -> None:
    """OSError, with the reason in `strerror`, for a pipe nobody may ever write to, a device or a
    socket, as for what cannot be found."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return  # opening a folder is an error of its own
    if stat.S_ISFIFO(mode) and str(path).startswith(_OPENED):
        return
    kind = "named pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
    raise OSError(errno.EINVAL, f"it is a {kind}, not a file", str(path))


def read_limited(path: Path, most: int) -> bytes:
    """At most `most` + 1 bytes of a file, so that the caller sees when there are more. OSError as
    from `check_readable`, ValueError for what is no path."""
    check_readable(path)
    with path.open("rb") as file:
        return file.read(most + 1)


def bytes_of(path: Path, most: int, hint: str = "check the path") -> bytes:
    """A file of at most `most` bytes. FormatError, with the hint where there are more."""
    try:
        raw = read_limited(path, most)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"{path} cannot be read: {reason}") from None
    if len(raw) > most:
        raise FormatError(f"{path} is larger than {most / 1e6:g} MB; {hint}")
    return raw


def file_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a file of at most `most` bytes. FormatError."""
    return utf8(bytes_of(path, most), str(path), "save it as UTF-8")


def utf8(raw: bytes, where: str, hint: str, encoding: str = "utf-8-sig") -> str:
    """The text of a file; FormatError with the line that is none, and the hint."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FormatError(f"{where}: line {line} is not UTF-8 text; {hint}") from None


def text_of(path: Path, most: int, missing: str, too_large: str, hint: str) -> str:
    """The text of a regular file of at most `most` bytes. FormatError that begins with the path:
    what is `missing`, what to do about a file that is `too_large`, and the `hint` of `utf8`."""
    try:
        if not path.is_file():
            raise FormatError(f"{path}: not a file; {missing}")
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a null character in the path
        raise FormatError(f"{path!r}: not a path ({error})") from None
    if len(raw) > most:
        raise FormatError(f"{path}: {too_large}")
    return utf8(raw, str(path), hint)


def check_writable(
    path: str | Path | None, option: str, inputs: Iterable[str | Path | None] = ()
) -> None:
    """UsageError for an output file that could not be written after the work, or that would take
    the place of one of `inputs` (files that are read, or written besides). Missing folders are not
    made here; the closest one that exists has to be writable. None: nothing is written."""
    if path is None:
        return
    shown = ascii(str(path))[:120]
    try:
        import tempfile

        if not str(path).strip():
            raise UsageError(f"{option} is empty; name a file")
        if "\0" in str(path):
            raise ValueError("it holds a null character")
        target = Path(path)
        if target.is_dir():
            raise UsageError(f"{option} {shown} is a folder; name a file in it")
        if str(path).startswith(_OPENED_TO_WRITE) and target.exists():
            return
        if target.exists() and not target.is_file():
            raise UsageError(f"{option} {shown} is a pipe or device; name a file")
        folder = target.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise UsageError(f"{option} {shown} is below {folder}, which is no folder")
        with tempfile.TemporaryFile(dir=folder):  # leaves no name behind
            pass
        if len(os.fsencode(target.name)) > 250:  # room for the name of an unfinished file
            raise UsageError(f"{option} {shown} is too long for a file name; shorten it")
        for other in inputs:
            if other is not None and _same(target, Path(other)):
                raise UsageError(
                    f"{option} {shown} is also given as another file of this command, which it "
                    "would replace; name another"
                )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{option} {shown} cannot be written: {reason}") from None


def _same(one: Path, two: Path) -> bool:
    try:
        if one.exists() and two.exists():
            return one.samefile(two)
        return os.path.abspath(one) == os.path.abspath(two)
    except (OSError, ValueError):
        return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name to write to, beside `path`, which it replaces once all is written: `path` is there
    whole or as it was. A missing folder is made; what goes wrong passes through, and leaves no file
    behind; what a killed process leaves, the next one that writes `path` takes away. A link goes on
    pointing to what it points to, which is replaced. A device, a pipe or what the shell has opened
    (/dev/stdout) is written to itself: one that were replaced by a file would be lost to the whole
    machine."""
    opened = str(path).startswith(_OPENED_TO_WRITE)
    if path.exists() and (opened or not path.is_file()):
        yield path
        return
    if path.is_symlink():
        path = path.resolve()
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except BaseException:
        # Where the folder itself is missing or no folder, there is nothing to remove either.
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@contextmanager
def writing(
    path: Path, kind: type[SpecSimError] = UsageError, newline: str | None = None
) -> Iterator[IO[str]]:
    """A text file that is open for writing and appears complete or not at all (`replacing`).
    `kind` of error where it cannot be written."""
    with told(path, kind), replacing(path) as part, part.open(
        "w", encoding="utf-8", newline=newline
    ) as file:
        yield file


@contextmanager
def told(path: str | Path, kind: type[SpecSimError] = UsageError) -> Iterator[None]:
    """An OSError of what is written to `path` as one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise kind(f"cannot write {ascii(str(path))[:120]}: {reason}") from None


def write_whole(path: Path, text: str) -> None:
    """A text file, complete or not at all. FormatError where it cannot be written."""
    with writing(path, FormatError) as file:
        file.write(text)

"""Files that a user names: pipes and devices are told from files, outputs are checked before."""

import os
import socket
import threading
from pathlib import Path

import pytest

from specsim.errors import FormatError, UsageError
from specsim.files import check_readable, check_writable, read_limited, replacing, write_whole


def test_a_pipe_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="named pipe"):
        read_limited(pipe, 10)


def test_devices_and_sockets_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="device"):
        read_limited(Path("/dev/zero"), 10)
    place = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        with pytest.raises(OSError, match="socket"):
            check_readable(place)


def test_a_pipe_that_the_shell_opened_is_read() -> None:
    """`<(command)` names one as /dev/fd/N."""
    read, write = os.pipe()
    try:
        threading.Thread(target=lambda: (os.write(write, b"text"), os.close(write))).start()
        assert read_limited(Path(f"/dev/fd/{read}"), 10) == b"text"
    finally:
        os.close(read)


def test_one_byte_more_than_allowed_shows_that_a_file_is_too_large(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"x" * 100)
    assert len(read_limited(place, 10)) == 11
    assert len(read_limited(place, 100)) == 100


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    for bad, words in (
        (tmp_path, "is a folder"),
        ("", "is empty"),
        (tmp_path / "pipe", "pipe or device"),
        ("/dev/full", "pipe or device"),
        (tmp_path / "file" / "x.json", "no folder"),
        ("/proc/specsim-x.json", "cannot be written"),
        (tmp_path / ("a" * 300), "too long"),
        ("a\0b", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=words) as seen:
            check_writable(bad, "--out")
        assert str(seen.value).startswith("--out ")
        assert "\n" not in str(seen.value)


def test_good_outputs_leave_no_trace_of_the_check(tmp_path: Path) -> None:
    check_writable(None, "--out")
    check_writable(tmp_path / "new.json", "--out", [tmp_path / "other.json", None])
    check_writable(tmp_path / "further" / "down" / "new.json", "--out")
    assert list(tmp_path.iterdir()) == []


def test_an_output_never_takes_the_place_of_an_input(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("{}")
    os.symlink(tmp_path / "in.json", tmp_path / "link.json")
    for out in (tmp_path / "in.json", tmp_path / "link.json", tmp_path / "x" / ".." / "in.json"):
        with pytest.raises(UsageError, match="would replace"):
            check_writable(out, "--out", [tmp_path / "in.json"])
    # also two outputs of one command that do not exist yet
    with pytest.raises(UsageError, match="would replace"):
        check_writable(tmp_path / "new", "--report", [tmp_path / "new"])


def test_a_file_is_replaced_whole_or_left_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(target) as part:
        part.write_text("ha")
        raise KeyboardInterrupt
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["result.json"]
    with replacing(target) as part:
        part.write_text("new")
    assert target.read_text() == "new" and len(list(tmp_path.iterdir())) == 1


def test_a_text_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    write_whole(tmp_path / "made" / "a.txt", "text")
    assert (tmp_path / "made" / "a.txt").read_text() == "text"
    with pytest.raises(FormatError, match=r"cannot write .*b\.txt"):
        write_whole(tmp_path / "made" / "a.txt" / "b.txt", "text")


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with replacing(pipe) as part:
        assert part == pipe
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]

"""Files that a user names: pipes and devices are told from files, outputs are checked before, and
all of them are written by one writer, whole or not at all."""

import ast
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from small_disk import small_disk
from sources import PACKAGE, modules, nodes_of

from specsim.errors import FormatError, UsageError
from specsim.files import (
    check_readable,
    check_writable,
    read_limited,
    replacing,
    write_whole,
    writing,
)

# Files that grow by whole lines while the work goes on, and are continued.
JOURNALS = {"sweep_journal.py", "accuracy/run_plan.py", "distill.py", "measure/run.py"}
UNFINISHED = {"decoder/models.py"}  # writes the part that `replacing` gave it


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


def test_a_link_goes_on_pointing_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "a.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_standard_output_of_the_shell_is_written_to_itself(tmp_path):
    """`> file` makes /dev/stdout a link to a file: nothing is put in its place in /dev."""
    with (tmp_path / "out").open("w+") as file:
        name = f"/dev/fd/{file.fileno()}"
        check_writable(name, "--out")
        write_whole(Path(name), "text")
        assert (tmp_path / "out").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_process_left_is_taken_away(tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("good")
    child = os.fork()
    if not child:  # is killed while it writes
        with writing(target) as file:
            file.write("half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert target.read_text() == "good" and len(list(tmp_path.iterdir())) == 2
    write_whole(target, "new")
    assert target.read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("good")
    with small_disk(10_000), pytest.raises(FormatError, match=r"cannot write .*File too large"):
        write_whole(target, "x" * 100_000)
    assert target.read_text() == "good" and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def _writes(node: ast.Call) -> bool:
    """Whether a call opens a file for writing, or writes one by its name."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in ("write_text", "write_bytes", "NamedTemporaryFile", "mkstemp"):
        return True
    if name in ("savefig", "save_file", "write_table", "to_parquet", "write_image", "write_html"):
        # these take a name: the one that `replacing` gives
        return not any(getattr(word, "id", "") == "part" for word in node.args)
    if name != "open":
        return False
    words = [word.value for word in (*node.args, *(k.value for k in node.keywords))
             if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return any(set(word) & set("wax+") for word in words if set(word) <= set("rwaxbt+"))


def test_all_outputs_go_through_the_one_writer():
    found = []
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        if name == "files.py" or name.endswith((*JOURNALS, *UNFINISHED)):
            continue
        found += [
            f"{name}:{node.lineno}" for node in nodes_of(path)
            if isinstance(node, ast.Call) and _writes(node)
        ]
    # the one left is standard error where the process has none
    assert [place.partition(":")[0] for place in found] == ["commands/__init__.py"], found


def test_there_is_one_check_of_outputs():
    names = [node.name for path in modules() for node in nodes_of(path)
             if isinstance(node, ast.FunctionDef)]
    for name in ("check_writable", "replacing", "writing", "write_whole"):
        assert names.count(name) == 1

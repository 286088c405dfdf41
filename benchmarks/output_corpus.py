"""What specsim prints and writes, kept for 350 commands and compared between two checkouts.

    python benchmarks/output_corpus.py record DIR [--tree CHECKOUT] [--only WORD] [--jobs N]
    python benchmarks/output_corpus.py compare DIR DIR [--only WORD] [--lines N]

`record` runs every command of output_corpus.txt with the package of CHECKOUT (default: this one) in
an empty folder of its own and keeps, in DIR/NAME/, the command, stdout, stderr, exit code and every
file that it made. `compare` lists what differs and exits with 1 if anything does.

What is not the program's doing is replaced before it is kept: folders, durations, dates and the
build's id. Everything else counts, byte by byte.
"""

import argparse
import difflib
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = Path(__file__).with_name("output_corpus.txt")
# Where `in/NAME` is looked for: always in this checkout, so that both sides read the same files.
INPUTS = (
    "benchmarks/output_corpus", "tests/formats/data", "tests/report/data", "docs",
    "validation/data/published", "validation/data", "validation/measured/cpu",
)
TIMEOUT_S = 180
SLOW_S = 6.0  # a case that takes longer is named
_INPUT = re.compile(r"\bin/([\w./-]+)")
_SHIM = """#!{python} -P
import sys
sys.argv[0] = "specsim"
from specsim.commands import main
if __name__ == "__main__":
    main()
"""
# Big files that never change (the plotting library inside a page) are kept as their length.
_LIBRARY = re.compile(rb"<script[^>]*>[^<]{0,200}plotly\.js v.*?</script>", re.DOTALL)
_NORMALISE: tuple[tuple[re.Pattern[bytes], bytes], ...] = (
    (re.compile(rb'("(?:wall|elapsed|run)_s": )[0-9.e-]+'), rb"\1<seconds>"),
    (re.compile(rb'("(?:git_sha|build)": ?)"[^"]*"'), rb'\1"<build>"'),
)


@dataclass(frozen=True)
class Case:
    """One line of the corpus."""

    name: str
    command: str


@dataclass(frozen=True)
class Output:
    """What a command left: 'stdout', 'stderr', 'exit' and 'files/PATH', as kept; and its time."""

    parts: dict[str, bytes]
    seconds: float


def cases(only: str = "") -> list[Case]:
    """The corpus, or those cases whose name or command has the word."""
    found: dict[str, Case] = {}
    for line in COMMANDS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, bar, command = line.partition(" | ")
        if not bar or name in found:
            raise SystemExit(f"{COMMANDS.name}: a case is NAME | COMMAND, once: {line!r}")
        found[name] = Case(name, command.strip())
    return [case for case in found.values() if only in case.name or only in case.command]


def source_of(name: str) -> Path:
    """The file or folder of this checkout that a command calls in/NAME."""
    for folder in INPUTS:
        path = ROOT / folder / name
        if path.exists():
            return path
    raise SystemExit(f"no input {name!r} in {', '.join(INPUTS)}")


def run(case: Case, tree: Path, tools: Path) -> Output:
    """One case in an empty folder, by the package of this checkout."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as name:
        folder = Path(name).resolve()
        for word in dict.fromkeys(_INPUT.findall(case.command)):
            source, target = source_of(word), folder / "in" / word
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        before = {path: path.read_bytes() for path in files_in(folder)}
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(folder),
            "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "LANG": "C.UTF-8", "TZ": "UTC",
            "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "MPLCONFIGDIR": str(tools),
            "XDG_CACHE_HOME": str(tools),
        }
        start = time.monotonic()
        try:
            done = subprocess.run(
                ["bash", "-c", case.command], cwd=folder, env=environment, check=False,
                capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            code, out, err = -1, b"", f"longer than {TIMEOUT_S} s".encode()
        seconds = time.monotonic() - start
        parts = {"exit": f"{code}\n".encode(), "stdout": out, "stderr": err}
        for path in files_in(folder):
            content = path.read_bytes()
            if before.get(path) != content:
                parts[f"files/{path.relative_to(folder)}"] = content
        names = {str(folder): "<folder>", str(tree): "<tree>", folder.name: "<folder>"}
        return Output({
            part: in_order(part, normalise(content, names)) for part, content in parts.items()
        }, seconds)


def files_in(folder: Path) -> list[Path]:
    """Its files, at any depth, without caches."""
    return sorted(
        path for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.parts[-3:])
    )


def normalise(content: bytes, names: dict[str, str]) -> bytes:
    """Without what the machine, the folder and the time add."""
    for name, sign in names.items():
        content = content.replace(name.encode(), sign.encode())
    content = _LIBRARY.sub(lambda found: b"<library of %d bytes>" % len(found[0]), content)
    for pattern, by in _NORMALISE:
        content = pattern.sub(by, content)
    return content


def in_order(part: str, content: bytes) -> bytes:
    """The lines of a sweep's journal stand as its tasks end, which is chance: they are sorted."""
    if not part.endswith(".journal.jsonl"):
        return content
    return b"".join(sorted(content.splitlines(keepends=True)))


def record(target: Path, tree: Path, only: str, jobs: int) -> None:
    """Run the corpus and keep what comes out."""
    chosen = cases(only)
    with tempfile.TemporaryDirectory(prefix="corpus-tools-") as name:
        tools = Path(name)
        shim = tools / "specsim"
        shim.write_text(_SHIM.format(python=sys.executable), encoding="utf-8")
        shim.chmod(0o755)
        python = tools / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -P "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        start = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            outputs = pool.map(lambda case: run(case, tree, tools), chosen)
            for number, (case, output) in enumerate(zip(chosen, outputs, strict=True), 1):
                keep(target / case.name, case, output)
                if output.seconds > SLOW_S:
                    print(f"{case.name}: {output.seconds:.0f} s")
                if number % 25 == 0 or number == len(chosen):
                    taken = time.monotonic() - start
                    print(f"{number} of {len(chosen)}, {taken:.0f} s", flush=True)


def keep(folder: Path, case: Case, output: Output) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for part, content in {**output.parts, "command": case.command.encode() + b"\n"}.items():
        path = folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def kept(folder: Path) -> dict[str, bytes]:
    """What `keep` wrote, by part; nothing where the case was never recorded."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }


def compare(one: Path, other: Path, only: str, lines: int) -> int:
    """Print what differs; how many cases do."""
    names = sorted(
        {path.name for side in (one, other) for path in side.iterdir() if path.is_dir()}
    )
    differing = 0
    for name in names:
        left, right = kept(one / name), kept(other / name)
        if left == right or (only not in name and only not in left.get("command", b"").decode()):
            continue
        differing += 1
        print(f"=== {name}: {(left or right)['command'].decode().strip()}")
        if not left or not right:
            print(f"    only in {one if left else other}")
            continue
        for part in sorted(set(left) | set(right)):
            if left.get(part) != right.get(part):
                for text in short_diff(part, left.get(part), right.get(part), lines):
                    print(f"    {text}")
    print(f"{differing} of {len(names)} commands differ")
    return differing


def short_diff(part: str, left: bytes | None, right: bytes | None, lines: int) -> Iterator[str]:
    """A few lines that show how two contents differ; of long lines the place where they part."""
    if left is None or right is None:
        yield f"{part}: only on the {'right' if left is None else 'left'}"
        return
    before, after = (content.decode(errors="replace").splitlines() for content in (left, right))
    diff = [
        text for text in difflib.unified_diff(before, after, lineterm="", n=0)
        if not text.startswith(("---", "+++", "@@"))
    ] or ["(the same lines; another end of line or no end of the last one)"]
    yield f"{part}:"
    at = first_difference(diff)
    for text in diff[:lines]:
        part_shown = f"{text[0]}...{text[max(1, at - 40) : at + 110]}"
        yield f"  {text if len(text) <= 160 else part_shown}"
    if len(diff) > lines:
        yield f"  ... {len(diff) - lines} more lines"


def first_difference(diff: list[str]) -> int:
    """Where the first removed and the first added line part."""
    removed = next((text for text in diff if text.startswith("-")), "")
    added = next((text for text in diff if text.startswith("+")), "")
    pairs = zip(removed[1:], added[1:], strict=False)
    return 1 + sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run the corpus and keep its output")
    recording.add_argument("target", type=Path, metavar="DIR")
    recording.add_argument("--tree", type=Path, default=ROOT, help="checkout whose package runs")
    recording.add_argument("--jobs", type=int, default=1, help="commands at a time")
    comparing = actions.add_parser("compare", help="list the commands whose output differs")
    comparing.add_argument("one", type=Path, metavar="DIR")
    comparing.add_argument("other", type=Path, metavar="DIR")
    comparing.add_argument("--lines", type=int, default=12, help="lines of a difference")
    for action in (recording, comparing):
        action.add_argument("--only", default="", metavar="WORD", help="cases that hold it")
    options = parser.parse_args()
    if options.action == "compare":
        return int(compare(options.one, options.other, options.only, options.lines) > 0)
    record(options.target, options.tree.resolve(), options.only, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

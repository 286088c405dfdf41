"""Does what README, tutorial and how-to pages show, to the letter, as somebody who has only them.

    python tests/literal.py [--light | --decoder] [PAGE ...]

In a copy of the checkout and a home folder of its own, with one environment per install line: a
page starts in that of `pip install .`; a line that installs extras puts the rest of the page into
one with those extras and no others. It is made from a copy of the largest other one that holds
nothing else. The checkout is made into a wheel once, and the `.` of every install line is that
wheel; the pip is that of the interpreter which runs this script, so that an environment holds what
the install line brings and nothing more. Of the README it is the section "Use". Read are the
fenced blocks without a language (every line a command), `console` blocks (lines that begin with
"$ ") and `python` blocks; the marks of docs/_ext/generated.py hold. `specsim serve` and `explore`
run beside what follows until the page ends or the next one starts. What takes minutes is typed
shorter (SHORTER).

A command has to end with 0 (or the code of its mark), a text between the marks output:begin and
output:end has to have the shape of what the command before it printed: the same lines up to their
first figure; a line "..." stands for any. A block is left out where the sentence above it ends with
"(needs a server of your own):" or the like; readers see that sentence too.

--light leaves out what needs the extra `decoder`, --decoder the rest. Ends with 0 if all went well.
"""

import argparse
import os
import re
import resource
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES, HOWTO = ("README.md", "docs/tutorial.md"), "docs/howto"
TIMEOUT_S = 900
CORE = "pip install ."
PIP = f"{shlex.quote(sys.executable)} -m pip"
# What takes minutes, and what is typed instead: a shorter run that prints the same lines.
SHORTER = {
    "simulate --scenario mindrouter-chat --users 180":
        "simulate --scenario mindrouter-chat --users 180 --replications 2",
    "capacity --scenario mindrouter-chat --users 180":
        "capacity --scenario mindrouter-chat --users 180 --quick",
    "--replications 4 --duration 60": "--replications 2 --duration 20",
    "policies llama-3.1-8b --k 5 --concurrency 96":
        "policies llama-3.1-8b --k 5 --concurrency 96 --replications 2",
    "fleet docs/fleet.toml": "fleet docs/fleet.toml --quick",
    # Kernels and the first whole steps; below a minute of CPU time there is no engine's profile.
    "measure --budget 240s": "measure --budget 120s",
    "coding-agent --duration 200": "coding-agent --duration 60",
    "--users 32 --duration 200": "--users 32 --duration 60",
}
SERVERS = (["specsim", "serve"], ["specsim", "explore"])  # run until they are stopped

generated: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "_ext" / "generated.py"))

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>run|file): (?P<words>[^\n]*?) -->\n)?"
    r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# What a command may know of the environment that this script was started in.
KEPT = re.compile(r"(PIP|SSL|REQUESTS|OMP)_|(?i:\w+_proxy$)|(LANG|LC_ALL|TMPDIR)$")
NEEDS = re.compile(r"\(needs (?:a|an|files|the)\b[^()]*\):?\s*\Z")


@dataclass(frozen=True)
class Block:
    """kind: install, shell, python, output, left out. code: the exit code to expect."""

    kind: str
    lines: tuple[str, ...]
    code: int = 0
    file: str = ""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that a reader would type or compare."""
    for match in FENCE.finditer(text):
        before, info, body = text[: match.start()], match["info"].strip(), match["body"]
        settings = dict(w.split("=", 1) for w in (match["words"] or "").split() if "=" in w)
        code = int(settings.get("exit", 0))
        file = match["words"].strip() if match["mark"] == "file" else ""
        if before.rstrip().endswith("<!-- output:begin -->"):
            yield Block("output", tuple(body.splitlines()))
        elif NEEDS.search(before):
            yield Block("left out", tuple(body.splitlines()))
        elif info == "python":
            yield Block("python", (body,), file=file)
        elif info == "console":
            yield Block("shell", tuple(generated["commands_of"](body)), code)
        elif info == "":
            commands = tuple(body.replace("\\\n", "").splitlines())
            first = [line for line in commands if not line.startswith("pip install")]
            if len(first) < len(commands):
                yield Block("install", tuple(c for c in commands if c not in first))
            yield Block("shell", tuple(first), code)
        elif file:
            yield Block("file", (body,), file=file)


def shape(text: str) -> list[str]:
    """What has to be the same on every machine: each line up to its first figure."""
    lines = [re.sub(r"\d.*", "", line) for line in text.splitlines()]
    return [" ".join(re.sub(r"-{2,}", "-", line).split()) for line in lines]


def same_shape(page: list[str], printed: list[str]) -> str:
    """'' where the lines of the page are those that were printed, else the first that is not."""
    position, free = 0, False
    for line in page:
        if line == "...":
            free = True
            continue
        end = len(printed) if free else min(position + 1, len(printed))
        if line not in printed[position:end]:
            return line
        position, free = printed.index(line, position, end) + 1, False
    return "" if free or not any(printed[position:]) else f"nothing after {page[-1]!r}"


def of_wheel(install: str, wheel: str) -> str:
    """An install line with the wheel of the checkout in place of the checkout."""
    form = r"pip install (?P<quote>['\"]?)\.(?P<extras>\[[\w,-]+\])?(?P=quote)"
    said = re.fullmatch(form, install)
    if said is None:
        raise SystemExit(f"literal: `{install}` is not of the form pip install '.[EXTRA,...]'")
    return f"pip install {shlex.quote(wheel + (said['extras'] or ''))}"


def cpu_s() -> float:
    """CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def extras_of(install: str) -> frozenset[str]:
    """The extras that an install line brings, with those that they name in turn."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting, found = re.findall(r"[\w-]+", install.partition("[")[2].partition("]")[0]), set()
    while waiting:
        extra = waiting.pop()
        if extra not in found:
            found.add(extra)
            for line in declared["optional-dependencies"][extra]:
                name, _, inner = line.partition("[")
                if name == declared["name"]:
                    waiting += re.findall(r"[\w-]+", inner.partition("]")[0])
    return frozenset(found)


def smaller(install: str, known: Iterable[str]) -> str:
    """The install line that brings most of what this one brings, and nothing else."""
    inside = [line for line in known if extras_of(line) < extras_of(install)]
    return max(sorted(inside), key=lambda line: len(extras_of(line)), default=CORE)


def linked(source: Path, folder: Path) -> None:
    """A virtual environment like another, of hard links; its scripts start its own interpreter."""
    shutil.copytree(source, folder, symlinks=True, copy_function=os.link)
    for script in (folder / "bin").iterdir():
        raw = script.read_bytes()
        if not script.is_symlink() and raw.startswith(b"#!"):
            script.unlink()
            script.write_bytes(raw.replace(bytes(source), bytes(folder)))
            script.chmod(0o755)


@dataclass
class Reader:
    """One machine on which pages are followed. found: what went wrong, in words."""

    work: Path
    stage: str
    pages: list[str]
    found: list[str] = field(default_factory=list)
    spent_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkout = self.work / "specsim"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
            capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, listed):
            if (ROOT / name).is_file():
                target = self.checkout / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
        self._output, self._server = "", None
        self._wheel = ""
        self._installs = {install for page in self.pages for _, install in self._blocks(page)}
        (self.work / "home").mkdir()

    # --- environments -------------------------------------------------------------------------

    def environment(self, install: str) -> Path:
        """The environment of this line, made on first use."""
        folder = self.work / ("env-" + re.sub(r"[^a-z]+", "-", install))
        if folder.exists():
            return folder
        if install == CORE:
            venv.create(folder)
            begin, cpu = time.monotonic(), cpu_s()
            self._done(f"{PIP} wheel --no-deps --wheel-dir {self.work}/dist .", folder)
            (wheel,) = (self.work / "dist").iterdir()
            self._wheel = str(wheel)
        else:
            source = self.environment(smaller(install, self._installs))
            begin, cpu = time.monotonic(), cpu_s()
            linked(source, folder)
        typed = of_wheel(install, self._wheel).removeprefix("pip ")
        self._done(f"{PIP} --python {folder} {typed}", folder)
        if install == CORE:  # leaves byte code of what commands import for the copies
            self._done("specsim predict", folder)
        took, cpu = time.monotonic() - begin, cpu_s() - cpu
        files = [f for f in folder.rglob("*") if f.is_file() and not f.is_symlink()]
        megabytes = sum(f.stat().st_size for f in files) / 1e6
        print(f"{took:6.1f} s {cpu:6.1f} CPU s  {megabytes:.0f} MB  {install}", flush=True)
        self.spent_s[install] = took
        return folder

    def _done(self, command: str, folder: Path) -> None:
        done = self._run(command, folder)
        if done.returncode:
            raise SystemExit(f"literal: `{command}` failed:\n{done.stdout[-3000:]}")

    def _variables(self, folder: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
        cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
        return {**kept, "HOME": str(self.work / "home"), "PIP_CACHE_DIR": cache, "NO_COLOR": "1",
                "COLUMNS": "110", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1",
                "PIP_NO_COMPILE": "0",  # pip takes "0" for yes: byte code of what is imported only
                "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder)}

    def _run(
        self, command: str, folder: Path, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                ["bash", "-c", command], cwd=self.checkout, env=self._variables(folder), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, input=stdin, timeout=TIMEOUT_S,
                check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, f"not done after {TIMEOUT_S} s")

    # --- pages --------------------------------------------------------------------------------

    def _blocks(self, page: str) -> Iterator[tuple[Block, str]]:
        """The blocks of a page that this stage follows, in order, each with its install line."""
        install, text = CORE, (self.checkout / page).read_text(encoding="utf-8")
        if page == "README.md":
            text = text.partition("\n## Use\n")[2].partition("\n## ")[0]
        for block in blocks(text):
            if block.kind == "install":
                install = " ".join(block.lines[0].partition("#")[0].split())
            elif self.stage == "all" or (self.stage == "decoder") == ("decoder" in install) \
                    or block.file or block.kind == "left out":
                yield block, install

    def follow(self, page: str) -> None:
        """Every block of a page, in order."""
        try:
            for block, install in self._blocks(page):
                if block.kind == "left out":
                    print(f"  left out  {page}: {block.lines[0]}", flush=True)
                elif block.file:
                    path = self.checkout / block.file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.lines[0], encoding="utf-8")
                else:
                    self._do(page, block, install)
        finally:
            self._stop()

    def _do(self, page: str, block: Block, install: str) -> None:
        if block.kind == "output":
            missing = same_shape(shape("\n".join(block.lines)), shape(self._output))
            if missing:
                self.found.append(f"{page}: the page shows what was not printed: {missing!r}\n"
                                  f"{self._output[-2000:]}")
            return
        folder = self.environment(install)
        for line in block.lines:
            command = "python -" if block.kind == "python" else line
            for shown, typed in SHORTER.items():
                command = command.replace(shown, typed)
            if not command.strip() or command.lstrip().startswith("#"):
                continue
            begin, cpu = time.monotonic(), cpu_s()
            if shlex.split(command, comments=True)[:2] in SERVERS:
                code = self._serve(command, folder)
            else:
                done = self._run(command, folder, line if block.kind == "python" else "")
                code, self._output = done.returncode, done.stdout
            took, cpu = time.monotonic() - begin, cpu_s() - cpu
            wrong = code != block.code or "Traceback" in self._output
            ended = f", ended with {code}" if wrong else ""
            print(f"{took:6.1f} s {cpu:6.1f} CPU s  {page}: {command}{ended}", flush=True)
            self.spent_s[page] = self.spent_s.get(page, 0.0) + took
            if wrong:
                self.found.append(f"{page}: `{command}` ended with {code}, not {block.code}:\n"
                                  f"{self._output[-2000:]}")

    def _serve(self, command: str, folder: Path) -> int:
        """Start a server and wait until it says where it is."""
        self._stop()
        said = self.work / "server.txt"
        with said.open("w", encoding="utf-8") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.checkout, stdout=log, stderr=log,
                env=self._variables(folder), start_new_session=True)
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and self._server.poll() is None:
            self._output = said.read_text(encoding="utf-8")
            if re.search(r"^specsim.* http://", self._output, re.MULTILINE):
                return 0
            time.sleep(0.2)
        self._output = said.read_text(encoding="utf-8")
        return self._server.poll() or 1

    def _stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(30)
            except subprocess.TimeoutExpired:
                self._server.kill()
            self._server = None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--light", dest="stage", action="store_const", const="light", default="all")
    which.add_argument("--decoder", dest="stage", action="store_const", const="decoder")
    asked = parser.parse_args()
    howto = sorted(str(path.relative_to(ROOT)) for path in (ROOT / HOWTO).glob("*.md"))
    pages = asked.pages or [*PAGES, *howto]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="literal-") as work:
        reader = Reader(Path(work), asked.stage, pages)
        for page in pages:
            reader.follow(page)
    print(*reader.found, sep="\n\n")
    print(f"{len(pages)} pages, {len(reader.found)} faults, {time.monotonic() - begin:.0f} s, "
          f"{cpu_s():.0f} CPU s, "
          f"installation {sum(s for k, s in reader.spent_s.items() if k.startswith('pip')):.0f} s")
    return 1 if reader.found else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the pages hold besides prose: output of commands, help texts, tables, the accuracy report.

A page is Markdown with three kinds of marks, expanded when the pages are built (and by the tests),
so that nothing in them is copied by hand:

    ```console                 every line "$ command" is run, its output follows. The blocks of a
    $ specsim predict ...      page share one folder that is empty but for examples/, as a
    ```                        checkout has it

    <!-- run: head=12 -->      before such a block: only so many lines of each output; tail=N the
                               last ones; exit=N: the exit code to expect; show=no: no output
    <!-- file: NAME -->        before any other block: its text is written to that file first
    <!-- insert: KIND ... -->  commands, options NAME, report FILE, measurements,
                               benchmarks matrix, benchmarks passed_over,
                               accuracy left_out, accuracy in_sample
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "validation" / "reports"
WIDTH = 100
TIMEOUT_S = 300

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>run|file): (?P<words>[^\n]*?) -->\n)?"
    r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_INSERT = re.compile(r"^<!-- insert: (?P<words>[^\n]*?) -->$", re.MULTILINE)


class PageError(Exception):
    """A page whose commands do not do what it says."""


def expand(text: str, page: str, run: bool = True) -> str:
    """The page with everything in it that is made; without `run` commands stand as they are.
    PageError where a command fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = _tools(folder / ".tools")
        shutil.copytree(ROOT / "examples", folder / "examples")

        def block(match: re.Match[str]) -> str:
            body, info = match["body"], match["info"].strip()
            words = match["words"] or ""
            if match["mark"] == "file":
                path = folder / words.strip()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body, encoding="utf-8")
            if info != "console" or not run:
                return match[0]
            settings = dict(word.split("=", 1) for word in words.split())
            return f"```console\n{_run_all(body, settings, folder, tools, page)}```"

        text = _BLOCK.sub(block, text)
    return _INSERT.sub(lambda match: _insert(match["words"].split(), page), text)


# --- commands ---------------------------------------------------------------------------------


def _tools(folder: Path) -> Path:
    """A folder with `specsim` and `python` as an installation would have them."""
    folder.mkdir()
    for name, words in (("specsim", "-m specsim "), ("python", "")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder


def commands_of(body: str) -> list[str]:
    """The commands of a console block; a line that ends in a backslash goes on."""
    lines = body.replace("\\\n", "\\\0").splitlines()
    return [line[2:].replace("\\\0", "\\\n") for line in lines if line.startswith("$ ")]


def _run_all(
    body: str, settings: dict[str, str], folder: Path, tools: Path, page: str
) -> str:
    from specsim.report.layout import command_lines

    shown = []
    for command in commands_of(body):
        output = _run(command, int(settings.get("exit", 0)), folder, tools, page)
        lines = output.splitlines()
        if "head" in settings and len(lines) > int(settings["head"]):
            lines = [*lines[: int(settings["head"])], "..."]
        if "tail" in settings and len(lines) > int(settings["tail"]):
            lines = ["...", *lines[-int(settings["tail"]) :]]
        if settings.get("show") == "no":
            lines = []
        words = command if "\n" in command else command_lines(command, WIDTH, 2, 2)
        shown.append("\n".join([f"$ {words}", *lines]))
    return "\n\n".join(shown) + "\n"


def _run(command: str, code: int, folder: Path, tools: Path, page: str) -> str:
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "OMP_NUM_THREADS")
            if name in os.environ}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, timeout=TIMEOUT_S, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**kept, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
             "COLUMNS": str(WIDTH), "NO_COLOR": "1"},
    )
    if done.returncode != code:
        raise PageError(
            f"{page}: `{command}` ended with {done.returncode}, not {code}:\n{done.stdout[-2000:]}"
        )
    return done.stdout.replace(str(folder), "/home/me")


# --- tables -----------------------------------------------------------------------------------


def _insert(words: list[str], page: str) -> str:
    kind, *rest = words
    if kind == "commands":
        return command_reference()
    if kind == "options":
        return option_table(rest[0])
    if kind == "report":
        return report_of(rest[0])
    if kind == "measurements":
        return measurements()
    if kind in ("benchmarks", "accuracy"):
        module = {"benchmarks": "bench_matrix.py", "accuracy": "accuracy_tables.py"}[kind]
        return str(runpy.run_path(str(Path(__file__).with_name(module)))[rest[0]]())
    raise PageError(f"{page}: nothing is called {kind!r}")


def help_texts() -> dict[str, str]:
    """`specsim COMMAND --help` of every command, by its name."""
    from typer.testing import CliRunner

    from specsim.commands import app
    from specsim.options.registry import command_models

    runner, found = CliRunner(), {}
    for name in command_models():
        done = runner.invoke(
            app, [*name.split(), "--help"], prog_name="specsim",
            env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"},
        )
        found[name] = done.stdout.strip()
    return found


def command_reference() -> str:
    parts = []
    for name, text in sorted(help_texts().items()):
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## specsim {name}\n\n```text\n{lines}\n```")
    return "\n\n".join(parts)


def option_table(name: str) -> str:
    """The options of a function: name, group, what it may be, default, meaning."""
    from specsim.options.declare import SECTIONS, declared
    from specsim.options.registry import function_models

    words = {"Sequence": "list", "Mapping": "dict"}
    rows = ["| option | group | type | default | meaning |", "|---|---|---|---|---|"]
    known, order = declared(function_models()[name]), ("", *SECTIONS)
    for option, item in sorted(known.items(), key=lambda pair: order.index(pair[1].section)):
        if option == "model":
            continue
        kinds: list[Any] = [*([list] if item.several else []), *item.accepted]
        kind = " or ".join(words.get(part.__name__, part.__name__) for part in kinds)
        meaning = item.option.help.replace("|", "or")
        rows.append(f"| `{option}` | {item.section} | {kind} | `{item.default!r}` | {meaning} |")
    return "\n".join(rows)


def report_of(name: str) -> str:
    """A report of validation/reports/ below a title of the page it stands on."""
    text = (REPORTS / name).read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    body = re.sub(r"\A# [^\n]*\n", "", text)
    body = re.sub(r"^(#+ )", r"#\1", body, flags=re.MULTILINE)
    # What is no part of this documentation is named, not linked.
    body = re.sub(r"\[[^\]]*\]\((?:\.\./)?([\w./-]+)\)", r"`\1`", body)
    return f"## {title}\n\nFrom `validation/reports/{name}`.\n{body.rstrip()}"


def measurements() -> str:
    """What the JSON files of validation/reports/ say, in one table."""
    best, serving, ledger = (
        json.loads((REPORTS / name).read_text(encoding="utf-8"))
        for name in ("best_k.json", "serving.json", "ledger.json")
    )
    sweeps = best["sweeps"]
    good = sum(bool(sweep["good"]) for sweep in sweeps)
    users = serving["mindrouter"]["data"]["capacity_users"]
    fitted, judged = (sum(ledger[key].values()) for key in ("fitted", "judged"))
    rows = (
        ("draft length within 3% of the best measured one", "best_k.json",
         f"{good} of {len(sweeps)} sweeps"),
        ("people that one H200 can serve (MindRouter's chat load test)", "serving.json",
         f"measured {users['measured']}, simulated {users['simulated']}"),
        ("public measurements that served a fit, and that only judge", "ledger.json",
         f"{fitted} and {judged}"),
    )
    lines = [f"| {what} | {answer} | `validation/reports/{name}` |" for what, name, answer in rows]
    return "\n".join(["| question | answer | from |", "|---|---|---|", *lines])

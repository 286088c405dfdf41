"""The `specsim` command. A command is loaded when it runs: its module is imported, and its command
line made from its options, only then; the table here has what the list of all commands shows."""

import errno
import os
import re
import sys
from typing import Any, NoReturn

import typer

from specsim.commands.lazy import ConfiguredGroup
from specsim.errors import SpecSimError, one_line
from specsim.version import __version__

# Question, name, first sentence of the help.
COMMANDS = {
    "Does speculation pay, and how": {
        "predict": "Predict what speculative decoding does: speed, throughput, energy.",
        "explore": "Predict on a local page while settings are changed.",
        "tune": "Choose the method and the draft length.",
        "crossover": "Find the load up to which speculation pays.",
        "explain": "Show where a decode step's time goes.",
    },
    "How does it serve a load": {
        "simulate": "Simulate a load request by request.",
        "policies": "Compare policies that set the draft length while serving.",
        "capacity": "Find the largest load within latency objectives.",
    },
    "What to buy, and how to split it": {
        "compare": "Rank any list of deployments, and say which differences are real.",
        "pareto": "Find the trade-offs of speed per user and throughput per GPU.",
        "matrix": "Compare models x GPUs at one operating point.",
        "fleet": "Place several models on a stock of GPUs.",
        "sweep": "Run every combination of a grid of options.",
    },
    "What is my server doing, and was the prediction right": {
        "quick": "Look at a live server, drive it for a minute, and judge it.",
        "watch": "Watch a live vLLM, SGLang or TensorRT-LLM server.",
        "diagnose": "Say what speculation does in a benchmark or a live server.",
        "validate": "Compare predictions with measurements.",
        "import": "Read benchmark results, metrics and logs of other tools.",
    },
    "How fast is this machine": {
        "measure": "Measure kernels, decode steps and serving on this machine.",
        "calibrate": "Fit a hardware or engine profile to measurements.",
        "generate": "Generate text by speculative decoding with the bundled decoder.",
        "serve": "Serve a model over HTTP with the bundled decoder.",
        "train-head": "Train a one-layer draft head by self-distillation.",
    },
    "What is known, and how to show it": {
        "models": "List the models and drafters of the catalogue, or show one.",
        "gpus": "List the hardware profiles, or show one with its sources.",
        "config": "Show the defaults of specsim.toml, and where each comes from.",
        "report": "Write one HTML page from results of --json.",
    },
}


class Commands(ConfiguredGroup):
    lists = COMMANDS


app = typer.Typer(
    name="specsim",
    cls=Commands,
    help="What speculative decoding will do for an LLM, on a GPU, under a load.",
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"specsim {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """What speculative decoding will do for an LLM, on a GPU, under a load."""


def main() -> None:
    """Entry point: a user's error becomes one line on stderr and exit code 2."""
    # No plug-in has a say in our options, and looking for them in all packages takes time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # typer does not export the base of its usage errors
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    # Started with a closed stream (`>&-`), Python has none there.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    if sys.stdout is None:
        _stop("cannot write the output: standard output is closed", 1)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that the terminal cannot show must not end in a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False, prog_name="specsim")
        sys.stdout.flush()
    except SpecSimError as error:
        _stop(one_line(error), 2)
    except usage_error as error:
        _usage(error)
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): nothing is lost that anyone wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        # A file that a command opened has a name, a standard stream has none.
        what = f"cannot read or write {one_line(error.filename)}" if error.filename else (
            "cannot write the output")
        mistyped = error.errno == errno.ENAMETOOLONG
        _stop(f"{what}: {one_line(error.strerror or error)}", 2 if mistyped else 1)
    except (KeyboardInterrupt, typer.Abort):
        _stop("interrupted", 130)
    raise SystemExit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> NoReturn:
    try:
        sys.stderr.write(f"specsim: {message}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nowhere left to say it; the exit code does
    raise SystemExit(code) from None


# What the parser says of a text that is no number, and the rule in our words.
_NUMBERS = {"valid integer": "a whole number", "valid number": "a number"}


def _usage(error: Any) -> NoReturn:
    """A misspelt option or a value of the wrong kind, as the argument parser found it."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(2) from None
    words = error.ctx.command_path.split()[1:] if error.ctx else []
    message = one_line(error.format_message()).rstrip(".")
    if type(error).__name__ == "NoSuchOption":
        message = _near(error) or message
    if type(error).__name__ == "MissingParameter" and words:
        bare = sys.argv[len(words) + 1 :][:1]  # `matrix MODEL`, as other commands have it
        asked = "--models" in message and bare and not bare[0].startswith("-")
        message = _missing(error, " ".join(words), "" if asked else "; for example: {}")
        if asked:
            message = f"{message}; did you mean --models {one_line(bare[0])[:60]}?"
    name, value = _given(error)
    rule = next((rule for kind, rule in _NUMBERS.items() if kind in message), "")
    if name and rule:
        message = f"{name} is {value}; it must be {rule}"
        if short := re.fullmatch(r"'(\d{1,6})k'", value.lower()):
            message += f": {name} {1024 * int(short[1])}"
    elif name and value not in message:
        message = f"{message}, got {value}"
    end = "" if message.endswith("?") else ";"
    _stop(f"{message}{end} see `{' '.join(['specsim', *words, '--help'])}`", 2)


def _missing(error: Any, command: str, example: str) -> str:
    """What a command lacks, and a line that has it, as `example` says it."""
    what = error.param
    name = what.opts[0] if what.param_type_name == "option" else (what.metavar or what.name.upper())
    lines = (line for line in getattr(error.ctx.command, "examples", ())
             if line.startswith(f"specsim {command}"))
    return f"{command} needs {name.strip('[]{}. ')}{example.format(next(lines, ''))}"


def _near(error: Any) -> str:
    """What an unknown option may mean, '' where its command has no options of its own."""
    known = getattr(getattr(error.ctx, "command", None), "known", {})
    if not known:
        return ""
    from specsim.options.meaning import flag_hint

    command = error.ctx.command_path.partition(" ")[2]
    told = f"{command} has no option {one_line(error.option_name)[:60]}"
    return "; ".join(filter(None, [told, flag_hint(error.option_name, known)]))


def _given(error: Any) -> tuple[str, str]:
    """The option that the parser refused and the text it was given, '' where they are not known."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for position, word in enumerate(sys.argv):
        name, sign, value = word.partition("=")
        if name in names:
            return name, repr((value if sign else sys.argv[position + 1])[:60])
    return "", ""

"""The `specsim` command. A command is loaded when it runs: its module is imported, and its command
line made from its options, only then; the table here has what the list of all commands shows."""

import os
import sys
from typing import Any, NoReturn

import typer

from specsim.commands.lazy import ConfiguredGroup
from specsim.errors import SpecSimError, one_line
from specsim.version import __version__

# Name and first sentence of the help.
COMMANDS = {
    "predict": "Predict what speculative decoding does.",
    "simulate":
        "Simulate a load request by request: tails, queues, bursts, prefix caches, several "
        "replicas.",
    "policies":
        "Compare policies of speculation on one load: goodput, latencies, wasted drafts, and which "
        "differences are real.",
    "explain": "Show where a decode step's time goes: bytes, FLOP, bound and a bar per op.",
    "models": "List the bundled models, or show one: parameters, bytes, cache, state, drafters.",
    "gpus": "List the hardware profiles, or show one with its sources.",
    "import": "Say what FILES are, and show them in one normal form whichever tool wrote them.",
    "measure": "Measure kernels first, then whole steps and serving; one flushed line per point.",
    "generate": "Generate text by speculative decoding, and measure it against plain decoding.",
    "serve":
        "Serve a model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /health, "
        "/version and /metrics.",
    "train-head": "Train a one-layer draft head by self-distillation, inside a time budget.",
    "calibrate": "Fit a hardware profile on RECORDS, or an engine profile on --from files.",
    "crossover":
        "Compare ordinary and speculative decoding while concurrency grows: up to which load "
        "speculative work is cheap, and up to which it pays, by context length.",
    "pareto":
        "Every combination of draft length, GPUs, formats and limits: which give one user the "
        "most speed and a GPU the most throughput.",
    "sweep": "Run every combination of options of a grid.",
    "tune":
        "Choose the method and the draft length: the best per load, a table by batch size, "
        "what would change the answer, and the flags to type.",
    "diagnose":
        "Name what speculation is doing in a run or a live server, with evidence and next "
        "steps.",
    "watch":
        "Watch a live vLLM, SGLang or TensorRT-LLM server: batch, acceptance, step time, and, "
        "with MODEL, whether speculation pays at this load and which k would.",
    "report":
        "Write one self-contained HTML page from results of --json: interactive charts with "
        "the numbers behind them, assumptions with their sources, commands to repeat.",
    "capacity":
        "The largest load within objectives, by simulation, with speculation and without: "
        "what limits it, where to run, how many replicas a demand needs.",
    "fleet":
        "Which endpoints, how many replicas, TP, draft length and slots serve the models of a "
        "file on its GPUs, what happens when a replica fails, and what does not fit.",
    "matrix":
        "Sustained tokens/s per GPU and users per GPU for models x GPUs, with speculation and "
        "without, at one operating point.",
    "config": "Show the defaults that specsim.toml sets, and where each comes from.",
    "validate": "Compare predictions with measurements.",
}


class Commands(ConfiguredGroup):
    table = COMMANDS


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
        _stop(f"{what}: {one_line(error.strerror or error)}", 1)
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


def _usage(error: Any) -> NoReturn:
    """A misspelt option or a value of the wrong kind, as the argument parser found it."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(2) from None
    words = error.ctx.command_path.split()[1:] if error.ctx else []
    message = one_line(error.format_message()).rstrip(".")
    value = _given(error)
    if value and value not in message:
        message = f"{message}, got {value}"
    _stop(f"{message}; see `{' '.join(['specsim', *words, '--help'])}`", 2)


def _given(error: Any) -> str:
    """The text that stood after the option that the parser refused, '' when it is not known."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for position, word in enumerate(sys.argv[:-1]):
        if word in names:
            return repr(sys.argv[position + 1][:60])
    return ""



"""The `specsim` command: one file per command, heavy imports inside the functions."""

import os
import sys
from typing import Any, NoReturn

import typer

from specsim import __version__
from specsim.commands.config_file import ConfiguredGroup

app = typer.Typer(
    name="specsim",
    cls=ConfiguredGroup,
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


MAX_MESSAGE = 1000  # characters of an error line


def one_line(message: object) -> str:
    """An error as one line of readable length, whatever a name or path in it contains."""
    text = " ".join(str(message).split())
    text = "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in text)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."


def main() -> None:
    """Entry point: a user's error becomes one line on stderr and exit code 2."""
    from specsim.errors import SpecSimError

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


from specsim.commands import (  # noqa: E402
    calibrate,
    capacity,
    config,
    crossover,
    diagnose,
    explain,
    fleet,
    generate,
    gpus,
    import_,
    matrix,
    measure,
    models,
    pareto,
    predict,
    report,
    serve,
    simulate,
    sweep,
    train_head,
    tune,
    validate,
    watch,
)

for module in (predict, simulate, explain, models, gpus, import_, validate, measure, generate,
               serve, train_head, calibrate, crossover, pareto, sweep, tune, diagnose, watch,
               report, capacity, fleet, matrix, config):
    module.register(app)

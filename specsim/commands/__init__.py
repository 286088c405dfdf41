"""The `specsim` command: one file per command, heavy imports inside the functions."""

import sys

import typer

from specsim import __version__

app = typer.Typer(
    name="specsim",
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
    """Entry point: user errors become one line on stderr and exit code 2."""
    from specsim.errors import SpecSimError

    try:
        app()
    except SpecSimError as error:
        sys.stderr.write(f"specsim: {error}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): nothing is lost that anyone wanted.
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        sys.stderr.write("specsim: interrupted\n")
        raise SystemExit(130) from None


from specsim.commands import explain, gpus, models, predict, validate  # noqa: E402

for module in (predict, explain, models, gpus, validate):
    module.register(app)

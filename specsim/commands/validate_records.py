"""`specsim validate records`: measured kernels, steps and serving against a profile."""

from specsim.commands.bind import command
from specsim.commands.output import finish
from specsim.files import check_writable
from specsim.options.measured import ValidateRecordsCommand


@command(
    ValidateRecordsCommand,
    "specsim validate records measured.jsonl --gpu my-gpu.toml",
)
def records(options: ValidateRecordsCommand) -> None:
    """Predict every record of `specsim measure`. Points the profile was fitted on are shown
    apart."""
    from specsim.api.validate_records import run
    from specsim.options.values import paths_of

    check_writable(options.out, "--out", [*paths_of(options.files), options.report])
    finish(run(options), options, options.max_error)

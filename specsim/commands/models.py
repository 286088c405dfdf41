"""`specsim models`: the bundled models and drafters, or one of them in full."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.listing import ModelsCommand


@command(
    ModelsCommand,
    "specsim models --search qwen3",
    "specsim models llama-3.1-8b",
)
def models(options: ModelsCommand) -> None:
    """List the models and drafters of the catalogue, or show one. Parameters, bytes, cache, state,
    drafters."""
    from specsim.api.models import run

    found = run(options)
    show(found, options, document=found.to_json)

"""`specsim validate`: predictions against measurements."""

from typing import ClassVar

from specsim.commands.lazy import LazyGroup


class ValidateGroup(LazyGroup):
    prefix = "validate "
    lists: ClassVar = {"Commands": {
        "published": "Score every row of FILES that can be predicted.",
        "live": "Measure a live server and compare with the prediction.",
        "bench": "Compare benchmark results with the prediction.",
        "records": "Predict every record of `specsim measure`.",
        "run": "Measure this machine, fit on one part, predict the rest.",
    }}


GROUP = ValidateGroup(
    name="validate", help="Compare predictions with measurements.", no_args_is_help=True,
    rich_markup_mode=None,
)

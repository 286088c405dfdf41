"""`specsim validate`: predictions against measurements."""

from typing import ClassVar

from specsim.commands.lazy import LazyGroup


class ValidateGroup(LazyGroup):
    prefix = "validate_"
    table: ClassVar = {
        "published": "Score every row of FILES that can be predicted; count the others by reason.",
        "live":
            "Drive the server at URL, simulate the same requests with the acceptance measured "
            "there, and put the measured figures beside the predicted ones, with what explains "
            "the gap.",
        "bench":
            "Simulate the load of every run in FILES with the acceptance that was measured there, "
            "and put the measured figures beside the predicted ones.",
        "records":
            "Predict every record of FILES; points the profile was fitted on are shown apart.",
        "run":
            "Measure, fit on one part, predict the rest; simulate serving first, then serve and "
            "compare.",
    }


GROUP = ValidateGroup(
    name="validate", help="Compare predictions with measurements.", no_args_is_help=True,
    rich_markup_mode=None,
)

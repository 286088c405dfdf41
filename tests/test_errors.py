"""Rules that stand as pairs: the first that does not hold is the message."""

import pytest

from specsim.errors import FormatError, UsageError, require


def test_the_first_rule_that_does_not_hold_is_raised() -> None:
    require((True, "a"), (True, "b"))
    with pytest.raises(UsageError, match=r"^b$"):
        require((True, "a"), (False, "b"), (False, "c"))
    with pytest.raises(FormatError, match=r"^c$"):
        require((True, "a"), (False, "c"), error=FormatError)

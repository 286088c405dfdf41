"""Rules that stand as pairs: the first that does not hold is the message."""

import pytest

from specsim.errors import FormatError, UsageError, require, shown


def test_the_first_rule_that_does_not_hold_is_raised() -> None:
    require((True, "a"), (True, "b"))
    with pytest.raises(UsageError, match=r"^b$"):
        require((True, "a"), (False, "b"), (False, "c"))
    with pytest.raises(FormatError, match=r"^c$"):
        require((True, "a"), (False, "c"), error=FormatError)


@pytest.mark.parametrize(("value", "text"), [
    ("abc", "'abc'"), ("a" * 40, "'" + "a" * 15 + "...'"), ([1] * 40, "[1, 1, 1, 1, 1, 1..."),
    ("'" * 40, '"' + "'" * 15 + '..."'), (10**40, "an integer of more than 30 digits"),
])
def test_a_value_is_shown_on_one_line_with_its_quotes(value: object, text: str) -> None:
    assert shown(value, 20) == text

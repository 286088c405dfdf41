"""From all values of a command or call to the options of its deployment."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from specsim.api.options import Options


def options_of(values: Mapping[str, Any]) -> Options:
    """Those of the values that describe deployment and load."""
    names = {item.name for item in fields(Options)}
    given = {name: value for name, value in values.items() if name in names}
    return Options(**{**given, "model": given["model"] or ""})

"""A policy as it is named on a command line: `goodput`, `static,k=3`, `./mine.py:Mine,every=8`.

A file of Python is run, with all that it does, because its owner has named it; nothing else in
specsim runs one.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pydantic import ValidationError

from specsim.errors import UsageError, closest, one_line
from specsim.options.values import names_code
from specsim.sim.policies.adaptive import Tiers
from specsim.sim.policies.built_in import Goodput, PerRequest, Unload, Utility
from specsim.sim.policies.protocol import Policy
from specsim.sim.policies.table import BatchTable, FixedLength, LengthTable, OffAbove, TablePolicy

ADAPTIVE = "adaptive"  # SGLang's, whose tiers are the engine's
POLICIES: dict[str, Callable[..., Policy | TablePolicy]] = {
    "static": FixedLength, "table": LengthTable, "off-above": OffAbove,
    ADAPTIVE: TablePolicy,  # of the engine, with tiers
    "goodput": Goodput, "utility": Utility, "per-request": PerRequest, "unload": Unload,
}


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """file: of a policy of the user's own; '' for one of `POLICIES`. text: as it was given."""

    text: str
    name: str
    file: str
    settings: tuple[tuple[str, str], ...]

    @property
    def per_request(self) -> bool:
        return bool(getattr(self._class(), "per_request", False))

    @property
    def unloads(self) -> bool:
        return bool(getattr(self._class(), "unloads", False))

    def make(self) -> Policy | TablePolicy:
        """A fresh policy. UsageError for settings that it does not take."""
        settings: dict[str, object] = {key: _number(value) for key, value in self.settings}
        if self.name == "table" and not self.file:
            settings = {"by_batch": dict(self.settings)}
        made = self._class()
        try:
            policy: Policy | TablePolicy = made(**settings)
        except ValidationError as error:
            raise UsageError(f"policy {self.text}: {_rule(error)}") from None
        except Exception as error:
            if self.file:
                raise self.failure(error) from None
            raise
        return policy

    def failure(self, error: Exception) -> UsageError:
        """What an exception of a user's policy means, with its place in the file."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == self.file]
        place = f", line {lines[-1]}" if lines else ""
        return UsageError(
            f"policy {self.name} of {self.file}{place}: {type(error).__name__}: {one_line(error)}"
        )

    def _class(self) -> Callable[..., Policy | TablePolicy]:
        return self._of_file() if self.file else POLICIES[self.name]

    def _of_file(self) -> Callable[..., Policy]:
        """The class of the user's file, which is run."""
        spec = importlib.util.spec_from_file_location("specsim_user_policy", self.file)
        if spec is None or spec.loader is None or not Path(self.file).is_file():
            raise UsageError(f"there is no Python file {self.file}; a policy of your own is "
                             "named FILE.py:CLASS")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where dataclasses look for the names of their fields
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise UsageError(f"{self.file}, line {error.lineno}: {error.msg}") from None
        except Exception as error:
            raise self.failure(error) from None
        found = getattr(module, self.name, None)
        if not inspect.isclass(found) or not issubclass(found, Policy):
            own = [name for name, item in vars(module).items() if inspect.isclass(item)
                   and issubclass(item, Policy) and item is not Policy]
            raise UsageError(
                f"{self.file} has no policy {self.name}; "
                + (f"it has {', '.join(own)}" if own else
                   "a policy is a class with specsim.sim.policies.protocol.Policy as its base")
            )
        return found


def parse_policy(text: str) -> PolicyChoice:
    """NAME or FILE.py:CLASS, then `,key=value` for its settings. UsageError."""
    head, *parts = (part.strip() for part in text.split(","))
    settings = []
    for part in parts:
        key, sign, value = part.partition("=")
        if not (key.strip() and sign and value.strip()):
            raise UsageError(f"policy {text!r} has {part!r}; settings are written key=value, such "
                             "as static,k=3")
        settings.append((key.strip().replace("-", "_"), value.strip()))
    if names_code(text):
        file, _, name = head.rpartition(":")
        if not name.isidentifier() or not file.endswith(".py"):
            raise UsageError(f"policy {head!r} names no class; write FILE.py:CLASS")
        choice = PolicyChoice(text, name, str(Path(file)), tuple(settings))
    else:
        name = head.lower().replace("_", "-")
        if name not in POLICIES:
            raise UsageError(
                f"policy {head!r} is not known; {closest(name, POLICIES)}use "
                f"{', '.join(POLICIES)} or a class of your own, FILE.py:CLASS"
            )
        if name == ADAPTIVE and settings:
            raise UsageError(f"policy {text!r}: adaptive has no settings; its tiers are the "
                             "engine's")
        choice = PolicyChoice(text, name, "", tuple(settings))
    choice.make()
    return choice


class LengthRules(TypedDict, total=False):
    """Fields of `SpeculationRules` that a policy sets."""

    per_batch_size: BatchTable
    adaptive: Tiers
    policy: PolicyChoice


def length_rules(choice: PolicyChoice, k: int, tiers: Callable[[], Tiers] = tuple) -> LengthRules:
    """What a policy is for drafts of at most k: a table or tiers of the step loop, or itself.
    tiers: gives the engine's, for `adaptive`."""
    if choice.name == ADAPTIVE and not choice.file:
        return {"adaptive": tiers()}
    policy = choice.make()
    if isinstance(policy, TablePolicy):
        return {"per_batch_size": policy.table(k)}
    return {"policy": choice}


def _number(text: str) -> object:
    """A setting as a number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _rule(error: ValidationError) -> str:
    """The first broken rule of a built-in policy's settings."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "unexpected_keyword_argument":
        return f"it has no setting {place}"
    return f"{place} is {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}"

"""The options of `specsim predict` as the fields of a form, and what was written into them.

A choice is the text of every field that is not empty, by the name of its option; it is what the
page sends, what a link holds, and what a command line is made from.
"""

import re
from collections.abc import Mapping

from specsim.errors import UsageError, shown
from specsim.options import groups
from specsim.options.declare import SECTIONS, Declared, OptionSet, declared
from specsim.options.meaning import hint
from specsim.options.prediction import PredictOptions, RunOptions

Choice = Mapping[str, str]
FIRST_MODEL = "qwen3.6-27b"
PINNED = "pinned: "  # what is said of the pinned deployment begins with it
FIRST_LOADS = "1,2,4,8,16,32,64,128,256"

# Which fields stand together; all others are folded away, below the headings of --help.
FIELDSETS = {
    "Deployment": ("model", "gpu", "tp", "engine", "weights", "kv"),
    "Speculation": ("method", "draft", "k", "acceptance_length", "acceptance_rate", "acceptance"),
    "Requests and load": ("workload", "input_len", "output_len", "concurrency", "rate"),
}
LABELS = {
    "gpu": "GPU", "tp": "GPUs per layer (TP)", "draft": "drafter",
    "k": "draft tokens (k)", "input_len": "prompt tokens", "output_len": "output tokens",
    "concurrency": "clients", "rate": "requests per second", "command": "server command",
    "acceptance": "acceptance by position", "acceptance_mean": "mean acceptance",
    "ep": "expert parallel (EP)", "pp": "pipeline stages (PP)", "host_w": "host power, W",
    "attention_dp": "attention groups (DP)", "kv": "KV cache", "kv_link": "KV link",
    "kv_transfer": "KV transfer", "prefill_tp": "prefill TP",
}
OPTIONS: Mapping[str, Declared] = declared(PredictOptions)
# A pinned deployment meets the requests and the load of the form.
OF_THE_LOAD = frozenset(
    name for group in (groups.RequestOptions, groups.LengthRangeOptions, RunOptions,
                       groups.LoadOptions)
    for name in declared(group)
)


def shown_first() -> dict[str, list[Declared]]:
    """The usual options, as they stand together."""
    return {title: [OPTIONS[name] for name in names] for title, names in FIELDSETS.items()}


def folded() -> dict[str, list[Declared]]:
    """All others."""
    named = {name for names in FIELDSETS.values() for name in names}
    rest = [item for name, item in OPTIONS.items() if name not in named]
    return {section: [item for item in rest if item.section == section]
            for section in SECTIONS if any(item.section == section for item in rest)}


def label_of(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def start(options: OptionSet) -> dict[str, str]:
    """The choice of a command line, with a model and loads where it names none."""
    values = {name: getattr(options, name) for name in OPTIONS if name in options.model_fields_set}
    given = {name: _text(value) for name, value in values.items() if value not in (None, False)}
    if not {"model", "command"} & set(given):
        given["model"] = FIRST_MODEL
    if not {"concurrency", "rate"} & set(given):
        given["concurrency"] = FIRST_LOADS
    return given


def _text(value: object) -> str:
    return "true" if value is True else str(value)


def read(choice: Choice) -> PredictOptions:
    """The options that a choice stands for. UsageError as the command line has them."""
    given: dict[str, object] = {}
    for name, text in choice.items():
        if name not in OPTIONS:
            raise UsageError(f"{shown(name)} is no option of predict; {hint(name, OPTIONS)}"
                             "see `specsim predict --help`")
        if text.strip():
            given[name] = _value(OPTIONS[name], text.strip())
    return PredictOptions.of_values(given)


def _value(item: Declared, text: str) -> object:
    if item.kind is bool:
        return text == "true"
    if item.kind in (int, float):
        try:
            return item.kind(text)
        except ValueError:
            words = "a whole number" if item.kind is int else "a number"
            raise UsageError(f"{item.flag} is {shown(text)}; it must be {words}") from None
    return text


def field_of(message: str) -> str | None:
    """The field that an error is about: the first whose flag or name it says. What is wrong with
    the pinned deployment is in no field."""
    if message.startswith(PINNED):
        return None
    flags = {flag: name for name, item in OPTIONS.items() for flag in (*item.on, *item.off)}
    words = re.findall(r"--[\w-]+", message)
    found = next((flags[word] for word in words if word in flags), None)
    first = message.partition(" ")[0]
    return found or (first if first in OPTIONS else None)


def beside(pinned: Choice, choice: Choice) -> dict[str, str]:
    """The pinned deployment under the load of the form."""
    kept = {name: text for name, text in pinned.items() if name not in OF_THE_LOAD}
    return kept | {name: text for name, text in choice.items() if name in OF_THE_LOAD}

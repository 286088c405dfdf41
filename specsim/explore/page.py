"""The page: a form of the options, places for what the server answers, the script that asks."""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from specsim.analytic.workload import WORKLOADS
from specsim.explore.fields import Choice, folded, label_of, shown_first
from specsim.hardware.store import list_profiles
from specsim.latency.engine import list_engines
from specsim.methods.base import METHODS
from specsim.model.catalogue import list_drafters, list_models
from specsim.model.weights import FORMATS
from specsim.options.declare import Declared
from specsim.report.html.elements import Html, fold, join, tag
from specsim.report.html.page import document

TITLE = "Explore speculative decoding"
# Files and names that no list has can be written where there is a suggestion, not a choice.
SUGGESTED = ("model", "draft")
MOST_CHARS = 16  # that half the width of the form shows


def page_text(start: Choice) -> str:
    """The whole page. start: what the fields hold at first."""
    body = join([
        tag("header", tag("h1", TITLE),
            tag("p", "What speculation does for this deployment, as you change it. Everything runs "
                     "on this machine.")),
        tag("noscript", tag("p", "This page needs JavaScript; `specsim predict` does not.")),
        tag("div", _verdict(), _form(start), _results(), class_="explore"),
    ])
    return document(
        TITLE, body, _file("explore.js"), {"start": dict(start)}, style=_file("explore.css"),
        policy="; connect-src 'self'",
    )


def _file(name: str) -> str:
    return (files("specsim.explore") / name).read_text(encoding="utf-8")


def _verdict() -> Html:
    """What is decided, before the form, so that a narrow screen begins with it."""
    return tag(
        "section",
        tag("p", "", id="fault", class_="bad", role="alert"),
        tag("h2", "Should it be on?", class_="hidden"),
        tag("p", "", id="said", class_="hidden", role="status"),  # what is read out
        tag("div", "", id="above"), id="verdict",
    )


def _results() -> Html:
    step = tag(
        "section",
        tag("h2", "Where a step's time goes", id="step-title"),
        tag("p", "Follows the pointer over the charts.", class_="lead"),
        tag("p", tag("label", "Step at ", for_="load"), tag("select", "", id="load")),
        tag("div", "", id="steps"), aria_labelledby="step-title",
    )
    share = tag(
        "section", tag("h2", "Share", id="share-title"),
        fold("A link, a table, a command", *(
            tag("p", tag("label", label, for_=name), tag("button", "Copy", type="button",
                data_copies=name, aria_label=f"Copy: {label}"),
                tag("textarea", "", id=name, readonly=True, rows=rows, spellcheck="false"))
            for name, label, rows in (
                ("link", "Link, while this server runs", 2), ("markdown", "Markdown", 6),
                ("command", "The same on the command line", 2),
            ))),
        id="share", aria_labelledby="share-title",
    )
    return tag(
        "main",
        tag("section", tag("h2", "Over the load", class_="hidden"),
            tag("p", tag("button", "Pin this beside", type="button", id="pin"),
                tag("button", "Exchange with the pinned", type="button", id="exchange",
                    hidden=True),
                tag("button", "Remove the pinned", type="button", id="unpin", hidden=True),
                class_="buttons"),
            tag("div", "", id="charts")),
        step, share,
        tag("section", tag("h2", "Figures and assumptions"), tag("div", "", id="below")),
        id="main", tabindex="-1", aria_busy="true",
    )


def _form(start: Choice) -> Html:
    known = _known()

    def sets(found: Mapping[str, Sequence[Declared]]) -> list[Html]:
        return [tag("fieldset", tag("legend", title), [
            _field(item, known.get(item.name, ()), start.get(item.name, "")) for item in items
        ]) for title, items in found.items()]

    return tag("form", sets(shown_first()), fold("More options", sets(folded())), id="choices",
               autocomplete="off", aria_label="Settings")


def _known() -> dict[str, Sequence[str]]:
    """What may be chosen, by option."""
    engines = list_engines()
    return {
        "model": [entry.name for entry in list_models()],
        "draft": [entry.name for entry in list_drafters()],
        "gpu": [entry.name for entry in list_profiles()],
        "engine": [*dict.fromkeys(item.name for item in engines),
                   *(f"{item.name}=={item.version}" for item in engines)],
        "method": list(METHODS), "weights": list(FORMATS), "kv": ("bf16", "fp8"),
        "workload": list(WORKLOADS), "thinking": ("on", "off"), "language": ("en", "zh", "multi"),
    }


def _field(item: Declared, known: Sequence[str], text: str) -> Html:
    """A label, what is written into, its fault and its help."""
    name = item.name
    told: dict[str, object] = {
        "id": f"field-{name}", "name_": name,
        "aria_describedby": f"{name}-fault {name}-help",
    }
    low, above, high, below = item.option.bounds
    default = "" if item.default in (None, False) else str(item.default)
    choices = known or [word for word in item.option.choices if word]
    longest = max(len(text), len(default))
    if item.kind is bool:
        control = tag("input", type="checkbox", value="true", checked=text == "true", **told)
    elif choices and name not in SUGGESTED:
        first = f"default: {default}" if default else "default"
        longest = max(len(text), len(first))
        words = [*choices, *([text] if text and text not in choices else [])]
        control = tag("select", tag("option", first, value=""), [
            tag("option", word, value=word, selected=word == text) for word in words], **told)
    else:
        number = item.kind in (int, float)
        control = join([
            tag("input", type="number" if number else "text", value=text, placeholder=default,
                step=("1" if item.kind is int else "any") if number else None,
                min=low if low is not None else above, max=high if high is not None else below,
                list=f"{name}-known" if choices else None, spellcheck="false", **told),
            tag("datalist", [tag("option", value=word) for word in choices], id=f"{name}-known")
            if choices else None,
        ])
    return tag(
        "div", tag("label", label_of(name), for_=f"field-{name}"), control,
        tag("p", "", id=f"{name}-fault", class_="fault bad"),
        tag("p", item.option.help, id=f"{name}-help", class_="help"),
        class_="field wide" if longest > MOST_CHARS else "field",
    )

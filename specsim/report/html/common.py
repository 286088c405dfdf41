"""What sections of all kinds share: the deployment in words, warnings, assumptions with sources."""

from collections.abc import Sequence
from dataclasses import replace

from specsim.report.html.charts import Curve
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import Child, Html, fold, number, pairs, tag
from specsim.report.html.page import notes


def gpus_of(node: Node) -> int:
    """GPUs of a deployment: tensor parallel times attention groups."""
    return int((node.get("tp").maybe() or 1) * (node.get("attention_dp").maybe() or 1))


def deployment(node: Node) -> str:
    """'Qwen3.6-27B-FP8 on 2 x h200-sxm, vllm, mtp with k = 3' from a result or its inputs."""
    count = gpus_of(node)
    words = f"{node.get('model').text()} on {f'{count} x ' if count > 1 else ''}"
    words += node.get("gpu").text("an unnamed GPU")
    if "engine" in node:
        words += f", {node.get('engine').text()} {node.get('engine_version').text('')}".rstrip()
    method = node.get("method").text("")
    if method and method != "none":
        k = node.get("k").maybe()
        words += f", {method}" + ("" if k is None else f" with k = {number(k)}")
    elif method:
        words += ", no speculation"
    return words


def source_line(document: Document) -> Html:
    return tag("p", f"From {document.name}", class_="source")


def warnings(node: Node) -> Html | None:
    return notes(node.get("warnings").texts())


_SETTINGS = (
    ("weights", "weights"), ("kv_dtype", "KV cache"), ("tp", "tensor parallel"),
    ("ep", "expert parallel"), ("attention_dp", "attention groups"), ("engine", "engine profile"),
    ("engine_version", "engine version"), ("method", "method"), ("draft", "drafter"),
    ("k", "draft tokens per step (k)"), ("input_len", "prompt tokens"),
    ("output_len", "output tokens"), ("fidelity", "fidelity"), ("easiness", "spread of acceptance"),
)


def assumptions(node: Node, *more: tuple[str, Child]) -> Html:
    """The settings behind a result, and how the acceptance is known."""
    items: list[tuple[str, Child]] = []
    for key, label in _SETTINGS:
        if key in node and not node.get(key).missing:
            items.append((label, node.get(key).text()))
    acceptance = node.get("acceptance")
    if isinstance(acceptance.value, dict):
        items.append(("acceptance", acceptance.get("source").text("as given")))
        measured = acceptance.get("measured_positions").maybe()
        if acceptance.get("extrapolated").flag() and measured is not None:
            items.append((
                "extrapolated", f"positions after {number(measured)} are continued, not measured"
            ))
    items += more
    return fold("Assumptions and their sources", pairs(items), opened=True)


def sides(
    name: str, x: Sequence[float | None], points: Sequence[Node], key: str, other: str
) -> list[Curve]:
    """A quantity with speculation (with its band) and without."""
    bands = [point.at(f"interval_90.{key}").pair() for point in points]
    known = any(bands)
    return [
        Curve(
            f"{name}, with speculation", x, [point.get(key).maybe() for point in points],
            [band[0] if band else None for band in bands] if known else None,
            [band[1] if band else None for band in bands] if known else None,
        ),
        Curve(
            f"{name}, without", x, [point.get(other).maybe() for point in points], style=1
        ),
    ]


def scaled(values: Sequence[float | None] | None, by: float) -> list[float | None] | None:
    return None if values is None else [None if v is None else v * by for v in values]


def in_ms(curve: Curve) -> Curve:
    """A curve of seconds in milliseconds."""
    return replace(
        curve, y=scaled(curve.y, 1e3) or [], low=scaled(curve.low, 1e3),
        high=scaled(curve.high, 1e3),
    )

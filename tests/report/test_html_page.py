"""The page itself: nothing from a result becomes markup, charts are valid, it is self-contained."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from report_html_cases import (
    DRAFTS,
    EVIL,
    MAKERS,
    capacity,
    crossover,
    explanation,
    of,
    prediction,
    simulation,
    tune,
)
from specsim.hardware.store import load_profile
from specsim.report.blocks import Command
from specsim.report.html import page as bundle
from specsim.report.html import theme
from specsim.report.html.charts import figure
from specsim.report.html.elements import escape, table, tag
from specsim.report.html.page import Page, plotly_bundle, resource, sha256
from specsim.report.html.render import render
from specsim.report.kinds import KINDS, SavedResult, parse
from specsim.report.plots import MOST_POINTS, Panel, Series, thinned
from specsim.report.tables import number

pytest.importorskip("plotly")


def documents(*values: dict[str, Any]) -> list[SavedResult]:
    return [parse(f"r{i}.json", json.dumps(v), KINDS) for i, v in enumerate(values)]


class Outline(HTMLParser):
    """Elements, their nesting, and the visible text of a page."""

    VOID = frozenset({"meta", "br", "col", "hr", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: dict[str, str] = {}

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((name, dict(attrs)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open and self.open[-1] == name, f"</{name}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.seen[-1][1].get("id") or "script"] = data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def everywhere(value: Any, text: str) -> Any:
    """The document with `text` in place of every string but the words that select something."""
    kept = {"kind", "gpu", "method", "split", "profile"}
    if isinstance(value, dict):
        return {k: v if k in kept and isinstance(v, str) else everywhere(v, text)
                for k, v in value.items()}
    if isinstance(value, list):
        return [everywhere(item, text) for item in value]
    return text if isinstance(value, str) else value


@pytest.mark.parametrize("make", MAKERS)
def test_hostile_names_stay_text(make: Any) -> None:
    value = everywhere(make(), EVIL)
    if "inputs" in value and "slo" in value:
        value["slo"] = {EVIL: value["slo"]["ttft_p95"], "pass": True}
        value["baseline"]["slo"] = dict(value["slo"])
    page = render(documents(value), title=EVIL, command=EVIL)
    clean = outline(render(documents(make()), command="specsim report"))
    found = outline(page)
    assert "".join(found.text).count("owned") >= 3  # it is shown ...
    # ... and adds neither an element nor an attribute that runs anything.
    assert {name for name, _ in found.seen} <= {name for name, _ in clean.seen} | {"aside"}
    assert sum(name == "script" for name, _ in found.seen) == 4
    for name, attributes in found.seen:
        assert not any(key.startswith("on") for key in attributes), (name, attributes)
    figures = found.scripts["figures"]
    assert "<" not in figures and ">" not in figures
    for text in re.findall(r'"(?:text|name|hovertemplate)":"((?:[^"\\]|\\.)*)"', figures):
        assert "<img" not in json.loads(f'"{text}"')


def test_the_policy_admits_the_two_scripts_and_no_request() -> None:
    page = render(documents(explanation()))
    found = outline(page)
    policy = next(
        a["content"] for n, a in found.seen
        if n == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert sha256(found.scripts["script"]) in policy and plotly_bundle().digest in policy
    assert "unsafe-eval" not in policy and "http" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    for name, attributes in found.seen:
        for key in ("src", "href", "action", "data"):
            assert (attributes.get(key) or "#").startswith("#"), (name, attributes)
    assert "url(" not in resource("page.css") and "@import" not in resource("page.css")


def test_the_library_unpacks_to_what_was_hashed() -> None:
    import base64
    import gzip

    from plotly.offline import get_plotlyjs

    packed = plotly_bundle()
    source = gzip.decompress(base64.b64decode(packed.packed)).decode()
    assert source == get_plotlyjs() and sha256(source) == packed.digest
    assert re.fullmatch(r"\d+\.\d+\.\d+", packed.version)
    assert len(packed.packed) < 2_500_000
    bundle.plotly_bundle.cache_clear()
    assert bundle.plotly_bundle() == packed  # no date inside: the same bytes


def coloured(value: Any) -> Any:
    """Roles as colours, as the page does it."""
    if isinstance(value, str) and value.startswith("@"):
        name = value[1:]
        assert name in theme.roles(), value
        return theme.LIGHT.get(name, "rgba(0,0,0,0.2)")
    if isinstance(value, dict):
        return {k: coloured(v) for k, v in value.items()}
    return [coloured(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("make", MAKERS)
def test_charts_are_valid_and_have_their_numbers_beside(make: Any) -> None:
    from plotly.graph_objects import Figure

    page = render(documents(make()))
    found = outline(page)
    figures = json.loads(found.scripts["figures"])
    assert figures or make().get("kind") in ("diagnosis", "quick", "mindrouter")  # words, a table
    for spec in figures.values():
        Figure(coloured(spec))  # raises for unknown or malformed properties
    boxes = {a["id"]: a for n, a in found.seen if n == "div" and a.get("role") == "img"}
    assert set(boxes) == set(figures)
    assert all(len(a["aria-label"] or "") > 40 for a in boxes.values())
    names = [n for n, _ in found.seen]
    assert names.count("figure") == len(figures) and names.count("table") >= len(figures)
    ids = [a["id"] for _, a in found.seen if a.get("id")]
    assert len(ids) == len(set(ids))


def test_the_page_is_complete_small_and_always_the_same() -> None:
    values = [make() for make in MAKERS]
    profile = load_profile("h200-sxm")
    page = render(documents(*values), {"h200-sxm": profile}, "T")
    assert page == render(documents(*values), {"h200-sxm": profile}, "T")
    assert len(page.encode()) < 3_000_000
    found = outline(page)
    text = "".join(found.text)
    for words in (
        "What speculation gains", "90% interval", "TTFT percentiles", "waiting over time",
        "Predicted against measured", "Assumptions and their sources", "Commands to repeat",
        "specsim predict qwen3.6-27b --weights fp8", "host gap", "one row was disturbed",
        profile.sources["mem_bytes_per_s"][:40], "MIT licence",
    ):
        assert words in text, words
    headings = [n for n, _ in found.seen if n in ("h1", "h2", "h3")]
    assert headings.count("h1") == 1


def test_a_command_breaks_before_its_options_only() -> None:
    words = "vllm serve a/b --max-num-seqs 8 --c '{\"k-v\": 1}' --" + "x-" * 20
    shown = "".join(Page("", "chart").blocks([Command("to type:", words)]))
    assert '<span class="w">--max-num-seqs</span> 8' in shown
    code = shown.partition("<code>")[2].partition("</code>")[0]
    assert unescape(re.sub(r"<[^>]+>", "", code)) == words


def test_numbers_of_the_prediction_stand_in_the_page() -> None:
    value = prediction()
    found = outline(render(documents(value)))
    figures = json.loads(found.scripts["figures"])
    speed = next(t for t in figures["chart1"]["data"] if t.get("name") == "speedup")
    assert speed["y"] == [point["speedup"] for point in value["points"]]
    band = [t for t in figures["chart1"]["data"] if t.get("fill") == "tonexty"]
    assert band and band[0]["y"] == [p["interval_90"]["speedup"][0] for p in value["points"]]
    trade = figures["chart3"]["data"]
    assert trade[0]["x"] == [p["stream_tok_s"] for p in value["points"]]
    assert trade[1]["y"] == [p["baseline_output_tok_s"] for p in value["points"]]
    assert f"{value['points'][0]['speedup']:.2f}x" in "".join(found.text)


def test_a_waterfall_adds_up_to_its_step() -> None:
    value = explanation()
    figures = json.loads(outline(render(documents(value))).scripts["figures"])
    for i, step in enumerate(value["steps"]):
        bars = figures[f"chart{i + 1}"]["data"][0]
        assert bars["type"] == "waterfall"
        assert sum(bars["x"][:-1]) == pytest.approx(step["total_s"] * 1e3, rel=2e-3)


def test_waterfalls_and_bars_of_an_explanation_share_a_scale() -> None:
    value = explanation()
    longest = max(step["total_s"] for step in value["steps"]) * 1e3
    figures = list(json.loads(outline(render(documents(value))).scripts["figures"]).values())
    axes = [item["layout"]["xaxis"] for item in figures[: len(value["steps"])]]
    assert len({json.dumps(axis) for axis in axes}) == 1 and len(axes) > 1
    assert longest < axes[0]["range"][1] < 1.1 * longest
    assert axes[0]["title"]["text"] == "time in the step, ms"


def test_results_stand_in_one_order_with_the_verdicts_and_commands_on_top() -> None:
    names = {"prediction.json": prediction(), "tune.json": tune(), "simulation.json": simulation(),
             "again.json": prediction()}
    saved = [parse(name, json.dumps(value), KINDS) for name, value in names.items()]
    page = render(saved)
    assert page == render(saved[::-1]) == render([saved[2], saved[0], saved[3], saved[1]])
    titles = re.findall("<h2[^>]*>(\\w+)", page)
    assert titles[:6] == ["Verdicts", "All", "Prediction", "Prediction", "Tuning", "Simulation"]
    top = page.partition("All predictions")[0].partition("<main")[2]
    assert top.count('<b class="good">ON</b>') == 2  # equal ones of two results once
    assert top.count("vllm serve") == 2 and "speculation pays at this load" in top
    assert page.count('<b class="good">ON</b>') == 5  # and the sentence in each section


def test_a_warning_is_said_once_and_pointed_to() -> None:
    value, other = prediction(), crossover()
    value["warnings"] = other["warnings"] = ["the first warning", "the second warning"]
    page = render(documents(value, other))
    assert page.count("the first warning") == page.count("the second warning") == 1
    assert "2 notes from above apply here too." in page


def test_levels_and_marks_are_explained_in_the_legend() -> None:
    panel = Panel("t", "x", "y", (Series("a", [1, 2], [1, 2]),), levels=((1.0, "one"), (2.0, "")),
                  mark=(1.5, "here"))
    layout: Any = figure(panel)["layout"]
    assert "annotations" not in layout and layout["showlegend"]
    assert [(s["name"], s["showlegend"]) for s in layout["shapes"]] == [
        ("one", True), ("", False), ("here", True)]
    assert len({s["line"]["dash"] for s in layout["shapes"]}) == 3


def test_a_short_wide_table_has_its_headers_beside_each_figure() -> None:
    headers = ["clients", *(f"figure {i}, ms" for i in range(8))]
    rows = [["1", *["2.00"] * 8], ["2", *["3.00"] * 8]]
    assert table(headers, rows, "").count('data-label="figure 3, ms"') == 2
    twice = ["rate", "TPOT, ms", "plain, ms", "TTFT, ms", "plain, ms", *headers[5:]]
    told = table(twice, rows, "")
    assert all(f'data-label="{label}: plain, ms"' in told for label in ("TPOT", "TTFT"))
    assert "data-label" not in table(headers[:3], [row[:3] for row in rows], "")
    assert "data-label" not in table(headers, rows * 20, "")


def test_one_load_and_a_load_beyond_capacity_have_a_section_too() -> None:
    value = prediction()
    one = {**value, "points": value["points"][:1]}
    grown = json.loads(json.dumps(value))
    for i, point in enumerate(grown["points"]):
        point["utilisation"] = 0.1 * i
        if i > 5:
            point["ttft_s"] = point["queue_s"] = None
    text = "".join(outline(render(documents(one, grown))).text)
    assert "grows without end" in text and "requests/s" in text


def test_long_curves_are_thinned_and_long_tables_cut() -> None:
    kept = thinned(100_000)
    assert len(kept) <= MOST_POINTS and kept[0] == 0 and kept[-1] == 99_999
    values = list(range(100_000))
    spec: Any = figure(Panel("t", "x", "y", (Series("a", values, values),)))
    assert len(spec["data"][0]["x"]) <= MOST_POINTS
    text = table(["a", "b"], [[str(i), "1"] for i in range(1000)], "Rows")
    assert text.count("<tr>") == 201 and "the first 200 of 1000 rows" in text


def test_a_table_without_a_title_has_a_name_and_rows_under_others() -> None:
    text = table(["", "mean"], [["TTFT", "1 s"], ["  without", "2 s"]], "")
    assert 'aria-label="Table of mean"' in text and "<caption>" not in text
    assert text.count('<th scope="row">') == 1 and text.count('class="under"') == 1


def test_the_first_tile_says_what_its_load_counts() -> None:
    text = "".join(outline(render(documents(prediction()))).text)
    assert "at 1 client" in text


def test_elements_escape_everything_but_markup() -> None:
    assert tag("p", "<b>", tag("i", "&")) == "<p>&lt;b&gt;<i>&amp;</i></p>"
    assert tag("a", "x", title='"><script>') == '<a title="&quot;&gt;&lt;script&gt;">x</a>'
    assert escape("a\x00b\u202ec\n") == "a b c "
    assert len(escape("x" * 10_000)) == 600
    assert number(1234567.0) == "1,234,567" and number(0.123456) == "0.1235"
    assert number(None) == "-" and number(float("inf")) == "-"


def test_series_stay_apart_for_all_kinds_of_colour_vision() -> None:
    """Contrast of at least 3 to the card for every curve in both schemes (WCAG 1.4.11), 4.5 for
    text, and lightness or hue apart under simulated deuteranopia and protanopia."""

    def linear(code: str) -> list[float]:
        values = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]

    def luminance(rgb: list[float]) -> float:
        return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]

    def contrast(a: str, b: str) -> float:
        high, low = sorted((luminance(linear(a)), luminance(linear(b))), reverse=True)
        return (high + 0.05) / (low + 0.05)

    # Machado, Oliveira and Fernandes 2009, severity 1.
    blind = {
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.011820, 0.042940, 0.968881]],
    }
    for scheme in (theme.LIGHT, theme.DARK):
        for name in theme.SERIES:
            assert contrast(scheme[name], scheme["card"]) >= 3, name
        for name in ("ink", "muted", "link", "good", "bad"):
            assert contrast(scheme[name], scheme["card"]) >= 4.5, name
        for matrix in blind.values():
            seen = [
                [sum(m * v for m, v in zip(row, linear(scheme[name]), strict=True))
                 for row in matrix]
                for name in theme.SERIES[:3]
            ]
            for i in range(3):
                for j in range(i):
                    apart = sum((a - b) ** 2 for a, b in zip(seen[i], seen[j], strict=True)) ** 0.5
                    assert apart > 0.08, (theme.SERIES[i], theme.SERIES[j])


def test_every_kind_has_a_case() -> None:
    assert {make().get("kind", "published") for make in MAKERS} == set(KINDS)


@pytest.mark.slow
def test_capacity_still_writes_what_the_kept_result_holds() -> None:
    kept = capacity()
    fresh = of(
        "capacity", *DRAFTS, "--k", "3", "--slo", "ttft_p95=2", "--unit", "rate",
        "--replications", "2", "--resolution", "0.5",
    )
    assert set(kept) <= set(fresh)
    assert set(kept["trials"][0]) <= set(fresh["trials"][0])
    render(documents(fresh))

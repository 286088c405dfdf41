"""Blocks: made from the same document for a terminal and a page, and asking for keys that exist."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from report_html_cases import MAKERS
from specsim.report.blocks import (
    Charts,
    Command,
    Facts,
    Fold,
    Group,
    Lines,
    Notes,
    Section,
    Terms,
)
from specsim.report.doc import Doc
from specsim.report.html.page import fragment
from specsim.report.kinds import KINDS, parse, section_of
from specsim.report.plots import Bars, Series
from specsim.report.tables import Table
from specsim.report.text import section_text

# Keys that only some results have: settings that a kind does not print, and figures that are there
# for some loads, engines and measurements.
SETTINGS = {"acceptance", "easiness", "draft", "method", "k", "ep", "attention_dp", "tp", "weights",
            "kv_dtype", "engine_version", "input_len", "output_len", "apart", "pp"}
SOMETIMES = {
    "fleet": {"day"},
    "prediction": {"from_measured", "from_measured.pp"},
    "simulation": {
        "confidence_95", "ttft_s.censored", "tpot_s.censored", "time_share.decode",
        "baseline.time_share.decode", "inputs.load.assumed",
        "transfer_s", "pools", "baseline.transfer_s", "baseline.pools", "time_share.pipeline",
        "baseline.time_share.pipeline", "inputs.policy",
    },
    "explanation": {"steps[].pipeline_s"},
    "validation": {"reasons[].share"},
    "published": {"judged[].low", "judged[].high"},
    "diagnosis": {"diagnoses[].measured.waiting", "diagnoses[].measured.kv_cache_usage"},
    "calibration": {"files", "profile", "points[].low", "points[].high"},
}


def asked_in_vain(value: object, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Keys that the blocks of a result look up and that the result does not have."""
    missed = set()
    look = Doc.child

    def child(self: Doc, key: str) -> Doc:
        if isinstance(self.value, Mapping) and key not in self.value:
            place = re.sub(r"\[\d+\]", "[]", self.path)
            missed.add(f"{place}.{key}".strip("."))
        return look(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(Doc, "child", child)
        section_of(parse("x.json", json.dumps(value), KINDS))
    return missed


@pytest.mark.parametrize("make", MAKERS)
def test_blocks_ask_for_keys_that_the_result_has(
    make: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = make()
    kind = value.get("kind", "published")
    missed = asked_in_vain(value, monkeypatch)
    known = SOMETIMES.get(kind, set()) | SETTINGS | {f'inputs.{key}' for key in SETTINGS}
    # Under `live` stands what a result just computed has beside its JSON.
    assert sorted(key for key in missed - known if not key.endswith("live")) == [], kind


def test_one_section_for_a_terminal_and_for_a_notebook() -> None:
    chart = Bars("Chart", "words", ["a"], [("b", [1.0])], "y")
    section = Section("Title", "Short", [
        Lines(["first", "  under it"]), None, Lines([]), Facts([("label", "1", "remark"), None]),
        Table(["name", "value"], [["x", "1"]], title="above", remarks=["below"]),
        Charts([chart, None]),
        Group([Command("to type:", "specsim predict"), Notes(["a <note>"])]),
        Terms("Settings", [("tp", "2")]), Fold("More", [Lines(["inside"])]),
    ])
    assert section_text(section) == (
        "first\n  under it\n\nabove\nname  value\n----  -----\nx         1\nbelow\n\n"
        "to type:\n  specsim predict\nnote: a <note>"
    )
    page = fragment(section)
    for words in ("first", "under it", "label", "above", "below", "specsim predict",
                  "a &lt;note&gt;", "Settings", "inside"):
        assert words in page
    assert "plot" not in page


def test_a_series_says_where_its_values_do_not_fit() -> None:
    with pytest.raises(ValueError, match="'a' has 1 values at 2 places"):
        Series("a", [1, 2], [1])
    with pytest.raises(ValueError, match="'b' has 3 values at 2 places"):
        Series("b", [1, 2], [1, 2], band=[None, None, None])

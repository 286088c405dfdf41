"""Result files from outside: limits, kinds, values of the wrong kind; errors in one line."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinned import examples
from typer.testing import CliRunner

from report_html_cases import MAKERS, explanation, simulation, sweep
from specsim.commands import app
from specsim.errors import FormatError, SpecSimError
from specsim.report import kinds
from specsim.report.doc import Doc
from specsim.report.html.page import Page, json_block
from specsim.report.kinds import KINDS, parse, read_text, section_of


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("{", "is not valid JSON"),
        ("[1, 2]", "holds no object"),
        ('"text"', "holds no object"),
        ("{}", "has no kind that is known; a report shows prediction"),
        ('{"kind": "predictions"}', "did you mean 'prediction'?"),
        ('{"kind": "poem"}', "kind is 'poem'; a report shows"),
        ('{"kind": 7}', "kind is '7'"),
        ('{"kind": ["prediction"]}', "a report shows"),
        ('{"kind": "prediction", "x": NaN}', "NaN is not a number of JSON"),
        ('{"kind": "prediction", "x": -Infinity}', "-Infinity is not a number of JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"kind": "prediction", "x": ' + "9" * 5000 + "}", "is not valid JSON"),
    ],
)
def test_what_is_no_result_says_why(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse("x.json", text, KINDS)
    assert reason in str(caught.value)
    assert "x.json" in str(caught.value)


def test_files_are_read_with_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert read_text(str(path)) == "{}"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(FormatError, match="not UTF-8 text"):
        read_text(str(path))
    monkeypatch.setattr(kinds, "MAX_BYTES", 10)
    path.write_bytes(b" " * 11)
    with pytest.raises(FormatError, match="larger than"):
        read_text(str(path))
    with pytest.raises(FormatError, match=r"no_such.* cannot be read"):
        read_text(str(tmp_path / "no_such"))
    with pytest.raises(FormatError, match="cannot be read"):
        read_text("bad\0name")


def test_values_of_the_wrong_kind_are_named_with_their_place() -> None:
    doc = Doc({"a": [{"b": "x"}], "c": 1e400, "d": [1], "e": {"f": True}, "g": 1e200}, "x.json")
    cases = [
        (lambda: doc.items("a")[0].number("b"), 'a[0].b is "x"; it must be a number'),
        (lambda: doc.maybe("c"), "c is inf; it must be a finite number"),
        (lambda: doc.maybe("g"), "g is 1e+200; it must be a number up to 1e+100"),
        (lambda: doc.pair("d"), "d is [1]; it must be a pair"),
        (lambda: doc.maybe("e.f"), "e.f is true; it must be a number or null"),
        (lambda: doc.text("e.f"), "e.f is true; it must be a text"),
        (lambda: doc.at("a.b"), "it must be an object"),
        (lambda: doc.items("e"), "it must be a list"),
        (lambda: doc.members("d"), "it must be an object"),
        (lambda: doc.flag("c"), "it must be true or false"),
        (lambda: Doc([1] * 100_001, "x.json").items(), "has 100001 entries; at most 100000"),
    ]
    for look, words in cases:
        with pytest.raises(FormatError) as caught:
            look()
        assert str(caught.value).startswith("x.json") and words in str(caught.value)
    assert not Doc(None, "x").has("a.b.c") and Doc({"a.b": 1}).child("a.b").number() == 1


def test_what_does_not_fit_together_is_refused() -> None:
    value = json.loads(json.dumps(simulation()))
    value["timeline"]["waiting"].pop()
    with pytest.raises(FormatError, match=r"x.json does not fit together: .* has .* values at"):
        section_of(parse("x.json", json.dumps(value), KINDS))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [path, *(p for k, v in value.items() for p in _paths(v, (*path, k)))]
    if isinstance(value, list):
        return [path, *(p for i, v in enumerate(value[:3]) for p in _paths(v, (*path, i)))]
    return [path]


WRONG = st.sampled_from(
    [None, True, "text", "", -1, 0, 1e308, -3.5, [], {}, [None], ["x", 1], {"a": {"b": [1]}},
     10**400]
)

@settings(
    max_examples=examples(80), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_broken_documents_are_shown_or_refused_but_never_crash(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(MAKERS))())
    for _ in range(data.draw(st.integers(1, 3))):
        paths = [p for p in _paths(value) if p and p != ("kind",)]
        if not paths:
            break
        path = data.draw(st.sampled_from(paths))
        place = value
        for key in path[:-1]:
            place = place[key]
        if data.draw(st.booleans()):
            place[path[-1]] = copy.deepcopy(data.draw(WRONG))
        elif isinstance(place, dict):
            place.pop(path[-1])
    try:
        document = parse("x.json", json.dumps(value), KINDS)
        page = Page("t")
        page.add(section_of(document))
        assert len(page.sections) == 1
        json_block("figures", page.figures)
    except SpecSimError as error:
        assert str(error).startswith("x.json")


@pytest.mark.parametrize("figures", [{}, False])
def test_a_sweep_without_figures(figures: object) -> None:
    value = copy.deepcopy(sweep())
    value["by_setting"][0]["figures"] = figures
    document = parse("x.json", json.dumps(value), KINDS)
    try:
        section_of(document)
    except FormatError as error:
        assert "figures is false; it must be an object" in str(error)


def report(*arguments: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, ["report", *arguments], input=text)


def test_the_command_refuses_what_would_go_wrong(tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text(json.dumps(explanation()), encoding="utf-8")
    cases = [
        ([str(source), "-o", str(source)], "name another"),
        ([str(source), "-o", str(tmp_path)], "name a file"),
        ([str(source), "-o", str(source / "r.html")], "which is no folder"),
        ([str(source), "-o", " "], "name a file"),
        ([str(source), "--title", " "], "--title must have"),
        (["-", "-", "-o", str(tmp_path / "r.html")], "can be read once"),
        ([str(source)] * 41, "at most 40"),
        ([str(tmp_path / "none.json")], "cannot be read"),
    ]
    for arguments, words in cases:
        result = report(*arguments)
        assert isinstance(result.exception, SpecSimError), (arguments, result.output)
        assert words in str(result.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_the_command_writes_the_same_bytes_from_a_file_and_a_pipe(tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    text = json.dumps(explanation())
    source.write_text(text, encoding="utf-8")
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    done = report(str(source), "-o", str(first))
    assert done.exit_code == 0 and done.stdout.startswith(f"wrote {first}: 1 result, ")
    assert report("-", "-o", str(second), text=text).exit_code == 0
    a, b = first.read_text(encoding="utf-8"), second.read_text(encoding="utf-8")
    same = a.replace("a.html", "b.html").replace(str(source), "-")
    assert same.replace("x.json", "standard input") == b
    piped = report(str(source), "-o", "-")
    assert piped.stdout.startswith("<!DOCTYPE html>") and len(piped.stdout) == len(a) - len(
        str(first)) + 1

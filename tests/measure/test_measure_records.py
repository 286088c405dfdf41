"""Records: what is written is read back, and broken files are refused with the line."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.calibrate.records import (
    KINDS,
    Measurement,
    RunHeader,
    Timing,
    point_key,
    read_records,
)
from specsim.data import data_root
from specsim.errors import FormatError
from specsim.summary import quantile

HEADER = RunHeader(
    device={"kind": "cpu", "name": "Test CPU", "memory_bytes": 1}, software={"torch": "2"},
    models={"m": {"config": {}, "weights": "random"}}, git_sha="abc", date="2026-01-01T00:00:00",
    seed=3, threads=2, grid="small",
)
POINT = Measurement(
    part="B", kind="gemm",
    shape={"model": "m", "matrix": "qkv", "m": 4, "n": 8, "k": 16, "dtype": "bf16"},
    timing=Timing.of([2e-3, 1e-3, 4e-3]), cpu_over_wall=1.9, stream_bytes_per_s=3e10,
    phases_s={"verify": 1e-3}, values={"x": 2.0}, series={"ttft_s": (0.1, 0.2)}, at_s=1.5,
)


def write(path, *records) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def test_written_is_read_back(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    write(path, HEADER.to_dict(), POINT.to_dict(), {"record": "end", "measured": 1})
    found = read_records(path)
    assert found.headers == (HEADER,)
    assert found.points == (replace(POINT, run=HEADER),)
    assert found.points[0].run.device["name"] == "Test CPU"
    assert found.ends[0]["measured"] == 1 and not found.truncated
    assert [p.kind for p in found.points] == ["gemm"]


def test_points_belong_to_the_header_before_them(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    second = HEADER.model_copy(update={"git_sha": "def"})
    write(path, HEADER.to_dict(), POINT.to_dict(), second.to_dict(), POINT.to_dict())
    assert [p.run.git_sha for p in read_records(path).points] == ["abc", "def"]


def test_quantiles_by_hand() -> None:
    timing = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (timing.min_s, timing.median_s, timing.n) == (1.0, 3.0, 5)
    # order statistics 1..5 at ranks 0..4: rank 0.4 is 1.4, rank 3.6 is 4.6
    assert timing.p10_s == pytest.approx(1.4) and timing.p90_s == pytest.approx(4.6)
    assert timing.spread == pytest.approx((4.6 - 1.4) / 3.0)
    assert quantile([7.0], 0.9) == 7.0


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=40))
def test_quantiles_are_ordered_and_inside(samples) -> None:
    t = Timing.of(samples)
    assert min(samples) == t.min_s <= t.p10_s <= t.median_s <= t.p90_s <= max(samples)


def test_no_samples_are_refused() -> None:
    with pytest.raises(FormatError, match="at least one"):
        Timing.of([])


def test_key_ignores_the_order_of_the_shape() -> None:
    assert point_key("gemm", {"a": 1, "b": 2}) == point_key("gemm", {"b": 2, "a": 1})
    assert point_key("gemm", {"a": 1}) != point_key("moe", {"a": 1})


def test_a_line_cut_short_is_left_out(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    write(path, HEADER.to_dict(), POINT.to_dict())
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"record": "point", "part"')
    found = read_records(path)
    assert found.truncated and len(found.points) == 1 and found.good_bytes == len(whole)


BAD = {
    "no header": ([POINT.to_dict()], "before any header"),
    "empty": ([], "no header line"),
    "format": ([HEADER.to_dict() | {"format": 9}], "format '9'"),
    "not an object": ([HEADER.to_dict(), [1]], "line 2 must be a JSON object"),
    "record": ([HEADER.to_dict(), {"record": "dot"}], "'dot' must be header, point or end"),
    "kind": ([HEADER.to_dict(), POINT.to_dict() | {"kind": "gem"}], "did you mean 'gemm'"),
    "shape": ([HEADER.to_dict(), POINT.to_dict() | {"shape": {"m": 1}}], "lacks model, matrix"),
    "nested shape": ([HEADER.to_dict(), POINT.to_dict() | {"shape": {"m": [1]}}],
                     r"\[shape\] m is \[1\]"),
    "negative": ([HEADER.to_dict(), POINT.to_dict() | {"min_s": -1}], "min_s is -1"),
    "text": ([HEADER.to_dict(), POINT.to_dict() | {"median_s": "1"}], "median_s is '1'"),
    "no repeats": ([HEADER.to_dict(), POINT.to_dict() | {"n": 0}], "n is 0"),
    "order": ([HEADER.to_dict(), POINT.to_dict() | {"min_s": 9.0}], "must not fall"),
    "part": ([HEADER.to_dict(), POINT.to_dict() | {"part": "Z"}], "part 'Z'"),
    "values": ([HEADER.to_dict(), POINT.to_dict() | {"values": {"x": "y"}}],
               r"\[values\] x is 'y'; it must be a number"),
    "series": ([HEADER.to_dict(), POINT.to_dict() | {"series": {"x": 1}}],
               r"\[series\] x is 1; it must be a list"),
    "seed": ([HEADER.to_dict() | {"seed": "x"}], "seed is 'x'; it must be a whole number"),
    "device": ([HEADER.to_dict() | {"device": 4}], "device is 4; it must be an object"),
}


@pytest.mark.parametrize("case", BAD)
def test_broken_files_say_where_and_what(case, tmp_path) -> None:
    records, message = BAD[case]
    path = tmp_path / "r.jsonl"
    write(path, *records)
    with pytest.raises(FormatError, match=message):
        read_records(path)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_numbers_a_record_may_not_hold(text, tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    line = json.dumps(POINT.to_dict() | {"median_s": "HERE"}).replace('"HERE"', text)
    path.write_text(json.dumps(HEADER.to_dict()) + "\n" + line + "\n")
    with pytest.raises(FormatError, match="line 2"):
        read_records(path)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_format_error(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "r.jsonl"
    path.write_bytes(json.dumps(HEADER.to_dict()).encode() + b"\n" + data + b"\n")
    try:
        read_records(path)
    except FormatError as error:
        assert "\n" not in str(error)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_records(tmp_path / "none.jsonl")


def test_every_kind_is_documented() -> None:
    lines = (data_root("catalog") / "measure.toml").read_text().splitlines()
    for kind, keys in KINDS.items():
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{kind} = "))
        assert lines[place - 1].startswith("# ")
        assert keys

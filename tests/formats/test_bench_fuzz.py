"""Whatever is done to a sample, only FormatError may come out of the importer."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinned import examples, some

from bench_made import (
    CELL,
    FIRST,
    SECONDS,
    SGLANG,
    SWEEP_CSV,
    VLLM,
    aiperf_old,
    guidellm_old,
    llm_d_new,
    llm_d_old,
)
from specsim.errors import FormatError
from specsim.formats.bench.load import read_text_as_bench

DATA = Path(__file__).parent / "data"
SAMPLES = sorted(
    path for path in DATA.rglob("*") if path.suffix in (".json", ".jsonl", ".csv", ".prom", ".txt")
)
SMALL = [path for path in SAMPLES if path.stat().st_size < 23_000]
# without a sample of their own: made in the key sets of the tools' code
MADE = {
    "sglang printed": SGLANG, "vllm printed": VLLM, "sweep csv": SWEEP_CSV,
    "llm-d yaml": yaml.safe_dump(llm_d_new("inference-perf")),
    **{name: json.dumps(value) for name, value in {
        "inference max": CELL, "aiperf 0.2": aiperf_old(concurrency=4), "guidellm 0.1": FIRST,
        "guidellm 0.2": guidellm_old({"type_": "constant", "rate": 2.0}), "seconds": SECONDS,
        "llm-d 0.1": llm_d_old("guidellm"), "llm-d 0.2": llm_d_new("vllm-benchmark"),
    }.items()},
}
LIMITS = settings(
    max_examples=examples(40), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.just(10**30),
    st.just(-1e308),
    st.just(1e308),
    st.just(float("nan")),
    st.just(float("inf")),
    st.just(1e-320),
    st.just(1.5),
    st.sampled_from(["", "inf", "x", "\ud800", "9" * 400]),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just([{}]),
    st.just({"unit": "ms", "avg": 1}),
    st.just([1, "a"]),
)


def survives(text: str) -> None:
    try:
        runs = read_text_as_bench(text, "fuzz")
    except FormatError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return
    for run in runs:
        json.dumps(run.to_dict(), allow_nan=False)


@pytest.mark.parametrize("path", some(SAMPLES, 5), ids=lambda p: str(p.relative_to(DATA)))
@LIMITS
@given(data=st.data())
def test_truncated_or_spliced_text(path: Path, data: st.DataObject) -> None:
    cut_and_spliced(path.read_text(), data)


@pytest.mark.parametrize("name", MADE)
@LIMITS
@given(data=st.data())
def test_truncated_or_spliced_text_of_other_versions(name: str, data: st.DataObject) -> None:
    cut_and_spliced(MADE[name], data)


@pytest.mark.parametrize("name", [name for name, text in MADE.items() if text.startswith("{")])
@LIMITS
@given(data=st.data())
def test_replaced_and_removed_values_of_other_versions(name: str, data: st.DataObject) -> None:
    replaced_and_removed([json.loads(MADE[name])], data)


def cut_and_spliced(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    middle = data.draw(
        st.one_of(
            st.just(""),
            st.text(max_size=6),
            st.sampled_from(
                ["NaN", "-1", "1e400", '"', "{", "}", "[]", "null", "\x00", "{}", ",", "\n"]
            ),
        )
    )
    survives(data.draw(st.sampled_from([text[:start], text[:start] + middle + text[end:]])))


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    out = [here]
    if isinstance(value, dict):
        for key, item in value.items():
            out += places(item, (*here, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            out += places(value[index], (*here, index))
    return out


@pytest.mark.parametrize(
    "path",
    some((p for p in SMALL if p.suffix in (".json", ".jsonl")), 12),
    ids=lambda p: str(p.relative_to(DATA)),
)
@LIMITS
@given(data=st.data())
def test_replaced_and_removed_values(path: Path, data: st.DataObject) -> None:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    replaced_and_removed([json.loads(line) for line in lines], data)


def replaced_and_removed(values: list[Any], data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.integers(0, len(values) - 1))
        where = data.draw(st.sampled_from(places(values[target])))
        if not where:
            values[target] = copy.deepcopy(data.draw(ODD))
            continue
        holder = values[target]
        for key in where[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[where[-1]] = copy.deepcopy(data.draw(ODD))
        else:
            del holder[where[-1]]
    survives("\n".join(json.dumps(value) for value in values))


@LIMITS
@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    survives(text)


@LIMITS
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "vllm:spec_decode_num_drafts_total",
                    "vllm:generation_tokens_total",
                    "vllm:inter_token_latency_seconds_count",
                    "sglang:num_requests_total",
                    "vllm:inter_token_latency_seconds_bucket",
                    "trtllm_avg_decoded",
                    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                    "sglang:spec_verify_calls_total",
                    "sglang:generation_tokens_total",
                    "vllm:spec_decode_num_accepted_tokens_total",
                ]
            ),
            st.sampled_from(
                [
                    "",
                    '{le="0.1"}',
                    '{le="x"}',
                    '{position="1"}',
                    '{position="q"}',
                    '{model_name="a\\"b"}',
                    '{le="+Inf"}',
                    "{",
                    '{a="b"',
                ]
            ),
            st.sampled_from(["1", "0", "-3", "NaN", "+Inf", "1e308", "1e-300", "abc", "", "12345"]),
        ),
        max_size=12,
    )
)
def test_any_metrics(lines: list[tuple[str, str, str]]) -> None:
    survives("".join(f"{name}{labels} {value}\n" for name, labels, value in lines))


KEYS = sorted({
    key for path in SMALL if path.suffix == ".json"
    for place in places(json.loads(path.read_text())) for key in place if isinstance(key, str)
} | {"metrics", "benchmarks", "completed", "experiments", "request_latency", "successes"})
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 10**6), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=5)), inner, max_size=8),
    ),
    max_leaves=25,
)


@settings(max_examples=examples(120), deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])
@given(JSON, st.booleans())
def test_any_json(value: Any, twice: bool) -> None:
    line = json.dumps(value)
    survives(f"{line}\n{line}" if twice else line)

"""A broken copy of every sample fails with its reason: cut off, wrong type, missing field, NaN,
huge numbers, wrong encoding. What is spoiled is what the format cannot do without."""

import json
from pathlib import Path
from typing import Any

import pytest
from thinned import some

from specsim.errors import FormatError
from specsim.formats.bench import read_bench

DATA = Path(__file__).parent / "data"
LEFT_OUT = ("validation.json", "run=1.failure.json", "summary.json", "PROVENANCE.md")
SAMPLES = sorted(
    path for path in DATA.rglob("*") if path.is_file() and path.name not in LEFT_OUT
)
JSON = [path for path in SAMPLES if path.suffix in (".json", ".jsonl")]


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(DATA)) for path in paths]


def refused(path: Path) -> str:
    with pytest.raises(FormatError) as caught:
        read_bench(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message and len(message) < 1500
    return message


@pytest.mark.parametrize("path", SAMPLES, ids=names(SAMPLES))
def test_wrong_encoding_names_the_line(path: Path, tmp_path: Path) -> None:
    raw = path.read_bytes()
    copy = tmp_path / path.name
    copy.write_bytes(raw[:200] + b"\xe9\xff" + raw[200:])
    assert "is not UTF-8 text" in refused(copy)
    copy.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))
    refused(copy)


@pytest.mark.parametrize("path", JSON, ids=names(JSON))
def test_cut_off(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes().rstrip()[:-3])
    assert "not valid JSON" in refused(copy) or "cut off" in refused(copy)


def numbers(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers, of lists only the first."""
    if isinstance(value, dict):
        return [p for key, inner in value.items() for p in numbers(inner, (*here, key))]
    if isinstance(value, list):
        return numbers(value[0], (*here, 0)) if value else []
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return [here] if known else []


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return copy


@pytest.mark.parametrize("path", some(JSON, 6), ids=names(JSON))
def test_spoiled_numbers(path: Path, tmp_path: Path) -> None:
    """Every number of the file's first record in turn becomes text, huge, negative, NaN or goes
    missing. A reader may not use a number, or do without it; whenever it refuses, it says which
    field, and at least one number of every file must be missed."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    first = json.loads(lines[0])
    copy = tmp_path / path.name
    refusals: dict[str, int] = {}
    places = numbers(first)
    step = max(1, len(places) // 16)  # large files: a spread of their fields
    for place in places[::step]:
        for kind, value in (("text", "many"), ("huge", 1e300), ("negative", -1.5),
                            ("nan", float("nan")), ("missing", None)):
            spoiled = changed(first, place, value)
            copy.write_text("\n".join([json.dumps(spoiled), *lines[1:]]))
            try:
                runs = read_bench(copy)
            except FormatError as error:
                assert "\n" not in str(error) and path.name in str(error)
                refusals[kind] = refusals.get(kind, 0) + 1
                continue
            for run in runs:
                json.dumps(run.to_dict(), allow_nan=False)
    assert refusals.get("text") and refusals.get("huge"), refusals


PROM = [path for path in SAMPLES if path.suffix == ".prom"]


@pytest.mark.parametrize("path", PROM, ids=names(PROM))
def test_spoiled_metrics(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    copy = tmp_path / path.name
    for spoiled in (text + 'vllm:x{a="b', text.replace(" 0.0\n", " zero\n", 1) + "a b c\n"):
        copy.write_text(spoiled)
        assert "not Prometheus text" in refused(copy)
    copy.write_text("# HELP other_metric x\n# TYPE other_metric counter\nother_metric_total 1\n")
    assert "none of vLLM, SGLang and TensorRT-LLM" in refused(copy)

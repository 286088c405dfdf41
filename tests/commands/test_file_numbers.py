"""Every number of every file that users write has a range: a hostile one is refused in a sentence
or gives finite results. Each value of shipped files is replaced by values that no device, person or
budget has; seeded, a few of them in each run of the suite and many in the slow one."""

import copy
import importlib
import json
import math
import pkgutil
import random
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le, Lt

import specsim
from specsim.checked import LooseShape, Shape
from specsim.data import data_root
from specsim.errors import SpecSimError
from specsim.formats.speculative_config import parse_speculative_config
from specsim.hardware.store import load_profile
from specsim.hardware.toml_file import to_toml
from specsim.planning.fleet_file import read_fleet
from specsim.planning.sweep import read_definition

HOSTILE = (0, -1, 1e-300, 1e-30, 1e-9, 0.5, 2, 1e9, 10**20, 1e300, math.inf, math.nan, True, "x",
           "", [], [1, 2], {}, [{}])
LARGEST = 1e13  # of any figure: bytes, FLOP, seconds, tokens per second of one GPU
# Numbers whose range depends on others, each with the function that knows it. Plain mappings are
# checked by whoever builds what they describe. All of them are fuzzed below.
ELSEWHERE = {
    ("_File", "slo"): "sim.slo.check_slo",
    ("_File", "system"): "api.simulate_scenario.with_scenario",
    ("_File", "assumed"): "texts",
    ("FleetPlanFile", "slo"): "planning.fleet_file", ("Wanted", "slo"): "planning.fleet_file",
    ("Head", "repeats"): "planning.sweep", ("SweepShape", "fixed"): "planning.sweep",
    ("SweepShape", "grid"): "planning.sweep", ("SweepShape", "case"): "planning.sweep",
    ("EngineFile", "sources"): "texts",
    **{("CompareShape", name): f"the option --{name}" for name in ("slo", "concurrency", "rate")},
}
LAWS = ("_Users", "_Tools")  # values of any type are laws: sim.lengths.law_from
JSON = ("SpeculativeJson",)  # of a command line: speculation.method checks it against the method


def _file_models() -> Iterator[type[Shape]]:
    for module in pkgutil.walk_packages(specsim.__path__, "specsim."):
        part = module.name.split(".")[1]
        if part not in ("__main__", "decoder", "measure", "serve", "commands"):
            importlib.import_module(module.name)
    waiting: list[type[Shape]] = [Shape]
    while waiting:
        found = waiting.pop().__subclasses__()
        waiting += found
        for model in found:
            # a foreign tool's results are measured against each other by what reads them
            if model.__module__.startswith("specsim.") and not issubclass(model, LooseShape):
                yield model


def _numbers(hint: object, bounds: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """The bounds of each number of a type; those of plain objects, which may be numbers, too."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        yield from _numbers(arguments[0], (*bounds, *arguments[1:]))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for arm in arguments:
            yield from _numbers(arm, bounds)
    elif arguments and typing.get_origin(hint) is not typing.Literal:
        for arm in arguments:
            yield from _numbers(arm, ())
    elif hint in (int, float, object):
        yield tuple(part for item in bounds for part in getattr(item, "metadata", None) or [item])


def test_each_number_of_a_file_has_a_range() -> None:
    unbounded, seen = set(), 0
    for model in _file_models():
        if model.__name__ in (*LAWS, *JSON):
            continue
        for name, field in model.model_fields.items():
            for bounds in _numbers(field.annotation, tuple(field.metadata)):
                seen += 1
                ends = [any(isinstance(b, kinds) for b in bounds) for kinds in ((Ge, Gt), (Le, Lt))]
                if not all(ends):
                    unbounded.add((model.__name__, name))
    assert seen > 60
    assert unbounded == set(ELSEWHERE)


def _places(table: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*path, key))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    return str(value)


def _figures(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _figures(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _figures(item)
    elif isinstance(value, int | float):
        yield float(value)


def _fuzz(
    document: dict[str, Any], read: Callable[[Path], object], place: Path, count: int, seed: int
) -> tuple[int, int]:
    """(tried, accepted) of `count` changes of one value."""
    skip = ("source", "sources", "name", "title", "assumed", "description")
    cases = [
        (path, value) for path in _places(document) for value in HOSTILE
        if not any(key in skip for key in path)
    ]
    chosen = random.Random(seed).sample(cases, min(count, len(cases)))
    accepted = 0
    for path, value in chosen:
        changed = copy.deepcopy(document)
        inner: Any = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        place.write_text("\n".join(f'"{k}" = {_toml(v)}' for k, v in changed.items()))
        try:
            found = read(place)
        except SpecSimError as error:
            assert str(error) and "\n" not in str(error), (path, value)
            continue
        accepted += 1
        worst = max(map(abs, _figures(found)), default=0.0)
        assert worst < LARGEST, f"{path} = {value!r} gives a figure of {worst:g}"
    return len(chosen), accepted


def _device(place: Path) -> object:
    return specsim.predict("qwen3-8b", gpu=str(place), concurrency=[1, 64], method="ngram", k=3,
                           acceptance_rate=0.5).to_dict()["points"]


def _scenario(place: Path) -> object:
    found = specsim.simulate(scenario=str(place), users=2, duration=20, warmup=2, baseline=False,
                             replications=1).to_dict()
    assert found["output_tok_s"] is not None
    return {name: value for name, value in found.items() if name not in ("inputs", "slo")}


def _fleet(place: Path) -> object:
    return [pool.price_per_gpu_hour for pool in read_fleet(str(place)).gpus]


def _sweep(place: Path) -> object:
    read_definition(place)
    return []


def _engine(place: Path) -> object:
    return specsim.predict("qwen3-8b", gpu="h100-sxm", engine=str(place), concurrency=[1],
                           method="ngram", k=3, acceptance_rate=0.5).to_dict()["points"]


def _documents() -> list[tuple[str, dict[str, Any], Callable[[Path], object]]]:
    device = tomllib.loads(to_toml(load_profile("h100-sxm")))
    del device["device"]["name"]
    root = data_root("scenarios")
    docs = Path(__file__).resolve().parents[2] / "docs"
    return [
        ("device", device, _device),
        *((path.stem, tomllib.loads(path.read_text("utf-8")), _scenario)
          for path in sorted(root.glob("*.toml"))),
        ("engine", tomllib.loads(data_root("engines").joinpath("sglang-0.5.12.toml").read_text()),
         _engine),
        ("fleet", tomllib.loads((docs / "fleet.toml").read_text("utf-8")), _fleet),
        ("sweep", {"sweep": {"run": "predict", "repeats": 2, "seed": 1},
                   "fixed": {"model": "qwen3-8b"}, "grid": {"k": [1, 2]},
                   "case": [{"gpu": "h100-sxm"}]}, _sweep),
    ]


DOCUMENTS = _documents()
IDS = [name for name, _, _ in DOCUMENTS]


@pytest.mark.parametrize(("name", "document", "read"), DOCUMENTS, ids=IDS)
def test_a_hostile_number_is_refused_or_harmless(name, document, read, tmp_path) -> None:
    tried, accepted = _fuzz(document, read, tmp_path / "x.toml", 40, 0)
    assert tried == 40 and accepted < 40


@pytest.mark.slow
@pytest.mark.parametrize(("name", "document", "read"), DOCUMENTS, ids=IDS)
def test_many_hostile_numbers(name, document, read, tmp_path) -> None:
    _fuzz(document, read, tmp_path / "x.toml", 400, 1)


@pytest.mark.parametrize("line", [
    "mem_frac = 1e-300", "chain_gain = 0", "p = 0", "p = 1e-30", "peak_frac = 0", "max_splits = 0",
    "floor_s = inf", "mem_frac = nan", "tile_rows = 100000000000000000000",
])
def test_kernel_parameters_have_ranges(line: str, tmp_path: Path) -> None:
    text = to_toml(load_profile("h100-sxm")).replace('name = "h100-sxm"', 'name = "x"')
    place = tmp_path / "x.toml"
    place.write_text(text + f'\n[kernels."my_kernel"]\n{line}\n')
    with pytest.raises(SpecSimError, match="is outside"):
        load_profile(str(place))


@pytest.mark.parametrize("law", [
    {"dist": "lognormal", "median": 0, "sigma": 1}, {"dist": "lognormal", "mean": 5, "sigma": 0},
    {"dist": []}, {"dist": "mixture", "parts": [{"p": 0, "dist": "values", "values": [1]}]},
    {"dist": "values", "values": []}, math.inf, -1, 10**20, True, [],
])
def test_laws_have_ranges(law: object) -> None:
    from specsim.sim.lengths import law_from

    with pytest.raises(SpecSimError):
        law_from(law, "x")


def test_a_hostile_speculative_config_is_refused_in_a_sentence() -> None:
    good = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4,
            "prompt_lookup_min": 2, "draft_tensor_parallel_size": 1,
            "num_speculative_tokens_per_batch_size": [[1, 8, 3]],
            "synthetic_acceptance_rates": [0.8, 0.6, 0.4, 0.2], "synthetic_acceptance_length": 2.5}
    refused = 0
    for path in _places(good):
        for value in HOSTILE:
            changed = copy.deepcopy(good)
            inner: Any = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                found = parse_speculative_config(json.dumps(changed))
            except SpecSimError:
                refused += 1
            else:
                assert 0 <= (found.num_speculative_tokens or 0) < 1e6
    assert refused > 100

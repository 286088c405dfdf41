"""Random deployments of all that the catalogue holds: what must hold for predictions and runs.

A few on every run, 2,000 among the slow tests; `validation/scripts/random_systems.py` does any
number. Exceptions are those of docs/reliability.md, by name.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import predict_properties
import pytest
import random_deployments
import random_systems
from random_systems import Check, finding, predicted, simulated

# Property -> share of systems that may miss it, and by how much: docs/reliability.md says why.
EXCEPTIONS = {
    "more acceptance: tokens per second": (0.005, 0.2),
    "more acceptance: TPOT": (0.005, 2.0),
    "more acceptance: TTFT": (0.005, 0.15),
    "more memory: tokens per second": (0.005, 0.1),
    "more memory rate: tokens per second": (0.001, 0.03),
    "more memory rate: TTFT": (0.002, 0.16),
    "more link rate: TPOT": (0.001, 0.01),
    "more FLOP rate: tokens per second": (0.001, 0.016),
    "more FLOP rate: TPOT": (0.001, 2.5),
    "more FLOP rate: TTFT": (0.001, 3.0),
    "longer prompts: TTFT": (0.005, 0.1),
}


def judge(check: Check, first: int, systems: int) -> None:
    """`systems` that are not refused, from a number on: no tracebacks, and no misses besides the
    exceptions."""
    missed: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    tried, number = 0, first
    while tried < systems:
        line = finding(number, check)
        assert "traceback" not in line, (number, line["traceback"])
        tried += "refused" not in line
        for rule, by, text in line.get("misses", []):
            missed[rule].append((by, number, text))
        number += 1
    assert number - first < 4 * systems + 50, "most are refused: the sampler draws what none runs"
    for rule, cases in missed.items():
        share, by = EXCEPTIONS.get(rule, (0.0, 0.0))
        assert len(cases) <= 1 + share * systems and max(cases)[0] <= by, (rule, max(cases))


def test_a_few_predictions() -> None:
    judge(predicted, 0, 12)


def test_a_few_simulations() -> None:
    judge(simulated, 0, 8)


@pytest.mark.slow
def test_many_predictions() -> None:
    judge(predicted, 1_000_000, 2000)


@pytest.mark.slow
def test_many_simulations() -> None:
    judge(simulated, 1_000_000, 120)


def test_the_sampler_reaches_all_of_the_catalogue_and_repeats_itself() -> None:
    models, devices, engines = random_deployments.catalogue()
    drawn = [random_deployments.random_options(number) for number in range(10 * len(models))]
    for name, known in (("model", models), ("gpu", devices), ("engine", engines)):
        assert {getattr(given, name) for given in drawn} == set(known)
    assert random_deployments.random_options(7) == drawn[7]


def test_a_property_that_does_not_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a device with a slower memory instead of a faster one; and of an error in the code."""
    number = next(n for n in range(100) if "misses" in finding(n, predicted))
    monkeypatch.setattr(predict_properties, "MORE", 0.5)
    monkeypatch.setattr(predict_properties, "CHANGES", ("more memory rate", "more FLOP rate"))
    assert {rule.split(":")[0] for rule, _, _ in finding(number, predicted)["misses"]} <= {
        "more memory rate", "more FLOP rate"
    }
    assert finding(number, predicted)["misses"]
    monkeypatch.setattr(predict_properties, "of_one", None)
    assert "TypeError" in finding(number, predicted)["traceback"]


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.jsonl"
    for systems in (1, 2):
        monkeypatch.setattr(sys, "argv", ["x", "--systems", str(systems), "--out", str(out)])
        random_systems.main()
        assert f"{systems} systems, " in capsys.readouterr().out
    numbers = [json.loads(line)["number"] for line in out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))


def test_the_table_names_the_worst() -> None:
    misses = [["rule", 0.5, "3 over 2"], ["rule", 0.001, "2 over 2"]]
    text = random_systems.table([
        {"number": 4, "misses": misses[:1]}, {"number": 5, "misses": misses[1:]},
        {"number": 6, "refused": "no"}, {"number": 7, "traceback": "..."},
    ])
    assert text.splitlines() == [
        "3 systems, 1 refused, 1 tracebacks [7]",
        "rule: 2 (1 by more than 1%), worst 50.00% (4: 3 over 2)",
    ]

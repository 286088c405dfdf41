"""Command lines of `pareto` with options at random: a result or one line of refusal,
never a traceback, and no number in JSON that JSON does not know."""

import json
import random
import sys
from pathlib import Path

import pytest

from specsim.commands import main

VALUES = (
    "0", "1", "2", "3", "-1", "0.5", "1e-30", "1e300", "inf", "nan", "", " ", "x", "1,2", "1,,2",
    "4,1", "99999999999999999999", "bf16", "fp8", "none", "ngram", "h100-sxm", "qwen3-8b", "=1",
)
NUMBERS = ("1", "2", "4", "8", "64", "0.5", "1000")
OPTIONS = ("--k", "--tp", "--concurrency", "--input-len", "--output-len", "--gpu", "--weights",
           "--kv", "--method", "--acceptance-rate", "--pps", "--gpus", "--max-num-seqs",
           "--cached-share", "--draft-share", "--engine", "--workload")


def _line(chance: random.Random) -> list[str]:
    words = ["pareto", "qwen3-8b", "--json"]
    for option in chance.sample(OPTIONS, chance.randint(1, 4)):
        value = chance.choice(VALUES if chance.random() < 0.6 else NUMBERS)
        words.append(f"{option}={value}")
    return words


def _check(words: list[str], capsys, monkeypatch) -> int:
    monkeypatch.setattr(sys, "argv", ["specsim", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    code = stop.value.code
    assert code in (0, 1, 2), (words, err)
    if code == 2:
        assert err.startswith("specsim: ") and err.count("\n") == 1 and not out, (words, err)
    else:
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON of {words}"))
    return code


def test_options_at_random(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random("pareto")
    codes = [_check(_line(chance), capsys, monkeypatch) for _ in range(25)]
    assert 0 in codes and 2 in codes


@pytest.mark.slow
def test_many_options_at_random(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(7)
    codes = [_check(_line(chance), capsys, monkeypatch) for _ in range(200)]
    assert 0 in codes and 2 in codes

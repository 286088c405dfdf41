"""Command lines of three studies with options at random: a result or one line of refusal, never a
traceback, and no number in JSON that JSON does not know. Settings are cheap: two short runs."""

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
WORDS = {  # what makes sense where no number does; half of the lines should get through
    "--gpu": ("h100-sxm", "h200-sxm"), "--weights": ("bf16", "fp8"), "--kv": ("bf16", "fp8"),
    "--method": ("none", "ngram"), "--engine": ("vllm", "sglang"), "--workload": ("chat", "short"),
    "--slo": ("ttft_p95=2", "tpot_p50=0.05"), "--unit": ("users", "rate"),
    "type": ("'h100-sxm'",), "workload": ("'short'",), "name": ("'a'",),
    "model": ("'llama-3.1-8b'",), "slo": ("{tpot_p50 = 0.05}",), "--profiles": (".",),
    **dict.fromkeys(
        ("--acceptance-rate", "--cached-share", "--draft-share", "--operating-share",
         "--range-ratio", "--gpu-memory-utilization", "operating_share",
         "gpu_memory_utilization", "--warmup"), ("0.5", "0.9", "0.1"),
    ),
}
SYSTEM = ("--k", "--tp", "--input-len", "--output-len", "--gpu", "--weights", "--kv", "--method",
          "--acceptance-rate", "--max-num-seqs", "--cached-share", "--draft-share", "--engine",
          "--workload")
COMMANDS = {
    "pareto": (("qwen3-8b",), (*SYSTEM, "--concurrency", "--pps", "--gpus")),
    "capacity": (
        ("llama-3.1-8b", "--ladder=1", "--duration=1", "--jobs=1", "--no-baseline",
         "--replications=2", "--slo=ttft_p95=1"),
        (*SYSTEM, "--rate", "--users", "--warmup", "--slo", "--burstiness", "--range-ratio",
         "--operating-share", "--price-per-gpu-hour", "--seed", "--unit",
         "--stream-floor", "--max-concurrent", "--max-model-len", "--gpu-memory-utilization"),
    ),
    "fleet": (
        ("fleet.toml", "--quick", "--jobs=1"),
        ("--seed", "--profiles", "count", "rate", "workload", "slo", "name",
         "model", "tp", "operating_share", "type", "max_num_seqs", "gpu_memory_utilization"),
    ),
}
FLEET = {"operating_share": "0.8", "type": "'h200-sxm'", "count": "2", "name": "'chat'",
         "model": "'qwen3-8b'", "rate": "1", "workload": "'chat'", "slo": "{ttft_p95 = 3}"}


def _line(command: str, chance: random.Random) -> list[str]:
    """Options; of a fleet also lines of its file, which is written here."""
    words, options = COMMANDS[command]
    line, lines = [command, *words, "--json"], dict(FLEET)
    for option in chance.sample(options, chance.randint(1, 4)):
        value = chance.choice(VALUES if chance.random() < 0.3 else WORDS.get(option, NUMBERS))
        if option.startswith("--"):
            line.append(f"{option}={value}")
        else:
            lines[option] = value if chance.random() < 0.8 else repr(value)
    if command == "fleet":
        text = [f"{key} = {value}" for key, value in lines.items()]
        text = [*text[:1], "[[gpus]]", *text[1:3], "[[models]]", *text[3:]]
        Path("fleet.toml").write_text("\n".join(text), encoding="utf-8")
    return line


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


def _try(command: str, count: int, seed: str, capsys, monkeypatch) -> None:
    chance = random.Random(command + seed)
    codes = [_check(_line(command, chance), capsys, monkeypatch) for _ in range(count)]
    assert 2 in codes and set(codes) > {2}


@pytest.mark.parametrize(("command", "count"), [("pareto", 6), ("capacity", 5), ("fleet", 6)])
def test_options_at_random(command: str, count: int, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    _try(command, count, "", capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_many_options_at_random(command: str, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    _try(command, 60, "many", capsys, monkeypatch)


@pytest.mark.parametrize("words", [
    ("gpus",), ("predict", "qwen3-8b"), ("simulate", "qwen3-8b", "--trace=" + "a" * 5000),
])
def test_a_name_too_long_for_a_file_is_a_mistake_of_the_user(words, capsys, monkeypatch) -> None:
    assert _check([*words, "--profiles=" + "a" * 5000], capsys, monkeypatch) == 2

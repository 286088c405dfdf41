"""Command lines of three studies with options at random: a result or one line of refusal, never a
traceback, and no number in JSON that JSON does not know. Settings are cheap: two short runs."""

import json
import random
import sys
from pathlib import Path

import pytest

from specsim.commands import main
from specsim.options.declare import declared
from specsim.options.registry import command_model

VALUES = (
    "0", "1", "2", "3", "-1", "0.5", "1e-30", "1e300", "inf", "nan", "", " ", "x", "1,2", "1,,2",
    "4,1", "99999999999999999999", "bf16", "fp8", "none", "ngram", "h100-sxm", "qwen3-8b", "=1",
)
NUMBERS = ("1", "2", "4", "8", "64", "1000")
WORDS = {  # what makes sense where no number does; half of the lines should get through
    "--gpu": ("h100-sxm", "h200-sxm"), "--weights": ("bf16", "fp8"), "--kv": ("bf16", "fp8"),
    "--method": ("none", "ngram"), "--engine": ("vllm", "sglang"), "--workload": ("chat", "short"),
    "--slo": ("ttft_p95=2", "tpot_p50=0.05"), "--unit": ("users", "rate"),
    "--rates": ("auto", "1,8"), "--at": ("50tok/s", "20ms,100tok/s"), "--contexts": ("1k,8k",),
    "--by": ("batch", "batch,context"), "--from": ("runs", "runs/mtp-k3-c16.json"),
    "--from-measured": ("runs/mtp-k3-c16.json", "runs/mtp-k3-c16.json@k=2"),
    "--to": ("gpu=b200", "tp=2,k=2", "engine=sglang", "concurrency=4", "k=x", "tp"),
    "--objective": ("throughput", "tpot", "cost", "ttft"), "--run": ("predict",),
    "--methods": ("mtp,ngram", "none"), "--mix": ("chat=0.5,code=0.5@3",), "--jobs": ("1",),
    "--acceptance-range": ("1.5,3",), "--draft": ("my-head",), "--tree": ("4,8",),
    "--work": ("chat", "code"), "--thinking": ("on",), "--language": ("en",),
    "--fidelity": ("datasheet",), "--routing": ("uniform", "1,2"), "--link": ("pcie5-x16",),
    "--command": ("vllm serve Qwen/Qwen3-8B", "vllm serve qwen3-8b --speculative-config {}"),
    "--speculative-config": ('{"method": "mtp"}', "{"), "--export": ("day", "runs"),
    "--plot": ("a.svg", "runs"), "--script": ("runs.sh", "runs"), "--out": ("a.csv", "a.txt"),
    "--set": ("rate=1", "k=1"), "--grid": ("k=1,2", "gpu=h100-sxm;x", "k=", "method=ngram,none"),
    "--executor": ("local", "dask://", "ray://a:b", "dask://127.0.0.1:x"), "--workers": ("1",),
    "--columns": ("speedup", "output_tok_s,x"), "--journal": ("a.jsonl", "runs"),
    "type": ("'h100-sxm'",), "workload": ("'short'",), "name": ("'a'",), "gpu": ("'h100-sxm'",),
    "model": ("'llama-3.1-8b'",), "slo": ("{tpot_p50 = 0.05}",), "--profiles": (".",),
    "profile": ("'office'", "[1, 2]"), "command": ("'vllm serve qwen3-8b'",),
    "method": ("'none'", "'ngram'"), "weights": ("'fp8'",), "run": ("'simulate'",),
    "engine": ("'sglang'",), "objective": ("'cost'",), "host_w": ("300",),
    **dict.fromkeys(
        ("--acceptance-rate", "--cached-share", "--draft-share", "--operating-share",
         "--range-ratio", "--gpu-memory-utilization", "operating_share", "--acceptance",
         "--acceptance-conditional", "--acceptance-mean", "acceptance_rate",
         "gpu_memory_utilization", "--warmup"), ("0.5", "0.9", "0.1"),
    ),
}
SYSTEM = ("--k", "--tp", "--input-len", "--output-len", "--gpu", "--weights", "--kv", "--method",
          "--acceptance-rate", "--max-num-seqs", "--cached-share", "--draft-share", "--engine",
          "--workload")
FLEET = {"operating_share": "0.8", "[[gpus]]": "", "type": "'h200-sxm'", "count": "2",
         "[[models]]": "", "name": "'chat'", "model": "'qwen3-8b'", "rate": "1",
         "workload": "'chat'", "slo": "{ttft_p95 = 3}", "profile": "'office'"}
COMPARED = {"model": "'qwen3-8b'", "gpu": "'h200-sxm'", "concurrency": "[1, 8]",
            "[[deployment]]": "", "method": "'none'", "weights": "'bf16'",
            "[[deployment]] # 2": "", "name": "'b'", "acceptance_rate": "0.5", "k": "2"}
SWEPT = {"[sweep]": "", "run": "'predict'", "repeats": "1", "[fixed]": "", "concurrency": "4",
         "model": "'qwen3-8b'", "method": "'ngram'", "acceptance_rate": "0.5",
         "[grid]": "", "k": "[1, 2]"}
RUN = {'{"max_concurrency"': "16", '"completed"': "64", '"duration"': "9.476",
       '"total_input_tokens"': "41600", '"total_output_tokens"': "16384",
       '"output_throughput"': "1729", '"mean_tpot_ms"': "8",
       '"spec_decode_acceptance_length"': "3.18", '"request_rate"': '"inf"}'}
MTP = ("qwen3.6-27b", "--weights=fp8", "--method=mtp")
# Words of each command, and its options that are drawn besides; none: every option that it has, of
# which those that start many processes have few values above.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pareto": (("qwen3-8b", "--ks=0,2", "--tps=1"), (*SYSTEM, "--concurrency", "--pps", "--gpus")),
    "pareto --at": (("qwen3-8b", "--at=50tok/s", "--ks=0,2", "--tps=1"), ()),
    "capacity": (
        ("llama-3.1-8b", "--ladder=1", "--duration=1", "--jobs=1", "--no-baseline",
         "--replications=2", "--slo=ttft_p95=1"),
        (*SYSTEM, "--rate", "--users", "--warmup", "--slo", "--burstiness", "--range-ratio",
         "--operating-share", "--price-per-gpu-hour", "--seed", "--unit",
         "--stream-floor", "--max-concurrent", "--max-model-len", "--gpu-memory-utilization"),
    ),
    "fleet": (
        ("fleet.toml", "--quick", "--jobs=1"),
        ("--seed", "--profiles", *(name for name in FLEET if "[" not in name),
         "max_num_seqs", "tp", "gpu_memory_utilization"),
    ),
    "fleet --day": (
        ("fleet.toml", "--quick", "--jobs=1", "--day"),
        ("--export", "--plot", "profile", "rate", "users", "count", "price_per_gpu_hour",
         "startup_s", "host_w"),
    ),
    "compare": (("compared.toml",), ("--objective", "--slo", "--concurrency", "--rate", *(
        name for name in COMPARED if "[" not in name), "run", "engine", "command", "x")),
    "crossover --rates": (("qwen3-8b", "--rates=1,8"), ()),
    "tune --by": (("qwen3-8b", "--by=batch", "--max-k=3", "--concurrency=4"), ()),
    "tune --plan": ((*MTP, "--plan", "--max-k=3", "--concurrency=16"), ()),
    "tune --from": ((*MTP, "--from=runs", "--max-k=3", "--concurrency=16"), (
        *RUN, "--runs", "--from", "--script", "--objective", "--slo", "--k", "--concurrency")),
    "predict --from-measured": (
        (*MTP, "--from-measured=runs/mtp-k3-c16.json", "--to=gpu=b200"),
        (*RUN, "--to", "--from-measured", *SYSTEM)),
    "predict --to": ((*MTP, "--from-measured=runs/mtp-k3-c16.json", "--to=k=2"), ()),
    "sweep": (("swept.toml", "--workers=1"), (
        "--run", "--set", "--grid", "--executor", "--columns", "--journal", "--restart", "--rows",
        "--out", "--plot", *(name for name in SWEPT if "[" not in name), "x")),
}
FILES = {"fleet.toml": FLEET, "compared.toml": COMPARED, "swept.toml": SWEPT,
         "runs/mtp-k3-c16.json": RUN}


def _line(command: str, chance: random.Random) -> list[str]:
    """Options, and lines of the files that the command reads, which are written here."""
    words, options = COMMANDS[command]
    name = command.partition(" ")[0]
    known = {flag: item for item in declared(command_model(name)).values()
             for flag in item.on if flag not in ("--csv", "--wide") and not item.option.argument}
    line, written = [name, *words, "--json"], {file: dict(lines) for file, lines in FILES.items()}
    places = [lines for file, lines in written.items() if any(file[:4] in word for word in words)]
    for option in chance.sample(options or sorted(known), chance.randint(1, 4)):
        value = chance.choice(VALUES if chance.random() < 0.2 else WORDS.get(option, NUMBERS))
        if option in known and known[option].kind is bool:
            line.append(option)
        elif option.startswith("-"):
            line += [f"{option}={value}"] if option.startswith("--") else [option, value]
        else:
            end = "}" * places[0].get(option, "").endswith("}") * (places[0] is written[
                "runs/mtp-k3-c16.json"])
            places[0][option] = (value if chance.random() < 0.8 else repr(value)) + end
    for file, lines in written.items():
        Path(file).parent.mkdir(exist_ok=True)
        sign, between = (": ", ",\n") if file.endswith(".json") else (" = ", "\n")
        text = [key if "[" in key else f"{key}{sign}{value}" for key, value in lines.items()]
        Path(file).write_text(between.join(text), encoding="utf-8")
    return line


def _check(words: list[str], capsys, monkeypatch) -> int:
    monkeypatch.setattr(sys, "argv", ["specsim", *words])
    before = sorted(Path().rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    code = stop.value.code
    assert code in (0, 1, 2), (words, err)
    if code == 2:
        assert err.startswith("specsim: ") and err.count("\n") == 1, (words, err)
        assert sorted(Path().rglob("*")) == before, words
    if out or code != 2:
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON of {words}"))
    return code


def _try(command: str, count: int, seed: str, capsys, monkeypatch) -> None:
    chance = random.Random(command + seed)
    codes = [_check(_line(command, chance), capsys, monkeypatch) for _ in range(count)]
    assert 2 in codes and set(codes) > {2}


@pytest.mark.parametrize(("command", "count"), [
    ("pareto", 6), ("compare", 6), ("tune --from", 6), ("predict --from-measured", 6),
])
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

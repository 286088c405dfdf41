"""`--help` can be read, and the words that people bring from other tools are understood."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsim.commands import COMMANDS, _usage, app
from specsim.commands.bind import FEW, HelpCommand
from specsim.commands.lazy import LoadedCommands
from specsim.data import data_table
from specsim.model.counts import cache_dtype
from specsim.model.weights import weight_format
from specsim.options.config_file import default_map, read_file
from specsim.options.declare import SECTIONS, OptionSet, declared
from specsim.options.meaning import near
from specsim.options.registry import command_model, command_names

NAMES = [name for texts in COMMANDS.values() for name in texts]


def parsed(name: str) -> HelpCommand:
    prefix, _, last = name.rpartition(" ")
    found: HelpCommand = LoadedCommands([last], f"{prefix} " if prefix else "")[last]
    return found


def options_of(line: str) -> OptionSet:
    """The options of a typed command line, checked as the command checks them."""
    words = shlex.split(line.partition(" > ")[0])[1:]
    size = 2 if " ".join(words[:2]) in command_names() else 1
    name, rest = " ".join(words[:size]), words[size:]
    context = parsed(name).make_context(name, rest)
    given = {key for key in context.params
             if "COMMANDLINE" in str(context.get_parameter_source(key))}
    return command_model(name).of_values({key: context.params[key] for key in given})


def help_of(name: str, columns: int) -> str:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("name", command_names())
def test_many_options_stand_below_headings(name: str) -> None:
    text, known = help_of(name, 80), declared(command_model(name))
    headings = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[-1] == "Examples"
    if len(known) <= FEW:
        assert headings[:-1] in (["Options"], ["Arguments", "Options"])
        return
    assert {item.section for item in known.values()} <= set(SECTIONS), "an option has no section"
    listed = [heading for heading in headings[:-1] if heading != "Arguments"]
    assert listed == [section for section in SECTIONS if section in listed]


@pytest.mark.parametrize("name", command_names())
def test_help_is_as_wide_as_the_terminal_and_breaks_no_flag(name: str) -> None:
    narrow, wide = help_of(name, 80), help_of(name, 200)
    for text, width in ((narrow, 80), (wide, 200)):
        assert max(map(len, text.splitlines())) <= width
        for item in declared(command_model(name)).values():
            for flag in (*item.on, *item.off) if not item.option.argument else ():
                assert flag in text, f"{flag} is broken or missing"
    assert len(wide.splitlines()) <= len(narrow.splitlines())


@pytest.mark.parametrize("name", command_names())
def test_examples_are_commands_that_parse(name: str) -> None:
    assert parsed(name).examples
    for line in parsed(name).examples:
        assert len(line) <= 77, "two columns of indent, 80 in all"
        options_of(line)
    assert any(line.startswith(f"specsim {name}") for line in parsed(name).examples)


def test_commands_stand_below_the_question_they_answer() -> None:
    text = help_of("", 80)
    for heading, texts in COMMANDS.items():
        assert f"\n{heading}:\n" in text
        for name, line in texts.items():
            assert f"  {name:<12}{line}\n" in text, f"{name} takes more than one line"
    assert len(NAMES) == len(set(NAMES))


def test_the_names_of_vllm_and_sglang_mean_the_same_options() -> None:
    ours = options_of(
        "specsim predict m --tp 2 --pp 2 --ep 2 --k 3 --weights fp8 --kv fp8 --input-len 9 "
        "--output-len 8 --concurrency 4 --max-num-seqs 16 --gpu-memory-utilization 0.8 "
        "--max-num-batched-tokens 4096 --max-model-len 100"
    )
    vllm = options_of(
        "specsim predict m --tensor-parallel-size 2 --pipeline-parallel-size=2 --ep-size 2 "
        "--num-speculative-tokens 3 --quantization fp8 --kv-cache-dtype fp8 --isl 9 --osl 8 "
        "--max-concurrency 4 --max-num-seqs 16 --gpu-memory-utilization 0.8 "
        "--max-num-batched-tokens 4096 --max-model-len 100"
    )
    sglang = options_of(
        "specsim predict m -tp 2 -pp 2 --expert-parallel-size 2 -k 3 -q fp8 --kv-cache-dtype fp8 "
        "--random-input-len 9 --random-output-len 8 --concurrency 4 --max-running-requests 16 "
        "--mem-fraction-static 0.8 --chunked-prefill-size 4096 --max-model-len 100"
    )
    assert ours.values() == vllm.values() == sglang.values()
    off = options_of("specsim simulate m --no-enable-prefix-caching")
    assert off.values()["prefix_caching"] is False


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("awq_marlin", "int4"), ("modelopt_fp4", "nvfp4"), ("fbgemm_fp8", "fp8"), ("half", "fp16")],
)
def test_their_words_for_weight_formats_mean_the_same(theirs: str, ours: str) -> None:
    assert weight_format(theirs).name == ours
    assert [cache_dtype(name) for name in ("fp8_e4m3", "bfloat16", "fp8")] == ["fp8", "bf16", "fp8"]


def test_specsim_toml_understands_them_and_they_put_its_defaults_aside(tmp_path: Path) -> None:
    file = tmp_path / "specsim.toml"
    file.write_text("[predict]\ntensor-parallel-size = 4\nisl = 100\n", encoding="utf-8")
    found = read_file(file)
    assert found.of("predict") == {"tp": 4, "input_len": 100}
    acceptance = tmp_path / "k.toml"
    acceptance.write_text("[predict]\nacceptance-length = 2.0\n", encoding="utf-8")
    assert default_map(read_file(acceptance), ["predict", "m", "-k", "2"])["predict"] == {}


@pytest.mark.parametrize(
    ("command", "word", "flag"),
    [
        ("predict", "--batch-size", "--concurrency"), ("predict", "--num-gpus", "--tp"),
        ("predict", "--context-length", "--input-len"), ("predict", "--gamma", "-tokens"),
        ("predict", "--draft-model", "--draft"), ("predict", "--dtype", "--weights"),
        ("predict", "--model", "MODEL"), ("predict", "--concurency", "--concurrency"),
        ("predict", "--tensor-paralel-size", "--tp"), ("simulate", "--qps", "--rate"),
        ("simulate", "--num-replicas", "--replicas"), ("capacity", "--sla", "--slo"),
        ("pareto", "--num-gpus", "--tps"), ("crossover", "--context-length", "--contexts"),
        ("watch", "--speculative-algorithm", "--method"), ("gpus", "--jsn", "--json"),
        ("predict", "--conc", "--concurrency"), ("tune", "--num-spec", "--num-speculative-tokens"),
    ],
)
def test_a_wrong_flag_is_answered_with_the_nearest_in_meaning(
    command: str, word: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(app, [command, word, "1"], standalone_mode=False)
    with pytest.raises(SystemExit) as stopped:
        _usage(done.exception)
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert told.startswith(f"specsim: {command} has no option {word}; ")
    assert told.partition("(")[0].rstrip().endswith(flag) or f"; {flag} stands by place" in told
    assert told.endswith(f"see `specsim {command} --help`\n") and len(told) < 220


def test_what_means_nothing_known_gets_no_suggestion() -> None:
    known = declared(command_model("predict"))
    assert near("--zzyzx", known) == []
    every = {name for command in command_names() for name in declared(command_model(command))}
    assert set(data_table("catalog", "option_words.toml")) <= every

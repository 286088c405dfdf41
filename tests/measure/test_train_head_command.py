"""`specsim train-head` on a tiny model."""

import importlib
import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from measure_helpers import tiny_folder, tiny_tokenizer
from specsim.client.prompts import read_prompts
from specsim.commands import app
from specsim.commands.train_head import built_in_prompts, self_made_prompts
from specsim.decoder.distill import read_answers
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.models import load_model
from specsim.errors import FormatError, UsageError


@pytest.fixture
def model(tmp_path):
    folder = tiny_folder(tmp_path / "tiny")
    tiny_tokenizer(folder)
    return folder


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["train-head", "--threads", "1", *map(str, arguments)])


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Every look at the clock takes `tick_s`: what fits into a budget depends on no machine."""
    found = SimpleNamespace(now_s=0.0, tick_s=1e-4)

    def monotonic() -> float:
        found.now_s += found.tick_s
        return found.now_s

    module = importlib.import_module("specsim.commands.train_head")
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    return found


def test_from_prompts_to_a_head_and_on(model, tmp_path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"w{i} w{i + 1} w{2 * i}"}) + "\n"
                               for i in range(30)))
    out = tmp_path / "head"
    options = ("--model", model, "--prompts", prompts, "--out", out, "--max-new-tokens", 12,
               "--vocab-size", 64, "--json")
    first = invoke(*options, "--budget", "20s", "--epochs", 2)
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert report == json.loads((out / "report.json").read_text()) | {"head": report["head"]}
    kept = [a for a in read_answers(out / "answers.jsonl").values() if len(a.out_ids) > 2]
    assert report["answers"] + report["held_out_answers"] == len(kept) > 12
    epoch = -(-report["answers"] // 12)  # batches of 12
    assert report["iterations"] == 2 * epoch
    assert len(report["teacher_forced_accuracy"]) == 3
    assert 1.0 <= report["acceptance_length"] <= 5.0
    head = EagleWeights.load(out / "head.safetensors")
    assert head.vocab is not None and len(head.vocab) == 64
    answers = (out / "answers.jsonl").read_bytes()

    second = invoke(*options, "--budget", "20s", "--epochs", 4)
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["iterations"] == 4 * epoch  # went on
    assert (out / "answers.jsonl").read_bytes() == answers

    third = invoke("--model", model, "--prompts", prompts, "--out", tmp_path / "more",
                   "--max-new-tokens", 12, "--init", out / "head.safetensors", "--budget", "20s",
                   "--epochs", 1, "--json")
    assert third.exit_code == 0, third.output
    more = EagleWeights.load(tmp_path / "more" / "head.safetensors")
    assert more.vocab is not None and more.vocab.tolist() == head.vocab.tolist()

    other = invoke(*options, "--budget", "20s", "--seed", 5)
    assert isinstance(other.exception, UsageError) and "another seed" in str(other.exception)


@pytest.mark.slow
def test_without_prompts_the_model_makes_some_up(model, tmp_path) -> None:
    out = tmp_path / "head"
    result = invoke("--model", model, "--out", out, "--budget", "12s", "--tokens", 300,
                    "--max-new-tokens", 10, "--epochs", 1, "--vocab-size", 32)
    assert result.exit_code == 0, result.output
    assert "tokens per step" in result.stdout and (out / "head.safetensors").is_file()
    assert sum(len(a.out_ids) for a in read_answers(out / "answers.jsonl").values()) >= 300


def test_self_made_prompts_are_closed_chats(model) -> None:
    loaded = load_model(model, dtype="fp32")
    made = self_made_prompts(loaded, 5, 1, stop=lambda: False)
    assert made == self_made_prompts(loaded, 5, 1, stop=lambda: False)
    for ids in made:
        assert ids[0] == 0 and ids[-1] == 1 and 1 not in ids[:-1] and len(ids) > 5
    assert self_made_prompts(loaded, 5, 1, stop=lambda: True) == []


def test_built_in_prompts_are_many_kinds_and_seeded() -> None:
    one = built_in_prompts(0)
    assert one == built_in_prompts(0) != built_in_prompts(1)
    assert len(one) > 700 and len(set(one)) > 0.95 * len(one)
    for word in ("apples", "Python", "poem", "Translate", "statistics.median"):
        assert any(word in prompt for prompt in one), word


def test_prompt_files_in_several_spellings(tmp_path) -> None:
    path = tmp_path / "p.txt"
    path.write_text('{"prompt": "a"}\n\n{"question": "b"}\n{"turns": ["c", "d"]}\nplain text\n'
                    '{"text": "e"}\n')
    found = [prompt.content for prompt in read_prompts(path, plain=True)]
    assert found == ["a", "b", "c", "plain text", "e"]


@pytest.mark.parametrize("text,message", [
    ("", "holds no prompt"), ('{"prompt": [1]}\n', "line 1 has no prompt"),
    ('{"prompt": 5}\n', "line 1 has no prompt"),
    ('a\n{"prompt": "x"\n', "line 2 is not valid JSON"),
    ('{"turns": []}\n', "line 1 has no prompt"),
])
def test_broken_prompt_files(tmp_path, text, message) -> None:
    path = tmp_path / "p.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_prompts(path, plain=True)


@pytest.mark.parametrize("arguments,words", [
    (["--budget", "never"], ["--budget", "never"]),
    (["--tokens", "0"], ["--tokens", "0"]),
    (["--epochs", "-1"], ["--epochs", "-1"]),
    (["--vocab-size", "0"], ["--vocab-size"]),
    (["--model", "no-model"], ["no-model"]),
    (["--prompts", "no-file.jsonl"], ["no-file.jsonl"]),
])
def test_bad_options(arguments, words, tmp_path) -> None:
    result = invoke("--out", tmp_path / "head", *arguments)
    message = str(result.exception)
    assert isinstance(result.exception, UsageError | FormatError), result.exception
    assert "\n" not in message and all(word in message for word in words), message
    assert not (tmp_path / "head").exists()


@pytest.mark.slow
def test_answers_and_training_end_inside_the_budget(model, tmp_path, clock) -> None:
    clock.tick_s = 0.1  # of 20 s, 8 are for answers, one look each step; 1.6 are kept for the end
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"w{i} w{i + 1}\n" for i in range(400)))
    result = invoke("--model", model, "--prompts", prompts, "--out", tmp_path / "head", "--budget",
                    "20s", "--max-new-tokens", 12, "--epochs", 1000, "--vocab-size", 64, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert 0 < report["answers"] + report["held_out_answers"] < 400
    assert 0 < report["iterations"] <= report["planned_iterations"] < 1000
    assert 17.5 < report["elapsed_s"] < 20


@pytest.mark.slow
def test_a_budget_too_small_for_any_answer_says_so(model, tmp_path, clock) -> None:
    clock.tick_s = 0.02
    result = invoke("--model", model, "--out", tmp_path / "head", "--budget", "0.01s")
    assert isinstance(result.exception, UsageError)
    assert "raise --budget" in str(result.exception)

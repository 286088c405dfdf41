"""`specsim generate`: colours, numbers, and the command itself."""

import io
import json
import sys

import pytest

import serve_helpers  # noqa: F401  (the model's folder comes from there)
from specsim.commands import decoder_setup
from specsim.commands.generate_run import (
    GREEN,
    RESET,
    STRUCK,
    Answer,
    LiveText,
    Positions,
    SideBySide,
    harmless,
    report_text,
    run_once,
    run_side_by_side,
    to_dict,
    use_color,
)
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import StepOutput

PROMPT = "ab ab ab"


def live(tokenizer, *outputs, color=True, terminal=True):
    shown = []
    view = LiveText(tokenizer, shown.append, color=color, terminal=terminal)
    for output in outputs:
        view.step(output)
    return "".join(shown), view.text


def out(tokenizer, text, drafts="", accepted=0, reason=""):
    return StepOutput("x", tuple(tokenizer.encode(text)), tuple(tokenizer.encode(drafts)), accepted,
                      reason)


def test_accepted_drafts_are_green_and_the_rejected_one_precedes_its_replacement(tokenizer):
    shown, text = live(
        tokenizer,
        out(tokenizer, "a"),
        out(tokenizer, "bcX", "bcd", 2),
        out(tokenizer, "efgh", "efg", 3),
        out(tokenizer, "Z", "\nq", 0, "length"),
    )
    green = f"{GREEN}%s{RESET}"
    assert shown == (
        "a" + green % "b" + green % "c" + f"{STRUCK}d{RESET}X"
        + green % "e" + green % "f" + green % "g" + "h" + f"{STRUCK}⏎{RESET}Z")
    assert text == "abcXefghZ"


def test_a_cut_step_shows_only_what_was_emitted(tokenizer):
    # Three drafts were accepted, but the limit let only two of them through.
    shown, text = live(tokenizer, out(tokenizer, "ab", "abc", 3, "length"))
    assert shown == f"{GREEN}a{RESET}{GREEN}b{RESET}"
    assert text == "ab"


def test_without_colour_only_the_text_is_written(tokenizer):
    outputs = (out(tokenizer, "a"), out(tokenizer, "bX", "bc", 1, "stop"))
    assert live(tokenizer, *outputs, color=False) == ("abX", "abX")


def test_control_characters_cannot_reach_a_terminal():
    assert harmless("a\x1b[31mb\x07\x9bc\x7f\td\né→") == "a�[31mb��c�\td\né→"


def test_colour_follows_terminal_and_environment(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert use_color(Terminal())
    assert not use_color(io.StringIO())
    assert use_color(io.StringIO(), "always")
    assert not use_color(Terminal(), "never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_color(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert use_color(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not use_color(Terminal())


def test_acceptance_by_position():
    found = Positions.of([(3, 3), (0, 0), (3, 1), (1, 1), (3, 0)], 3)
    assert found.num_drafts == 4
    assert found.drafted == (4, 3, 3)
    assert found.accepted == (3, 1, 1)
    assert found.rates == (0.75, 0.25, 0.25)
    # Position 2 was proposed and reached twice: (3, 3) and (3, 1).
    assert found.conditional == (0.75, 0.5, 1.0)
    assert found.acceptance_length == 1 + 5 / 4
    empty = Positions.of([(0, 0)], 2)
    assert (empty.rates, empty.conditional) == ((None, None), (None, None))
    assert empty.acceptance_length is None


def answer(tokens, decode_s, steps=((2, 1),)):
    return Answer(tuple(tokens), "length", tuple(steps), 0.1, decode_s)


def test_speedup_is_the_ratio_of_median_rates():
    fast = tuple(answer(range(11), s) for s in (1.0, 2.0, 9.0))  # 10, 5, 1.1 tokens/s
    slow = tuple(answer(range(11), s) for s in (4.0, 5.0, 4.0))  # 2.5, 2, 2.5
    result = SideBySide(fast, slow)
    assert (result.tokens_per_s, result.plain_tokens_per_s) == (5.0, 2.5)
    assert result.speedup == 2.0
    assert SideBySide(fast, ()).speedup is None
    assert SideBySide((answer([1], 0.0, ()),), slow).speedup is None


def test_first_difference():
    def at(ours, theirs):
        return SideBySide((answer(ours, 1),), (answer(theirs, 1),)).first_difference

    assert at([1, 2, 3], [1, 2, 3]) is None
    assert at([1, 2, 3], [1, 9, 3]) == 1
    assert at([1, 2], [1, 2, 3]) == 2


def test_report_says_whether_the_text_is_the_same():
    same = SideBySide((answer([1, 2, 3], 1.0),), (answer([1, 2, 3], 2.0),))
    other = SideBySide((answer([1, 2, 3], 1.0),), (answer([1, 9, 3], 2.0),))
    text = report_text(same, "tiny", 2, greedy=True, dtype="fp32")
    assert "2.00x; the text is the same as without drafts" in text
    assert "differ from token 2 on: bf16" in report_text(other, "m", 2, greedy=True, dtype="bf16")
    assert "distribution" in report_text(other, "m", 2, greedy=False, dtype="fp32")
    short = SideBySide((answer([1], 0.0, ()),), ())
    assert "too short to time" in report_text(short, "m", 0, greedy=True, dtype="fp32")


def test_engine_time_leaves_out_the_time_of_showing(model, tokenizer):
    now = [0.0]

    def clock():
        now[0] += 0.001
        return now[0]

    engine = Engine(model, DecoderOptions(max_num_seqs=1, max_model_len=64), clock=clock)

    def slow(_):
        now[0] += 100.0

    found = run_once(engine, tokenizer.encode(PROMPT), SamplingParams(max_tokens=9), slow)
    assert len(found.token_ids) == 9
    assert len(found.steps) == 8
    assert 0 < found.prompt_s < 1
    assert 0 < found.decode_s < 1
    assert found.tokens_per_step == 1.0


def test_runs_side_by_side_share_the_slow_hours_of_a_machine(model, tokenizer):
    """Steps of 1 s, and of 3 s from second 25 on: the ratio of the two engines stays right."""
    now = [0.0]

    class Timed(Engine):
        def _decode(self, slots, phases):
            now[0] += 3.0 if now[0] >= 25 else 1.0
            return super()._decode(slots, phases)

    def engine(method, k, draft=None):
        options = DecoderOptions(method, k, max_num_seqs=1, max_model_len=64)
        return Timed(model, options, draft=draft, clock=lambda: now[0])

    ids, params = tokenizer.encode(PROMPT), SamplingParams(max_tokens=41)
    # The target drafts for itself: four tokens per step.
    engines = [engine("draft_model", 3, model), engine("none", 0)]
    ours, theirs = run_side_by_side(engines, ids, params)
    assert ours.token_ids == theirs.token_ids
    assert (len(ours.steps), len(theirs.steps)) == (10, 40)
    assert theirs.decode_s / ours.decode_s == pytest.approx(4.0, rel=0.05)
    now[0] = 0.0
    ours, theirs = [run_once(each, ids, params) for each in engines]
    assert theirs.decode_s / ours.decode_s > 7, "one after the other shows a gain that is none"


def test_json_has_the_counts_of_the_engine(model, tokenizer):
    engine = Engine(model, DecoderOptions("ngram", 3, max_num_seqs=1, max_model_len=64))
    found = run_once(engine, tokenizer.encode(PROMPT), SamplingParams(max_tokens=40))
    body = to_dict(SideBySide((found,), ()), 3, greedy=True)["speculative"]
    assert body["accepted_per_position"] == engine.stats.accepted_per_position
    assert body["num_drafts"] == engine.stats.num_drafts
    assert body["acceptance_length"] == pytest.approx(engine.stats.acceptance_length)
    assert body["tokens_per_step"] * body["steps"] == pytest.approx(39)


def run(monkeypatch, capsys, *words, stdin=None):
    from specsim.commands import main

    monkeypatch.setattr(sys, "argv", ["specsim", "generate", *words])
    if stdin is not None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    with pytest.raises(SystemExit) as caught:
        main()
    shown = capsys.readouterr()
    return caught.value.code, shown.out, shown.err


@pytest.fixture
def options(folder):
    return ["--model", str(folder), "--dtype", "fp32", "--threads", "1", "--device", "cpu"]


def test_command_gives_the_same_text_with_and_without_drafts(monkeypatch, capsys, options):
    code, body, _ = run(monkeypatch, capsys, PROMPT, *options, "--max-new-tokens", "40", "--json",
                        "--draft", "ngram", "--k", "3", "--repeat", "2")
    assert code == 0
    body = json.loads(body)
    assert body["same_text"] is True
    assert body["speedup"] > 0
    assert body["num_speculative_tokens"] == 3
    assert len(body["token_ids"]) == 40
    assert len(body["plain"]["decode_s"]) == 2
    assert body["speculative"]["steps"] < 39, "no draft was accepted: the test shows nothing"
    code, text, report = run(monkeypatch, capsys, PROMPT, *options, "--max-new-tokens", "40",
                             "--draft", "ngram", "--k", "3")
    assert code == 0
    assert text == body["text"] + "\n"
    assert "the text is the same as without drafts" in report
    assert "position" in report


def test_command_reads_standard_input_and_samples_by_seed(monkeypatch, capsys, options):
    words = ["-", *options, "--max-new-tokens", "20", "--temperature", "1", "--top-k", "5000",
             "--top-p", "0.95", "--no-compare", "--draft", "none"]
    texts = [run(monkeypatch, capsys, *words, "--seed", seed, stdin=PROMPT)[1]
             for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_command_drafts_with_the_target_itself_and_accepts_all(monkeypatch, capsys, options,
                                                               folder):
    _, body, _ = run(monkeypatch, capsys, PROMPT, *options, "--max-new-tokens", "33", "--json",
                     "--draft", str(folder), "--k", "3")
    body = json.loads(body)
    assert body["method"] == "draft_model"
    assert body["speculative"]["acceptance_length"] == 4.0
    assert body["same_text"] is True


@pytest.mark.slow
def test_suffix_drafter_does_not_know_the_answer_from_the_run_before(monkeypatch, capsys, options):
    words = [PROMPT, *options, "--max-new-tokens", "40", "--draft", "suffix", "--k", "4", "--json"]
    counts = []
    for more in (["--no-compare"], ["--repeat", "3"], ["--repeat", "3", "--no-compare"]):
        body = json.loads(run(monkeypatch, capsys, *words, *more)[1])
        counts.append(body["speculative"]["steps"])
    assert counts[0] == counts[1] == counts[2]


def test_command_asks_in_the_chat_template(monkeypatch, capsys, options):
    _, body, _ = run(monkeypatch, capsys, "hi", *options, "--chat", "--max-new-tokens", "4",
                     "--json", "--no-compare")
    assert json.loads(body)["prompt_tokens"] == 5


def test_colour_on_request(monkeypatch, capsys, options):
    _, text, _ = run(monkeypatch, capsys, PROMPT, *options, "--max-new-tokens", "40", "--color",
                     "always", "--no-compare", "--k", "3")
    assert GREEN in text
    assert STRUCK in text


@pytest.mark.parametrize(("words", "message"), [
    (["", "--k", "3"], "prompt is empty"),
    (["x", "--max-new-tokens", "0"], "--max-new-tokens is 0"),
    (["x", "--max-new-tokens", "9999"], "2..512"),
    (["x", "--repeat", "0"], "from 1 to 100"),
    (["x", "--color", "blue"], "auto, always or never"),
    (["x", "--temperature", "-1"], "temperature"),
    (["x", "--top-p", "0"], "top_p"),
    (["x", "--top-k", "-1"], "top_k"),
    (["x", "--seed", str(2**63)], "64 bits"),
    (["x", "--draft", "nowhere.safetensors"], "no such file"),
])
def test_wrong_options_end_with_one_line(monkeypatch, capsys, options, words, message):
    code, text, error = run(monkeypatch, capsys, *words, *options)
    assert code == 2
    assert text == ""
    assert message in error
    assert error.count("\n") == 1


def test_methods_and_models_are_told_apart(tmp_path, folder):
    def method(draft, k=None):
        plan = decoder_setup.plan("m", draft, k, "bf16", "cpu")
        return plan.method, plan.drafter, plan.k

    assert method("none") == ("none", None, 0)
    assert method("ngram", 0) == ("none", None, 0)
    assert method("early-exit") == ("early_exit", None, 2)
    assert method("NGRAM", 9) == ("ngram", None, 9)
    assert method("smollm2-135m") == ("draft_model", "smollm2-135m", 3)
    assert method(str(folder)) == ("draft_model", str(folder), 3)
    head = tmp_path / "head.safetensors"
    head.write_bytes(b"")
    assert method(str(head)) == ("eagle", str(head), 2)

"""Timings of llama.cpp's server."""

import pytest

from specsim.errors import FormatError
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import difference, parse_metrics

AGAIN = "srv    load_model: speculative decoding will use checkpoints\n"


def request(
    tokens: int, decode_ms: float, accepted: int = 0, drafted: int = 0, mean: float | None = None
) -> str:
    text = (
        "slot print_timing: id  0 | task 7 | prompt eval time =     140.02 ms /    14 tokens "
        "(   10.00 ms per token,    99.98 tokens per second)\n"
        f"slot print_timing: id  0 | task 7 |        eval time = {decode_ms:10.2f} ms / "
        f"{tokens:5d} tokens (   15.04 ms per token,    66.47 tokens per second)\n"
        "slot print_timing: id  0 | task 7 |       total time =    4653.30 ms /   314 tokens\n"
    )
    if drafted:
        words = "rate " if mean is None else ""
        end = "" if mean is None else f", mean len = {mean:5.2f}"
        text += (
            f"slot print_timing: id  0 | task 7 | draft acceptance {words}= "
            f"{accepted / drafted:.5f} ({accepted:5d} accepted / {drafted:5d} generated){end}\n"
        )
    return text


@pytest.mark.parametrize(
    ("rounds", "drafts", "accepted", "k"), [(128, 128, 171, 3), (90, 60, 90, 2)]
)
def test_rounds_are_tokens_that_were_not_accepted(
    rounds: int, drafts: int, accepted: int, k: int
) -> None:
    """Two alike requests: the first token of each came with its prompt."""
    tokens = 1 + rounds + accepted
    text = request(tokens, rounds * 35.0, accepted, drafts * k, 1 + accepted / drafts) * 2
    run = read_text_as_bench(text)[0]
    assert (run.engine, run.completed, run.output_tokens) == ("llama.cpp", 2, 2 * tokens)
    assert run.tokens_per_step == pytest.approx((rounds + accepted) / rounds)
    assert run.itl_s is not None and run.itl_s.mean == pytest.approx(0.035)
    assert run.tpot_s is not None and run.tpot_s.mean == pytest.approx(
        0.035 * rounds / (tokens - 1))
    assert run.acceptance is not None and run.acceptance.acceptance_rate == pytest.approx(
        accepted / (drafts * k))
    assert run.acceptance.acceptance_length == pytest.approx(1 + accepted / drafts, abs=0.01)
    assert run.draft_share == pytest.approx(drafts / rounds, abs=0.02)


def test_older_versions_do_not_count_drafts() -> None:
    run = read_text_as_bench(request(300, 4480.0, 171, 297))[0]
    assert run.tokens_per_step == pytest.approx(299 / 128) and run.draft_share is None
    assert run.acceptance is not None and run.acceptance.acceptance_length is None
    assert run.acceptance.acceptance_rate == pytest.approx(171 / 297)


@pytest.mark.parametrize("text", [
    AGAIN + request(300, 4480.0, 171, 180), request(300, 4480.0, 171, 171),
])
def test_whole_rounds_alone_say_nothing(text: str) -> None:
    """A hybrid's partly accepted rounds run again and are not counted: all looks accepted."""
    run = read_text_as_bench(text)[0]
    assert run.acceptance is None and run.tokens_per_step is None and run.draft_share is None
    assert run.itl_s is None and run.tpot_s is not None
    assert any("only whole rounds" in words for words in run.warnings)
    counted = read_text_as_bench(AGAIN + request(300, 4480.0, 171, 297, 2.5))[0]
    assert counted.acceptance is not None
    assert any("ran twice" in words for words in counted.warnings)


def test_without_drafts_every_round_is_a_token() -> None:
    run = read_text_as_bench(request(101, 1000.0))[0]
    assert run.tokens_per_step == 1 and run.acceptance is None
    assert run.tpot_s is not None and run.tpot_s.mean == pytest.approx(0.01)


def metrics(rounds: int, drafts: int, accepted: int, drafted: int, per_pos: list[int]) -> str:
    counted = {
        "prompt_tokens_total": 900, "tokens_predicted_total": rounds + accepted,
        "tokens_predicted_seconds_total": rounds * 0.035,
        "spec_decode_num_draft_tokens_total": drafted,
        "spec_decode_num_accepted_tokens_total": accepted,
        "spec_decode_num_drafts_total": drafts,
    }
    lines = [f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {n}" for name, n in counted.items()]
    lines += ["# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2",
              "# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter"]
    lines += [
        f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}'
        for i, n in enumerate(per_pos)
    ]
    return "\n".join(lines) + "\n"


def test_counters_between_two_dumps() -> None:
    """Drafts of 2 tokens where 4 may be: what was counted before does not enter."""
    before = metrics(5000, 5000, 10, 10_000, [10, 0, 0, 0])
    after = metrics(5000 + 500, 5000 + 400, 10 + 600, 10_000 + 800, [10 + 350, 250, 0, 0])
    run = run_of(difference(parse_metrics(before, "a"), parse_metrics(after, "b")))
    assert run.engine == "llama.cpp" and run.server is not None and run.server.running == 2
    assert run.tokens_per_step == pytest.approx(1100 / 500)
    assert run.draft_share == pytest.approx(400 / 500)
    assert run.itl_s is not None and run.itl_s.mean == pytest.approx(0.035)
    assert run.acceptance is not None
    assert run.acceptance.per_position == pytest.approx((350 / 400, 250 / 400))
    assert run.acceptance.undrafted_positions == 2
    assert run.server_args.num_speculative_tokens == 2
    off = run_of(parse_metrics(metrics(500, 0, 0, 0, []), "off"))
    assert off.tokens_per_step == 1 and off.acceptance is None
    older = "\n".join(line for line in after.splitlines() if "spec_decode" not in line) + "\n"
    silent = run_of(parse_metrics(older, "older"))
    assert silent.tokens_per_step is None and silent.itl_s is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(FormatError, match="9 accepted tokens of 3"):
        read_text_as_bench(request(20, 100.0, 9, 3))

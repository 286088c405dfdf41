"""Pasted log lines."""

from pathlib import Path

import pytest

from specsim.errors import FormatError
from specsim.formats.bench import read_bench
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.spec_log import parse_spec_log, pooled_counts

DATA = Path(__file__).parent / "data"


def test_intervals_are_pooled_by_their_drafts() -> None:
    """400 drafts with 860 accepted tokens, then 200 with 300; the idle interval has none."""
    run = read_bench(DATA / "spec_log.txt")[0]
    assert run.engine == "vllm" and run.acceptance is not None and run.server is not None
    assert run.acceptance.num_drafts == 600
    assert run.acceptance.acceptance_length == pytest.approx(1 + 1160 / 600)
    assert run.acceptance.acceptance_rate == pytest.approx(1160 / 1800)
    assert run.acceptance.per_position == pytest.approx(
        (
            (0.82 * 400 + 0.7 * 200) / 600,
            (0.72 * 400 + 0.5 * 200) / 600,
            (0.61 * 400 + 0.3 * 200) / 600,
        )
    )
    assert run.server_args.num_speculative_tokens == 3
    assert run.server.running == 3 and run.output_tok_s == pytest.approx((157.3 + 100) / 2)
    # 10 s each: 1573 and 1000 tokens, of which 1160 needed no step of their own
    assert run.tokens_per_step == pytest.approx(2573 / (2573 - 1160))
    assert run.draft_share == pytest.approx(600 / (2573 - 1160))


def test_drafts_of_varying_length_follow_from_the_printed_length() -> None:
    """n-gram: 100 drafts of 2.4 tokens on average, 180 accepted; the length is printed as 2.80."""
    line = (
        "SpecDecoding metrics: Mean acceptance length: 2.80, Accepted throughput: 18.00 "
        "tokens/s, Drafted throughput: 24.00 tokens/s, Accepted: 180 tokens, Drafted: 240 "
        "tokens, Per-position acceptance rate: 0.800, 0.600, 0.400, Avg Draft acceptance "
        "rate: 75.0%"
    )
    interval = parse_spec_log(line, "log")[0]
    assert interval.num_drafts == pytest.approx(100.0)
    assert pooled_counts([interval]) == (pytest.approx(100.0), 240, 180)
    fixed = parse_spec_log(line.replace("2.80", "3.25"), "log")[0]
    assert fixed.num_drafts == 80  # 240 / 3, which reproduces 1 + 180 / 80


def test_older_line_without_length() -> None:
    run = read_text_as_bench(
        "INFO SpecDecoding metrics: Draft acceptance rate: 53.4%, Accepted: 801 tokens, "
        "Drafted: 1500 tokens"
    )[0]
    assert run.acceptance is None
    interval = parse_spec_log(
        "SpecDecoding metrics: Draft acceptance rate: 53.4%, Accepted: 801 tokens, "
        "Drafted: 1500 tokens",
        "log",
    )[0]
    assert interval.acceptance_rate == pytest.approx(0.534)


def test_sglang_decode_batches() -> None:
    run = read_text_as_bench(
        "[2026-11-29 15:00:00] Decode batch, #running-req: 4, #token: 1234, token usage: 0.02, "
        "accept len: 2.40, accept rate: 0.47, cuda graph: True, gen throughput (token/s): 450.10, "
        "#queue-req: 1\n"
        "[2026-11-29 15:00:05] Decode batch, #running-req: 2, #token: 1234, token usage: 0.01, "
        "accept len: 2.60, accept rate: 0.53, cuda graph: True, gen throughput (token/s): 250.10, "
        "#queue-req: 0\n"
    )[0]
    assert run.engine == "sglang" and run.acceptance is not None and run.server is not None
    assert run.acceptance.acceptance_length == pytest.approx(2.5)
    assert run.acceptance.acceptance_rate == pytest.approx(0.5)
    assert run.server.running == 3 and run.output_tok_s == pytest.approx(350.1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("SpecDecoding metrics: Mean acceptance length: 3.15, Accepted thr", "paste the whole"),
        ("SpecDecoding metrics: Accepted: 9 tokens, Drafted: 3 tokens", "9 accepted tokens of 3"),
        (
            "SpecDecoding metrics: Accepted: 2 tokens, Drafted: 3 tokens, Per-position acceptance "
            "rate: 3, 1",
            "above 1",
        ),
    ],
)
def test_broken_lines_say_so(line: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read_text_as_bench(line)

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
    assert run.acceptance is not None and run.acceptance.acceptance_length is None
    assert run.acceptance.acceptance_rate == pytest.approx(0.534)
    assert any("1 + k x 0.534" in text for text in run.warnings)
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


def vllm_lines(
    at: str, generation: float, drafts: int = 0, rates: tuple[float, ...] = (), since_s: float = 10,
    engine: str = "Engine 000", drafted: int | None = None,
) -> str:
    """The engine's line and, with drafts, its SpecDecoding line, as vLLM prints them."""
    head = f"(APIServer pid=7) INFO {at} "
    text = (
        f"{head}[loggers.py:300] {engine}: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        f"throughput: {generation:.1f} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache "
        "usage: 0.4%, Prefix cache hit rate: 0.0%\n"
    )
    if drafts:
        accepted = round(drafts * sum(rates))
        tokens = drafts * (len(rates) if drafted is None else drafted)
        printed = ", ".join(f"{rate:.3f}" for rate in rates)
        text += (
            f"{head}[metrics.py:110] SpecDecoding metrics: Mean acceptance length: "
            f"{1 + accepted / drafts:.2f}, Accepted throughput: {accepted / since_s:.2f} tokens/s, "
            f"Drafted throughput: {tokens / since_s:.2f} tokens/s, Accepted: {accepted} tokens, "
            f"Drafted: {tokens} tokens, Per-position acceptance rate: {printed}, Avg Draft "
            f"acceptance rate: {accepted / tokens:.1%}\n"
        )
    return text


@pytest.mark.parametrize("since_s", [10.0, 40.0, 200.0, 1730.0])
@pytest.mark.parametrize(("drafts", "rates"), [(100, (0.7, 0.45, 0.25)), (350, (0.9, 0.8))])
def test_idle_time_before_a_line_dilutes_nothing(
    since_s: float, drafts: int, rates: tuple[float, ...]
) -> None:
    """Every step had a draft, whatever time the accepted throughput was divided by."""
    made = drafts * (1 + sum(rates))
    run = read_text_as_bench(vllm_lines("", made / 10, drafts, rates, since_s))[0]
    assert run.tokens_per_step == pytest.approx(1 + sum(rates), rel=0.01)
    assert run.draft_share == pytest.approx(1, abs=0.01)
    assert any("10 s per interval" in text for text in run.warnings)


def test_a_time_that_the_log_does_not_tell_leaves_figures_out() -> None:
    """1000 tokens generated in 10 s, or 5000 in 50: one line after a pause does not say."""
    run = read_text_as_bench(vllm_lines("", 100.0, 100, (0.7, 0.45, 0.25), since_s=200))[0]
    assert run.tokens_per_step is None and run.draft_share is None
    assert run.acceptance is not None and run.acceptance.acceptance_length == pytest.approx(2.4)
    assert any("up to 200 s here" in text for text in run.warnings)


@pytest.mark.parametrize("period", [2.0, 10.0, 30.0])
def test_two_lines_at_work_tell_the_period_of_the_first_one_too(period: float) -> None:
    """n-gram: half of the steps have a draft, in the interval after a pause and in the next."""
    made = (200 * 2.25 + 200) / period
    text = vllm_lines("", made, 200, (0.75, 0.5), since_s=400) + vllm_lines(
        "", made, 200, (0.75, 0.5), since_s=period
    )
    run = read_text_as_bench(text)[0]
    assert run.draft_share == pytest.approx(0.5, rel=0.02)
    assert run.tokens_per_step == pytest.approx(650 / 400, rel=0.02)


def test_stamps_tell_the_period_and_an_interval_without_drafts_counts() -> None:
    """30 s apart; the second interval drafted nothing: 200 drafts in 200 + 650 steps."""
    text = vllm_lines("11-29 15:34:10", 650 / 30, 200, (0.75, 0.5), since_s=400)
    text += vllm_lines("11-29 15:34:40", 450 / 30)
    text += vllm_lines("11-29 15:35:10", 0.0)
    run = read_text_as_bench(text)[0]
    steps = (650 - 250) + 450
    assert run.draft_share == pytest.approx(200 / steps, rel=0.02)
    assert any("stamps" in text for text in run.warnings)


def test_drafts_accepted_past_the_ends_of_answers_are_no_other_period() -> None:
    """A tenth of the counted tokens was cut; twice as many is another period than the default."""
    for share, known in ((0.9, True), (0.5, False)):
        text = vllm_lines("", share * 24.0, 100, (0.7, 0.45, 0.25), since_s=10)
        run = read_text_as_bench(text)[0]
        assert (run.tokens_per_step == pytest.approx(2.4)) if known else not run.tokens_per_step
        assert run.draft_share == (1.0 if known else None)


def test_stamps_around_a_pause_are_no_period() -> None:
    """The first line is of an idle tick: hidden ones may lie between it and the next."""
    text = vllm_lines("11-29 15:34:10", 0.0) + vllm_lines(
        "11-29 15:50:10", 100.0, 100, (0.7, 0.45, 0.25), since_s=970
    )
    assert read_text_as_bench(text)[0].tokens_per_step is None


def test_engines_of_one_server_are_added_up() -> None:
    text = "".join(
        vllm_lines("11-29 15:34:10", 24.0, 100, (0.7, 0.45, 0.25), 10, f"Engine 00{i}")
        for i in range(2)
    )
    run = read_text_as_bench(text)[0]
    assert run.output_tok_s == pytest.approx(48.0)
    assert run.tokens_per_step == pytest.approx(2.4)
    assert run.server is not None and run.server.running == 1


@pytest.mark.parametrize(("rates", "k"), [
    ((0.6, 0.4, 0.0, 0.0), 2), ((0.8, 0.0, 0.0), 1), ((0.9, 0.7, 0.5, 0.0, 0.0, 0.0, 0.0), 3),
])
def test_positions_that_were_never_drafted_are_no_rejections(
    rates: tuple[float, ...], k: int
) -> None:
    made = 1000 * (1 + sum(rates)) / 10
    run = read_text_as_bench(vllm_lines("", made, 1000, rates, drafted=k))[0]
    assert run.acceptance is not None
    assert run.acceptance.num_drafts == 1000
    assert run.acceptance.per_position == pytest.approx(rates[:k])
    assert run.acceptance.undrafted_positions == len(rates) - k
    assert run.server_args.num_speculative_tokens == k
    assert any(f"only the first {k} were drafted" in text for text in run.warnings)


def test_positions_that_were_drafted_and_rejected_stay() -> None:
    run = read_text_as_bench(vllm_lines("", 200.0, 1000, (0.6, 0.4, 0.0, 0.0)))[0]
    assert run.acceptance is not None
    assert run.acceptance.per_position == pytest.approx((0.6, 0.4, 0.0, 0.0))
    assert run.server_args.num_speculative_tokens == 4


def test_a_position_is_judged_by_the_intervals_that_drafted_it() -> None:
    """A table drafts 4 at small batches and 2 at large ones, where most drafts were made."""
    text = vllm_lines("", 300.0, 1000, (0.8, 0.6, 0.4, 0.2)) + vllm_lines(
        "", 800.0, 4000, (0.6, 0.4, 0.0, 0.0), drafted=2
    )
    run = read_text_as_bench(text)[0]
    assert run.acceptance is not None
    second = (0.6 * 1000 + 0.4 * 4000) / 5000
    assert run.acceptance.per_position == pytest.approx(
        ((0.8 * 1000 + 0.6 * 4000) / 5000, second, second * 0.4 / 0.6, second * 0.2 / 0.6)
    )
    assert run.server_args.num_speculative_tokens == 2


def sglang_line(at: str, tok_s: float, running: int = 4) -> str:
    return (
        f"[2026-11-29 {at}] Decode batch, #running-req: {running}, #token: 9, token usage: 0.02, "
        f"accept len: 2.50, accept rate: 0.50, gen throughput (token/s): {tok_s}, #queue-req: 0\n"
    )


def test_sglang_divides_the_first_line_after_a_pause_by_the_pause() -> None:
    pause = "[2026-11-29 15:10:00] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0\n"
    joins = "[2026-11-29 15:10:01] Prefill batch, #new-seq: 1, #running-req: 4, #queue-req: 0\n"
    text = (
        sglang_line("15:00:00", 3.1) + sglang_line("15:00:01", 400) + sglang_line("15:00:02", 420)
        + pause + joins + sglang_line("15:10:02", 0.7) + joins + sglang_line("15:10:03", 410)
    )
    run = read_text_as_bench(text)[0]
    assert run.output_tok_s == pytest.approx((400 + 420 + 410) / 3)
    assert any("throughput of 2 lines was left out" in words for words in run.warnings)
    # without the Prefill lines the stamps tell
    bare = text.replace(pause, "").replace(joins, "")
    assert read_text_as_bench(bare)[0].output_tok_s == pytest.approx(410)
    # a line that is slow because prompts ran beside it stays
    busy = sglang_line("15:00:00", 400) + joins + sglang_line("15:00:01", 100) + joins
    assert read_text_as_bench(busy + sglang_line("15:00:02", 400))[0].output_tok_s == 300
    # one line alone does not say what its time is
    assert read_text_as_bench(sglang_line("15:00:00", 400))[0].output_tok_s is None


def test_data_parallel_ranks_of_sglang_are_added_up() -> None:
    """Each has its own lines and pauses."""
    lines = [
        sglang_line(f"15:00:0{at}", rate).replace("]", f" DP{rank} TP0]", 1)
        for at in range(3) for rank, rate in ((0, 400.0), (1, 300.0 if at else 2.0))
    ]
    run = read_text_as_bench("".join(lines))[0]
    assert run.output_tok_s == pytest.approx(700.0)
    assert run.server is not None and run.server.running == 4
    assert any("throughput of 1 line was left out" in words for words in run.warnings)


def test_totals_of_the_first_engine_are_those_of_its_last_line() -> None:
    """vLLM 0.6: 2500 drafted in drafts of 4 are 625, which emitted 1427 tokens; its "accepted"
    counts tokens behind a rejection too."""
    line = (
        "INFO 11-02 09:00:1{} metrics.py:367] Speculative metrics: Draft acceptance rate: 0.612, "
        "System efficiency: 0.457, Number of speculative tokens: 4, Number of accepted tokens: {}, "
        "Number of draft tokens: {}, Number of emitted tokens: {}.\n"
    )
    engine = (
        "INFO 11-02 09:00:10 metrics.py:351] Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 412.5 tokens/s, Running: 8 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV "
        "cache usage: 12.3%, CPU KV cache usage: 0.0%.\n"
    )
    run = read_text_as_bench(
        engine + line.format(0, 700, 1200, 640) + engine + line.format(5, 1530, 2500, 1427)
    )[0]
    assert run.acceptance is not None
    assert run.acceptance.num_drafts == 625
    assert run.acceptance.acceptance_length == pytest.approx(1427 / 625)
    assert run.acceptance.acceptance_rate == pytest.approx((1427 - 625) / 2500)
    assert run.server_args.num_speculative_tokens == 4
    assert run.tokens_per_step is None  # of no interval
    assert any("since the server's start" in text for text in run.warnings)
    with pytest.raises(FormatError, match=r"3200 emitted tokens of 625 drafts of 4"):
        read_text_as_bench(line.format(0, 1530, 2500, 3200))
    with pytest.raises(FormatError, match="paste the whole line"):
        read_text_as_bench("Speculative metrics: Draft acceptance rate: 0.612")

"""Files of a simulation that other tools read, read back by our own importers."""

import csv
import json

import pytest
from typer.testing import CliRunner

from specsim.commands import app
from specsim.errors import SpecSimError
from specsim.formats.bench import read_bench

LLAMA = ("llama-3.1-8b", "--gpu", "h100", "--method", "eagle3", "--k", "3", "--acceptance",
         "0.8,0.6,0.45", "--input-len", "300", "--output-len", "60")
LOAD = ("--concurrency", "6", "--requests", "40", "--no-baseline")


def call(*words):
    result = CliRunner().invoke(app, ["simulate", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


@pytest.mark.parametrize("extra", [
    (), ("--range-ratio", "0.5"), ("--engine", "sglang"), ("--replicas", "2"),
    ("--method", "none", "--acceptance", ""), ("--max-num-seqs", "3"),
])
def test_a_vllm_shaped_result_gives_the_simulations_own_numbers_back(tmp_path, extra):
    words = list(LLAMA)
    if "none" in extra:
        words = ["llama-3.1-8b", "--gpu", "h100", "--method", "none", *words[9:]]
        extra = ()
    path = tmp_path / "bench.json"
    found = call(*words, *LOAD, *extra, "--export-vllm-bench", str(path), "--json")
    (run,) = read_bench(path)
    assert run.format == "vllm bench serve" and run.completed == 40 and not run.failed
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s"):
        stat = getattr(run, name)
        assert stat.mean == pytest.approx(found[name]["mean"], rel=1e-9), name
        assert stat.basis == "requests"
        if name != "itl_s":
            assert stat.percentiles["p95"] == pytest.approx(found[name]["p95"], rel=2e-3), name
    # The simulation's histogram of gaps has bins of 0.1 % and names one of the two gaps around the
    # percentile; the importer interpolates between them, and they may be some way apart.
    gaps = sorted(gap for row in run.requests for gap in row.itls_s)
    below = int(0.95 * (len(gaps) - 1))
    assert 0.998 * gaps[below] <= found["itl_s"]["p95"] <= 1.002 * gaps[below + 1]
    assert run.output_tok_s == pytest.approx(found["output_tok_s"], rel=1e-9)
    steps = sum(len(row.itls_s) for row in run.requests)
    tokens = sum(row.output_tokens for row in run.requests)
    assert tokens / (steps + 40) == pytest.approx(found["tokens_per_chunk"])
    assert run.load.max_concurrency == 6
    if found["acceptance_length"] is None:
        assert run.acceptance is None
    else:
        assert run.acceptance.acceptance_length == pytest.approx(found["acceptance_length"])
        assert run.acceptance.acceptance_rate == pytest.approx(found["acceptance_rate"])
        assert 1 + sum(run.acceptance.per_position) == pytest.approx(found["acceptance_length"])
        assert run.server_args.num_speculative_tokens == 3
    assert not [text for text in run.warnings if "differ" in text]


def test_preempted_requests_keep_their_chunks_and_their_last_token(tmp_path):
    path = tmp_path / "bench.json"
    found = call(*LLAMA[:-4], "--input-len", "300", "--output-len", "1500", "--concurrency", "12",
                 "--requests", "24", "--gpu-memory-utilization", "0.24", "--no-baseline",
                 "--export-vllm-bench", str(path), "--json")
    assert found["preemptions"] > 0
    (run,) = read_bench(path)
    assert run.itl_s.mean == pytest.approx(found["itl_s"]["mean"], rel=1e-9)
    for row in run.requests:
        assert row.ttft_s + sum(row.itls_s) == pytest.approx(row.e2el_s)
    chunks = sum(len(row.itls_s) + 1 for row in run.requests)
    assert 24 * 1500 / chunks == pytest.approx(found["tokens_per_chunk"])


def test_the_warm_up_and_open_loops_and_failures(tmp_path):
    path = tmp_path / "bench.json"
    found = call(*LLAMA, "--rate", "20", "--requests", "60", "--warmup", "1", "--no-baseline",
                 "--max-model-len", "320", "--export-vllm-bench", str(path), "--json")
    document = json.loads(path.read_text())
    assert document["request_rate"] == 20 and document["simulated"] == "true"
    assert document["num_prompts"] == found["requests"]["measured"] < 60
    (run,) = read_bench(path)
    assert run.load.kind == "open"
    assert run.completed == found["requests"]["finished"]
    assert run.ttft_s.mean == pytest.approx(found["ttft_s"]["mean"], rel=1e-9)


def test_refused_requests_keep_their_place(tmp_path):
    trace, path = tmp_path / "trace.csv", tmp_path / "bench.json"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,50,5\n0.1,90000,5\n0.2,60,1\n")
    call(*LLAMA[:-4], "--trace", str(trace), "--max-model-len", "1000", "--no-baseline",
         "--export-vllm-bench", str(path), "--json")
    document = json.loads(path.read_text())
    assert document["failed"] == 1 and document["output_lens"] == [5, 0, 1]
    assert document["errors"][1].startswith("rejected")
    (run,) = read_bench(path)
    assert [row.success for row in run.requests] == [True, False, True]
    assert run.load.kind == "open" and run.load.request_rate == pytest.approx(10.0)
    assert run.load.burstiness is None


def test_a_run_that_finished_nothing_still_has_its_shape(tmp_path):
    path = tmp_path / "bench.json"
    call(*LLAMA, "--concurrency", "2", "--duration", "0.01", "--no-baseline",
         "--export-vllm-bench", str(path), "--export-prometheus", str(tmp_path / "x.prom"),
         "--json")
    (run,) = read_bench(path)
    assert run.completed == 0 and run.failed == 2 and run.ttft_s is None
    assert "specsim_unfinished_requests" in (tmp_path / "x.prom").read_text()


def test_prometheus_text_is_read_as_a_servers(tmp_path):
    pytest.importorskip("prometheus_client")
    path = tmp_path / "metrics.prom"
    found = call(*LLAMA, *LOAD, "--export-prometheus", str(path), "--json")
    text = path.read_text()
    assert 'simulated="true"' in text and "specsim_simulation_info" in text
    (run,) = read_bench(path)
    assert run.format == "metrics (vllm)"
    assert run.acceptance.acceptance_length == pytest.approx(found["acceptance_length"])
    assert 1 + sum(run.acceptance.per_position) == pytest.approx(
        found["acceptance_length"], abs=0.01)
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s"):
        assert getattr(run, name).mean == pytest.approx(found[name]["mean"], rel=1e-9), name
    assert run.server.queue_s.mean == pytest.approx(found["queue_s"]["mean"], rel=1e-9)
    assert run.server.running == pytest.approx(found["running_mean"])
    assert run.server.iteration_tokens.count == found["steps"]
    assert run.tokens_per_step == pytest.approx(
        (60 * 40 - 40) / (60 * 40 / found["tokens_per_chunk"] - 40), rel=1e-6)


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet"])
def test_requests_in_every_format(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"requests.{suffix}"
    found = call(*LLAMA, *LOAD, "--export", str(path), "--json")
    if suffix == "csv":
        rows = list(csv.DictReader(path.read_text().splitlines()))
    elif suffix == "json":
        rows = json.loads(path.read_text())
    elif suffix == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
        assert isinstance(rows[0]["prompt_tokens"], int)
    assert len(rows) == 40
    waits = [float(row["first_token_s"]) - float(row["arrival_s"]) for row in rows]
    assert sum(waits) / 40 == pytest.approx(found["ttft_s"]["mean"])
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(("options", "words"), [
    (("--export", "x.xlsx"), "must end in .json, .jsonl, .csv, .parquet"),
    (("--export", "{tmp}"), "is a folder"),
    (("--export", ""), "is empty"),
    (("--export-vllm-bench", "/dev/null/x.json"), "no folder"),
    (("--export-prometheus", "/dev/null/x.prom"), "no folder"),
    (("--export", "{tmp}/a.json", "--export-vllm-bench", "{tmp}/a.json"), "would replace"),
    (("--export", "{tmp}/a.csv", "--records", "{tmp}/a.csv"), "would replace"),
    (("--records", "{tmp}/t.json", "--acceptance-trace", "{tmp}/t.json"), "would replace"),
])
def test_files_that_cannot_be_are_refused_before_the_run(tmp_path, options, words):
    given = [word.replace("{tmp}", str(tmp_path)) for word in options]
    with pytest.raises(SpecSimError, match=words.replace(".", r"\.")):
        call(*LLAMA, *LOAD, *given)

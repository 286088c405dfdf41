"""A run as the result file of `vllm bench serve`: read back, it says the same."""

import json

import pytest

from fake_server import FakeServer
from specsim.client.http import Target
from specsim.client.load import LiveLoad, drive
from specsim.client.prompts import Prompt
from specsim.client.stream import Sampling
from specsim.formats.bench import read_bench


@pytest.mark.parametrize("per_chunk, fault", [(1, ""), (3, ""), (1, "429")])
def test_the_saved_file_reads_back(tmp_path, per_chunk, fault):
    prompts = tuple(Prompt(f"p{i}", 10) for i in range(8))
    with FakeServer(fault, per_chunk=per_chunk, faults_from=6).running() as server:
        found = drive(Target(server.url), LiveLoad(prompts, max_concurrency=2, name="c=2"),
                      Sampling())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(found.vllm_bench({"method": "ngram"}), allow_nan=False))
    (read,) = read_bench(path)
    ours = found.bench()
    assert read.format == "vllm bench serve" and read.engine in ("vllm", None)
    assert read.load.kind == "closed" and read.load.max_concurrency == 2
    assert (read.completed, read.failed) == (ours.completed, ours.failed)
    assert read.output_tokens == ours.output_tokens
    assert read.tokens_per_step == ours.tokens_per_step
    assert read.server_args.method == "ngram"
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s"):
        assert getattr(read, name).mean == pytest.approx(getattr(ours, name).mean, rel=1e-3)
        assert getattr(read, name).median == pytest.approx(getattr(ours, name).median, rel=2e-3)
    if per_chunk > 1:
        assert read.acceptance.acceptance_length == pytest.approx(3.0)
        assert read.acceptance.per_position == pytest.approx((1.0, 1.0, 0.0))
        assert read.draft_share == pytest.approx(1.0)
    else:
        assert read.acceptance is None
    # The self-contained record is plain JSON as well.
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(record["requests"]) == 8 and record["failures"] == found.failures()

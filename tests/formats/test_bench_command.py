"""`specsim import` as a user calls it."""

import json
from functools import partial
from pathlib import Path

import pytest
from command_line import answer

from specsim.errors import FormatError, UsageError

DATA = Path(__file__).parent / "data"


call = partial(answer, "import")


def test_one_file_is_named_and_shown() -> None:
    text = call(str(DATA / "vllm_ngram3_codeedit_c4.json"))
    assert "vllm_ngram3_codeedit_c4.json: vllm bench serve\n" in text
    for words in (
        "closed loop, 4 clients",
        "acceptance length 3.147",
        "TPOT",
        "51.8",  # in ms, the unit of its column
        "2.172 tokens per step (from chunks)",
        "note: max_output_tokens_per_s",
    ):
        assert words in text


def test_many_runs_become_one_table_with_each_note_once() -> None:
    text = call(str(DATA))
    assert "SERVE--ngram3-BENCH--c4/run=0.json" in text
    assert text.count("note (") > 3 and "skipped " in text
    assert "runs): a single dump" in text


def test_json_holds_the_normal_form() -> None:
    path = str(DATA / "vllm_ngram3_openloop_crate.json")
    plain = json.loads(call(path, "--json"))
    assert plain["runs"][0]["load"]["kind"] == "open" and "requests" not in plain["runs"][0]
    full = json.loads(call(path, "--json", "--requests"))
    assert len(full["runs"][0]["requests"]) == 12
    closed = json.loads(call(str(DATA / "sglang_oai.jsonl"), "--json"))
    assert closed["runs"][0]["load"]["request_rate"] == "inf"


def test_before_takes_one_later_dump(tmp_path: Path) -> None:
    dump = str(DATA / "vllm_metrics_base.prom")
    text = call(dump, "--before", dump)
    assert "metrics (vllm)" in text and "since the server started" not in text
    with pytest.raises(UsageError, match="2 files given"):
        call(dump, dump, "--before", dump)
    with pytest.raises(UsageError, match="--requests goes with --json"):
        call(dump, "--requests")
    with pytest.raises(FormatError, match="not a file"):
        call(str(tmp_path / "none.json"))

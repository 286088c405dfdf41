"""`specsim import` on what is no benchmark: traces, models, drafters; and its exports."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples
from typer.testing import CliRunner

import gguf_maker
from specsim.commands import app
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.formats.recognise import DrafterFound, ModelFound, TraceSummary, recognise
from specsim.formats.traces import read_trace

DATA = Path(__file__).parent / "data"
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "hidden_act": "silu",
}
SPECULATORS = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
    "draft_vocab_size": 500, "norm_before_residual": False, "target_hidden_size": None,
    "transformer_layer_config": {**LLAMA, "num_hidden_layers": 1},
    "speculators_version": "0.9.0",
    "speculators_config": {
        "algorithm": "eagle3", "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
                     "architectures": ["LlamaForCausalLM"]},
    },
}
AZURE = ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
         "2023-11-16 18:17:04.9799600,3180,8\n2023-11-16 18:17:05.9799600,110,27\n")


def call(*words):
    result = CliRunner().invoke(app, ["import", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def write(tmp_path, content, name):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_trace_is_named_and_normalised(tmp_path):
    path = write(tmp_path, AZURE, "azure.csv")
    text = call(path)
    assert "azure trace" in text and "3 in 2 s" in text and "1/s" in text
    found = json.loads(call(path, "--json"))["traces"][0]
    assert found["requests"] == 3 and found["prompt_tokens_max"] == 4808
    assert found["request_rate"] == pytest.approx(1.0)
    assert found["prompt_tokens_p50"] == 3180 and found["output_tokens_mean"] == 15
    assert found["burstiness"] is None  # evenly spaced: no finite gamma shape
    out = tmp_path / "normal.csv"
    call(path, "--export", out)
    again, first = list(read_trace(out)), list(read_trace(path))
    assert [r[:3] for r in again] == [r[:3] for r in first]


def test_the_rhythm_of_a_trace_is_the_one_it_was_drawn_with(tmp_path):
    from itertools import islice

    from specsim.sim.arrivals import gamma_times

    rows = "".join(f"{t!r},{10 + i % 4},7,{i % 3}\n"
                   for i, t in enumerate(islice(gamma_times(4.0, 0, burstiness=0.5), 4000)))
    path = write(tmp_path, "arrival_s,prompt_tokens,output_tokens,session\n" + rows, "own.csv")
    found = recognise(path).to_dict()
    assert found["burstiness"] == pytest.approx(0.5, rel=0.1)
    assert found["request_rate"] == pytest.approx(4.0, rel=0.1)
    assert found["prompt_tokens_p50"] == 11.5 and found["sessions"] == 3
    out = tmp_path / "again.jsonl"
    call(path, "--export", out)
    assert list(read_trace(out)) == list(read_trace(path))


def test_a_folder_whose_config_is_another_tools_is_searched_for_results(tmp_path):
    write(tmp_path, {"retries": 3}, "config.json")
    write(tmp_path, (DATA / "sglang_oai.jsonl").read_text(), "result.jsonl")
    assert "sglang" in call(tmp_path)


def test_models_drafters_and_headers_are_named(tmp_path):
    (tmp_path / "m").mkdir()
    write(tmp_path / "m", LLAMA, "config.json")
    (tmp_path / "d").mkdir()
    write(tmp_path / "d", SPECULATORS, "config.json")
    (tmp_path / "x.gguf").write_bytes(gguf_maker.llama())
    model = recognise(tmp_path / "m")
    assert isinstance(model, ModelFound) and model.spec.n_layers == 2
    assert isinstance(recognise(tmp_path / "m" / "config.json"), ModelFound)
    drafter = recognise(tmp_path / "d")
    assert isinstance(drafter, DrafterFound) and drafter.format == "speculators config"
    assert drafter.verifier == "meta-llama/Llama-3.1-8B-Instruct"
    assert drafter.proposal_tokens == 3 and drafter.drafter.draft_vocab == 500
    text = call(tmp_path / "m", tmp_path / "d", tmp_path / "x.gguf")
    for words in ("Hugging Face config", "speculators config", "verifier    meta-llama",
                  "GGUF header", "drafts from 500", "Q4_K"):
        assert words in text
    document = json.loads(call(tmp_path / "m", tmp_path / "d", "--json"))
    assert [item["kind"] for item in document["models"]] == ["model", "drafter"]


def test_every_bench_sample_is_left_to_its_importer():
    for path in sorted(DATA.rglob("*")):
        if path.is_file() and path.name != "PROVENANCE.md":
            assert recognise(path) is None, path


@pytest.mark.parametrize("changed", [
    {"speculators_model_type": "crystal"}, {"speculators_model_type": 7},
    {"transformer_layer_config": None}, {"transformer_layer_config": []},
    {"draft_vocab_size": -1}, {"draft_vocab_size": "many"},
])
def test_broken_speculators_configs_name_the_field(tmp_path, changed):
    path = write(tmp_path, {**SPECULATORS, **changed}, "config.json")
    with pytest.raises(SpecSimError) as caught:
        recognise(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("odd", [None, 3, "x", [], {"verifier": 3}, {"proposal_methods": [1]},
                                 {"verifier": {"name_or_path": 7}, "proposal_methods": {}}])
def test_odd_parts_that_only_inform_are_left_out(tmp_path, odd):
    found = recognise(write(tmp_path, {**SPECULATORS, "speculators_config": odd}, "config.json"))
    assert (found.verifier, found.proposal_tokens) == (None, None)


def test_runs_are_exported_in_every_format(tmp_path):
    sample = DATA / "vllm_ngram3_codeedit_c4.json"
    for suffix in ("csv", "json", "jsonl"):
        call(sample, DATA / "sglang_oai.jsonl", "--export", tmp_path / f"runs.{suffix}")
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert float(rows[0]["tpot_s.mean"]) == pytest.approx(0.0518, abs=1e-4)
    assert rows[0]["format"] == "vllm bench serve" and len(rows) >= 2
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads((tmp_path / "runs.json").read_text())
    call(sample, "--requests", "--export", tmp_path / "requests.csv")
    requests = list(csv.DictReader((tmp_path / "requests.csv").read_text().splitlines()))
    assert len(requests) == 16 and float(requests[0]["ttft_s"]) > 0
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    call(sample, DATA / "sglang_oai.jsonl", "--export", tmp_path / "runs.parquet")
    table = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert table[0]["tpot_s.mean"] == pytest.approx(float(rows[0]["tpot_s.mean"]))


def test_misuse_is_refused(tmp_path):
    trace, sample = write(tmp_path, AZURE, "a.csv"), DATA / "sglang_oai.jsonl"
    model = tmp_path / "x.gguf"
    model.write_bytes(gguf_maker.llama())
    for message, words in [
        ("must end in", (sample, "--export", tmp_path / "x.txt")),
        ("not both", (sample, trace, "--export", tmp_path / "x.csv")),
        ("nothing of the kind", (model, "--export", tmp_path / "x.csv")),
        ("hold no single requests",
         (DATA / "spec_log.txt", "--requests", "--export", tmp_path / "x.csv")),
        ("goes with --json or --export", (sample, "--requests")),
        ("no folder", (sample, "--export", model / "x.csv")),
    ]:
        with pytest.raises(UsageError, match=message):
            call(*words)


def test_a_broken_trace_names_its_line(tmp_path):
    path = write(tmp_path, AZURE + "2023-11-16 18:17:09,many,1\n", "a.csv")
    with pytest.raises(FormatError, match="line 5: ContextTokens is 'many'"):
        call(path)


TRACES = [AZURE, "arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n1.25,30,0\n",
          "Timestamp,Model,Request tokens,Response tokens\n5,G,472,18\n45,G,17,3\n",
          '{"timestamp": 1, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n' * 2,
          '{"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 2, "session": 3}\n' * 2,
          "arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n2,3,4\n",
          json.dumps(LLAMA), json.dumps(SPECULATORS)]


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(data=st.data())
def test_whatever_is_done_to_them_only_our_errors_come_out(tmp_path_factory, data):
    text = data.draw(st.sampled_from(TRACES))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    middle = data.draw(st.one_of(st.text(max_size=5), st.sampled_from(
        ["nan", "-1", "1e999", "inf", '"', ",", "\n", "\x00", "9" * 30, "[]", "{}", "null"])))
    path = tmp_path_factory.mktemp("fuzz") / data.draw(st.sampled_from(["a.json", "a.csv", "b"]))
    path.write_bytes((text[:start] + middle + text[end:]).encode("utf-8", "surrogatepass"))
    try:
        found = recognise(path)
        if isinstance(found, TraceSummary):
            json.dumps([found.to_dict(), list(found.rows())], allow_nan=False)
        elif found is not None:
            json.dumps(found.to_dict(), allow_nan=False)
    except SpecSimError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500

"""From a row of measurements to what is predicted: units, engines, trees, and skipped rows."""

import csv

import pytest

from accuracy_samples import PUBLISHED, ROW, SILICON
from specsim.accuracy.lookups import SkipRow
from specsim.accuracy.rows import PublishedCase, published_case, silicon_case


def row(**changes: str) -> PublishedCase:
    return published_case({**ROW, **changes})


def test_a_row_becomes_a_system_and_its_measurements_in_seconds() -> None:
    case = row()
    system = case.system
    assert (system.spec.name, system.spec.weights) == ("Llama-3.1-8B", "bf16")
    assert system.profile.name == "h100-sxm"
    assert (system.engine.name, system.engine.version) == ("vllm", "0.25.1")
    assert (system.setup.method, system.setup.k) == ("eagle3", 3)
    assert system.acceptance is not None
    assert system.acceptance.expected_tokens(3) == pytest.approx(2.5)
    assert case.measured == pytest.approx(
        {"baseline_tpot_s": 7e-3, "spec_tpot_s": 4e-3, "ttft_s": 50e-3, "speedup": 1.75}
    )
    assert (case.workload.input_len, case.workload.output_len) == (1000, 201)
    assert (case.concurrency, case.acceptance_length, case.grade) == (4, 2.5, "A")


@pytest.mark.parametrize(
    ("notes", "over"),
    [("digitised; EP on; pos-1 survival >0.70", 4), ("TP4/EP2; fp8 KV", 2), ("TP4 EP1; trees", 1),
     ("STEP on", 1), ("", 1)],
)
def test_over_how_many_gpus_experts_are_split_stands_in_the_notes(notes: str, over: int) -> None:
    case = row(target_model="Qwen3-30B-A3B", draft_model="", tp="4", notes=notes)
    assert (case.system.parallel.tp, case.system.parallel.ep) == (4, over)


def test_throughputs_are_read_by_their_meaning() -> None:
    rates = {"baseline_tpot_ms": "", "spec_tpot_ms": "", "speedup": "", "ttft_ms": "",
             "baseline_tok_s": "100", "spec_tok_s": "250"}
    stream = row(**rates, tok_s_meaning="per-user decode rate")
    assert stream.measured == pytest.approx({"baseline_tpot_s": 0.01, "spec_tpot_s": 0.004})
    system = row(**rates, tok_s_meaning="system output tokens per second")
    assert system.measured == {"baseline_output_tok_s": 100.0, "spec_output_tok_s": 250.0}
    with pytest.raises(SkipRow, match="nothing measured"):
        row(**rates, tok_s_meaning="")


def test_lengths_come_from_the_data_set_where_the_row_has_none() -> None:
    case = row(isl="", osl="", dataset="MT-Bench")
    assert (case.workload.input_len, case.workload.output_len) == (110, 400)


@pytest.mark.parametrize(
    ("text", "k", "shape"),
    [
        ("steps 5 topk 8 draft_tokens 64", "5", (5, 8, 64)),
        ("3-1-4", "3", (3, 1, 0)),
        ("5-4-16", "5", (5, 4, 16)),
        ("chain", "3", (3, 1, 0)),
        ("", "3", (3, 1, 0)),
    ],
)
def test_tree_shapes(text: str, k: str, shape: tuple[int, int, int]) -> None:
    setup = row(tree_topk=text, k=k, mean_accepted_length="2.5", engine="SGLang",
                engine_version="0.5").system.setup
    assert (setup.k, setup.tree_topk, setup.tree_tokens) == shape


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"grade": "C"}, "grade C"),
        ({"engine": ""}, "engine not stated"),
        ({"engine": "llama.cpp"}, "engine not modelled: llama.cpp"),
        ({"gpu": ""}, "GPU not stated"),
        ({"gpu": "TPU v9"}, "GPU not modelled"),
        ({"target_model": "Nobody-1T"}, "model not in the catalogue: Nobody-1T"),
        ({"weight_dtype": "int3"}, "weight format not modelled: int3"),
        ({"method": "REST"}, "method not modelled: REST"),
        ({"k": ""}, "draft length not stated"),
        ({"k": "3?"}, "not stated exactly"),
        ({"k": "adaptive<=7"}, "not stated exactly"),
        ({"tree_topk": "bushy"}, "tree shape not understood"),
        ({"tree_topk": "tree depth 5"}, "tree shape not understood"),
        ({"batch_or_concurrency": ""}, "concurrency not stated"),
        ({"mean_accepted_length": "9"}, "outside 1..k"),
        ({"mean_accepted_length": "0.5"}, "outside 1..k"),
        ({"baseline_tpot_ms": "0", "spec_tpot_ms": "-1", "ttft_ms": "nan", "speedup": "1e308"},
         "nothing measured"),
        ({"target_model": "deepseek-ai/DeepSeek-V3", "tp": "", "method": "mtp"},
         "number of GPUs not stated"),
    ],
)
def test_rows_that_are_skipped_say_why(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(SkipRow, match=reason):
        row(**changes)


def test_silicon_rows() -> None:
    case = silicon_case(SILICON, "row-7")
    assert case.system.parallel.tp == 2
    assert case.system.spec.name.startswith("Qwen3-32B")
    assert case.system.spec.weights in ("fp8", "fp8_block")
    assert case.measured == pytest.approx({"baseline_tpot_s": 12.5e-3, "ttft_s": 180e-3})
    assert (case.concurrency, case.row_id) == (16, "row-7")
    assert case.acceptance_length is None and not case.system.speculative


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"pp_size": "2"}, "pipeline"), ({"suspect": "misparsed"}, "suspect: misparsed"),
     ({"concurrency": ""}, "concurrency"), ({"isl": ""}, "isl"),
     ({"silicon_tpot_ms": ""}, "TPOT missing"), ({"backend": "exotic"}, "not modelled"),
     ({"mode": "disagg"}, "decode workers not stated")],
)
def test_silicon_rows_that_are_skipped(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(SkipRow, match=reason):
        silicon_case({**SILICON, **changes}, "row-1")


def test_one_request_runs_on_one_decode_worker_however_many_there_are() -> None:
    case = silicon_case({**SILICON, "mode": "disagg", "concurrency": "1"}, "row-1")
    assert (case.concurrency, case.pure_decode) == (1, True)
    four = {"mode": "disagg", "concurrency": "64", "decode_num_workers": "4"}
    assert silicon_case({**SILICON, **four}, "row-1").concurrency == 16


def test_the_clusters_rows_are_read_as_it_serves_them() -> None:
    with PUBLISHED.open(encoding="utf-8") as stream:
        rows = {r["id"]: r for r in csv.DictReader(stream)}
    case = published_case(rows["MRBLOG-1"])
    assert (case.system.spec.name, case.system.setup.method) == ("Qwen3.6-27B-FP8", "mtp")
    assert case.concurrency == 1  # "low (1-few)"


def test_four_bits_of_gpt_oss_are_its_own() -> None:
    """Its checkpoint holds MXFP4 experts; 'fp4' is no other format than that."""
    changes = {"model_path": "openai/gpt-oss-120b", "backend": "trtllm", "precision": "fp4"}
    assert silicon_case({**SILICON, **changes}, "row-1").system.spec.weights == "mxfp4"
    other = silicon_case({**SILICON, **changes, "precision": "nvfp4"}, "row-1").system.spec
    assert other.weights == "nvfp4"


def test_a_batch_is_of_one_attention_group() -> None:
    """AIConfigurator's batch size is of one group, its concurrency of all. Where a row does not
    say that attention is in groups, experts over more GPUs than TP do, and both columns hold one
    number: 18 rows of Qwen3-235B-A22B, whose time to first token is met within 20 to 36 % so, 33
    to 60 % too early else."""
    groups = {"tp_size": "2", "moe_tp_size": "4"}
    silent, told = silicon_case({**SILICON, **groups}, "row-1"), silicon_case(
        {**SILICON, **groups, "attention_dp_size": "2"}, "row-1"
    )
    assert silent.system.parallel.attention_dp == told.system.parallel.attention_dp == 2
    assert (silent.concurrency, told.concurrency) == (32, 16)

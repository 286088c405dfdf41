"""Contradictions and engine rules in tune, matrix and --command: refused, with the way out."""

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.analytic.workload import Workload
from specsim.api.command_line import expand_command
from specsim.api.deployment import build_request
from specsim.api.matrix import split_format
from specsim.api.requests import check_longest
from specsim.api.tune_setup import build_offer
from specsim.commands import app
from specsim.errors import SpecSimError, UsageError
from specsim.formats.speculative_config import parse_speculative_config
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.serving import SimulateOptions
from specsim.options.tuning import TuneOptions
from specsim.planning.capacity_loads import Arrivals
from specsim.planning.capacity_result import flags_of
from specsim.planning.capacity_runs import Study
from specsim.planning.flags import ready_flags
from specsim.planning.matrix import OperatingPoint, matrix
from specsim.planning.tune import tune
from specsim.planning.tune_choices import OfferedLoad
from specsim.sim.slo import parse_slo

LLAMA = "vllm serve meta-llama/Llama-3.1-8B"


def setup(**given: Any) -> Any:
    return build_offer(TuneOptions(model="llama-3.1-8b", **given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mix": "chat=0.5,code=0.5", "workload": "rag"}, "--mix and --workload both"),
        ({"mix": "chat=0.5,code=0.5", "input_len": 9}, "--mix and --input-len both"),
        ({"mix": "chat=0.5,code=0.5", "output_len": 9}, "--mix and --output-len both"),
        ({"mix": "chat=0.5,Chat=0.5"}, "--mix has chat twice"),
        ({"acceptance_range": "2,3", "acceptance_length": 3.5}, "given is 3.5 tokens"),
        ({"acceptance_range": "2,3", "acceptance_rate": 0.1}, "given is 1.11 tokens"),
    ],
)
def test_two_answers_to_one_question(given: dict[str, Any], words: str) -> None:
    if "mix" not in given:
        given = {"method": "eagle3", "k": 3, **given}
    with pytest.raises(UsageError, match=words):
        setup(**given)


def test_an_acceptance_inside_its_range_is_kept() -> None:
    found = setup(acceptance_range="2,3", acceptance_length=2.8, method="eagle3", k=3)
    assert found.systems[0].tokens_per_step == pytest.approx(2.8)


def test_a_gate_has_one_limit() -> None:
    with pytest.raises(UsageError, match="'ttft_p95' is given twice"):
        parse_slo("ttft_p95=1,ttft_s_p95=2")


def test_answers_of_one_token_gain_nothing() -> None:
    made = replace(setup(method="eagle3"), workload=Workload(512, 1))
    one = tune(made, [OfferedLoad(8)], objective="tpot")
    assert one.answers[0].best_k == 0
    assert json.dumps(one.to_dict(), allow_nan=False)


# --- what the engine would refuse ---------------------------------------------------------------


def test_a_method_that_the_version_lost() -> None:
    given = {"method": "medusa", "acceptance_length": 2.0}
    with pytest.raises(UsageError, match=r"0\.33\.0 has no method 'medusa' any more"):
        build_request(Options(model="llama-3.1-8b", engine="vllm==0.33.0", **given))
    older = Options(model="llama-3.1-8b", engine="vllm==0.25.1", **given)
    assert build_request(older).system.speculative


def test_lookups_as_vllm_checks_them() -> None:
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5}
    with pytest.raises(UsageError, match="prompt_lookup_min 5 above prompt_lookup_max 3"):
        parse_speculative_config(json.dumps({**config, "prompt_lookup_max": 3}))
    assert parse_speculative_config(json.dumps(config)).k == 3
    device = parse_speculative_config('{"method": "ngram_gpu", "num_speculative_tokens": 2}')
    assert device.method == "ngram" and "ngram_gpu" in device.not_modelled[0]


def test_a_budget_below_the_seats() -> None:
    with pytest.raises(UsageError, match="64 below --max-num-seqs 128, which vLLM refuses"):
        expand_command(
            Options(model="", command=f"{LLAMA} --max-num-batched-tokens 64 --max-num-seqs 128")
        )
    options, _ = expand_command(Options(model="", command=f"{LLAMA} --max-num-batched-tokens 64"))
    assert options.max_num_batched_tokens == 64


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        (f"{LLAMA} --max-model-len 1k", 1000),
        (f"{LLAMA} --max-model-len=1K", 1024),
        (f"{LLAMA} --max-model-len auto", None),
        (f"{LLAMA} --max-model-len -1", None),
        (LLAMA, None),
        ("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B "
         "--context-length 1024", 1024),
    ],
)
def test_the_longest_request_of_a_server(command: str, limit: int | None) -> None:
    found, _ = expand_command(SimulateOptions(command=command))
    assert found.max_model_len == limit
    assert ("max_model_len" in found.model_fields_set) == (limit is not None)
    options, _ = expand_command(Options(model="", command=command))
    if limit is None:
        check_longest(options)
        return
    with pytest.raises(UsageError, match=f"takes at most {limit}"):
        check_longest(options)
    with pytest.raises(UsageError, match=f"takes at most {limit}"):
        build_request(Options(model="llama-3.1-8b", max_model_len=limit))
    check_longest(options.but(input_len=limit - 10, output_len=10))
    with pytest.raises(UsageError, match="--max-model-len '7' contradicts --command"):
        expand_command(SimulateOptions(command=command, max_model_len=7))


# --- matrix -------------------------------------------------------------------------------------


def test_one_model_without_the_method_costs_the_others_nothing() -> None:
    words = ["matrix", "--models", "llama-3.1-8b,qwen3.6-27b:fp8", "--method", "mtp"]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    first, second = json.loads(result.stdout)["cells"]
    assert not first["fits"] and "no MTP head" in first["reason"] and first["plain"] is None
    assert second["fits"] and second["gain"] > 1
    with pytest.raises(UsageError, match="no MTP head"):
        CliRunner().invoke(app, ["matrix", "--models", "llama-3.1-8b", "--method", "mtp"],
                           catch_exceptions=False)
    with pytest.raises(SpecSimError, match="not in the catalogue"):
        CliRunner().invoke(app, ["matrix", "--models", "llama-3.1-8b,no-such"],
                           catch_exceptions=False)


def test_formats_behind_a_colon() -> None:
    assert split_format("llama-3.1-8b:fp8") == ("llama-3.1-8b", "fp8")
    assert split_format("/data/a:b/config.json") == ("/data/a:b/config.json", "")
    with pytest.raises(UsageError, match="behind the colon"):
        split_format("llama-3.1-8b:")


# --- what to type -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "kv", "words"),
    [
        ("vllm", "bf16", ""), ("vllm", "fp8", "--kv-cache-dtype fp8"), ("vllm", "int8", None),
        ("vllm", "fp4", None), ("sglang", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("sglang", "fp4", "--kv-cache-dtype fp4_e2m1"), ("sglang", "int8", None),
    ],
)
def test_cache_dtypes_are_those_of_the_engine(engine: str, kv: str, words: str | None) -> None:
    system = build_request(Options(model="llama-3.1-8b", engine=engine, kv=kv)).system
    if words is None:
        with pytest.raises(UsageError, match=f"{engine} has no KV cache of {kv}; use --kv bf16"):
            ready_flags(system)
        return
    command = ready_flags(system).command
    assert words in command and ("--kv-cache-dtype" in command) == bool(words)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("--max-model-len 4096", "--no-enable-prefix-caching")),
        ("sglang", ("--context-length 4096", "--disable-radix-cache")),
    ],
)
def test_what_a_study_rests_on_is_typed(engine: str, words: tuple[str, str]) -> None:
    system = build_request(Options(model="llama-3.1-8b", engine=engine)).system
    arrivals = Arrivals(Workload(256, 64), 10.0, 1.0, 1.0, 0.0)
    study = Study(system, (arrivals,), {}, (("max_model_len", 4096),), prefix_caching=False)
    command = flags_of(study, system).command
    assert all(word in command for word in words)
    plain = flags_of(Study(system, (arrivals,), {}), system).command
    assert not any(word.split()[0] in plain for word in words)


def test_a_tree_that_vllm_would_not_run_is_said() -> None:
    given = {"method": "eagle3", "k": 3, "tree": "4,8"}
    said = build_request(Options(model="llama-3.1-8b", **given)).warnings
    assert any("vLLM drafts chains" in text for text in said)
    said = build_request(Options(model="llama-3.1-8b", engine="transformers", **given)).warnings
    assert any("transformers drafts chains" in text for text in said)
    other = build_request(Options(model="llama-3.1-8b", engine="sglang", **given)).warnings
    assert not any("drafts chains" in text for text in other)


def test_an_interrupted_matrix_keeps_its_cells() -> None:
    point = OperatingPoint(Workload(512, 128), 45.0, 20.0)
    seen: list[tuple[int, int]] = []

    def build(name: str, gpu: str, width: int) -> Any:
        if gpu == "b200":
            raise KeyboardInterrupt
        found = build_request(Options(model=name, gpu=gpu, tp=width))
        return found.system, found.warnings

    found = matrix(["llama-3.1-8b"], ["h200-sxm", "b200"], build, point,
                   report=lambda done, total: seen.append((done, total)))
    assert found.partial and [cell.gpu for cell in found.cells] == ["h200-sxm"]
    assert found.warnings[-1] == "interrupted after 1 of 2 cells" and seen == [(1, 2)]
    with pytest.raises(KeyboardInterrupt):
        matrix(["llama-3.1-8b"], ["b200"], build, point)


def test_loads_of_a_choice_are_heard_of() -> None:
    made = setup(method="eagle3")
    seen: list[tuple[int, int]] = []
    loads = [OfferedLoad(1), OfferedLoad(rate=1.0)]
    tune(made, loads, report=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]

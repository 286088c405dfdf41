"""Each part on a tiny model: it measures what its points say, and the points are complete."""

import pytest
import torch

from measure_helpers import QUICK, TINY, experts, session, tiny
from specsim.calibrate.records import KINDS
from specsim.decoder.models import TORCH_DTYPES
from specsim.decoder.options import DecoderOptions
from specsim.decoder.slots import EngineRequest
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import RandomSource
from specsim.measure import kernels, preload, serving, steps
from specsim.measure.grid import grid_for, jobs_for
from specsim.measure.models import default_models, default_moe, find_model
from specsim.measure.preload import StepCase
from specsim.measure.session import refill


def readings(jobs, s=None):
    s = s or session()
    out = []
    with torch.inference_mode():
        for job in jobs:
            got = job.run(s)
            assert [(r.kind, r.shape) for r in got] == [(p.kind, p.shape) for p in job.points]
            out += got
    for r in out:
        missing = set(KINDS[r.kind]) - set(r.shape)
        assert not missing, f"{r.kind} lacks {missing}"
        assert 0 < r.timing.min_s <= r.timing.median_s and r.cpu_over_wall >= 0
    return out


@pytest.fixture(scope="module")
def model():
    return Transformer(TINY, RandomSource(TINY, torch.float32, std=0.2),
                       ModelOptions(torch.float32))


def test_ceilings_report_rates_and_set_the_estimates() -> None:
    s = session()
    got = readings(kernels.ceiling_jobs((1 << 20, 1 << 22), 64, 5, "fp32"), s)
    by_op = {(r.shape.get("op"), r.shape.get("bytes")): r for r in got}
    read, copy = by_op["read", 1 << 22], by_op["copy", 1 << 22]
    assert read.values["bytes_per_s"] == pytest.approx((1 << 22) / read.timing.min_s)
    assert copy.values["bytes_per_s"] == pytest.approx(2 * (1 << 22) / copy.timing.min_s)
    assert s.bytes_per_s == read.values["bytes_per_s"]
    cube = next(r for r in got if r.kind == "gemm_peak")
    assert cube.values["flop_per_s"] == pytest.approx(2 * 64**3 / cube.timing.min_s)
    assert s.flop_per_s == cube.values["flop_per_s"]
    launch = next(r for r in got if r.kind == "launch")
    assert launch.values["node_s"] == pytest.approx(launch.timing.min_s / 5)


def test_products_have_the_models_shapes() -> None:
    got = readings(kernels.product_jobs(tiny(), (1, 3), "fp32"))
    shapes = {(r.shape["matrix"], r.shape["n"], r.shape["k"]) for r in got}
    # (4 + 2*2) heads of 8; gate and up of 64; vocabulary 97
    assert shapes == {("qkv", 64, 32), ("o", 32, 32), ("gate_up", 128, 32), ("down", 32, 64),
                      ("lm_head", 97, 32)}
    assert len(got) == 10 and {r.shape["m"] for r in got} == {1, 3}


def test_products_match_the_parameter_count() -> None:
    """The matrices are all weights but norms and the embedding."""
    total = sum(n * k * (1 if name == "lm_head" else TINY.num_layers)
                for name, (n, k) in kernels.matrices(TINY).items())
    norms = TINY.hidden_size * (2 * TINY.num_layers + 1)
    assert total + norms == TINY.num_parameters()  # tied: the embedding is the head
    assert steps.weights(TINY) == total


def test_attention_points_and_their_limit() -> None:
    got = readings(kernels.attention_jobs(tiny(), ((1, 1, 16), (3, 4, 16)), "fp32", "cpu"))
    assert [(r.shape["seqs"], r.shape["q_len"]) for r in got] == [(1, 1), (3, 4)]
    assert got[0].shape["heads"] == 4 and got[0].shape["kv_heads"] == 2
    assert kernels.attention_jobs(tiny(), ((10**6, 1, 10**6),), "fp32", "cpu") == []


def test_sampling_runs_every_mode_and_commits_nothing() -> None:
    jobs = kernels.sampling_jobs(tiny(), ((2, 0), (2, 3)), draft_probs=True)
    got = readings(jobs)
    kinds = [(r.shape["mode"], r.shape["k"], r.shape["draft_probs"]) for r in got]
    assert len(set(kinds)) == len(kinds) == 3 + 3 + 2
    assert ("greedy", 3, 1) not in kinds  # greedy verification looks at no distribution


@pytest.mark.parametrize("method,k", [("none", 0), ("ngram", 3), ("eagle", 2), ("early_exit", 2)])
def test_steps_verify_k_drafts_and_emit_one_token(model, method, k) -> None:
    from specsim.decoder.drafters.eagle import EagleWeights

    draft = EagleWeights.random(model, 0, 50) if method == "eagle" else None
    with torch.inference_mode():
        times = preload.run_steps(model, StepCase(method, k, 3, 20), QUICK, draft)
    assert times.q_len == k + 1
    assert times.wall.n == 2
    # One warm-up step before the two timed ones: 21 and 22 tokens in the cache.
    assert times.ctx == pytest.approx(21.5)
    assert set(times.phases_s) == {"draft", "verify", "sample"}
    assert sum(times.phases_s.values()) < 2 * times.wall.median_s


def test_steps_as_a_gpu_runs_them(model) -> None:
    """Graphs per phase, padded batches and a host that reads one step behind, through the CPU twin
    of the capture: the same number of steps and tokens."""
    with torch.inference_mode():
        times = preload.run_steps(model, StepCase("ngram", 2, 3, 20), QUICK, use_graphs=True,
                                  lag=1)
    assert times.q_len == 3 and times.wall.n >= 1
    assert set(times.phases_s) == {"draft", "verify", "sample"}
    assert 20 <= times.ctx < 26


def test_preloaded_requests_continue_as_if_prefilled(model) -> None:
    """With the prompt's real keys and values instead of random ones, a preloaded engine decodes
    what an ordinary one does: positions, lengths and the pending token are where they belong."""
    options = DecoderOptions(max_num_seqs=2, max_model_len=64)
    params = preload.SamplingParams(max_tokens=6, ignore_eos=True)
    engine = preload.PreloadedEngine(model, options)
    with torch.inference_mode():
        engine.preload(2, 9, 6, seed=4)
        tokens = engine.state.token_ids[:2, :10].tolist()
        plain = preload.PreloadedEngine(model, options)
        for row, ids in enumerate(tokens):  # the pending token becomes the last of the prompt
            plain.add(EngineRequest(f"row-{row}", ids, params))
        for _ in range(2):
            plain.step()
        engine._step.cache.data.copy_(plain._step.cache.data)
    while engine.has_work:
        engine.step()
    while plain.has_work:
        plain.step()
    for row in range(2):
        got = engine.finished[f"row-{row}"].token_ids
        assert len(got) == 5  # its first token is the pending one, drawn before the run began
        assert got == plain.finished[f"row-{row}"].token_ids[:5]
    engine.check_integrity()


def test_step_jobs_name_their_drafter() -> None:
    small = tiny("small")
    shapes = (("none", 0, 1, 16), ("draft_model", 2, 1, 16), ("eagle", 2, 2, 16))
    got = readings(steps.step_jobs(tiny(), shapes, "fp32", "cpu", draft=small))
    assert got[1].shape["draft_model"] == "small"
    assert "draft_model" not in got[0].shape
    assert got[2].values["mean_ctx"] >= 16
    assert steps.step_jobs(tiny(), (("none", 0, 10**6, 10**6),), "fp32", "cpu") == []


def test_prompts_give_a_point_per_chunk() -> None:
    got = readings(steps.prefill_jobs(tiny(), ((24, 24), (24, 10)), "fp32"))
    chunks = [(r.shape["new"], r.shape["cached"]) for r in got]
    assert chunks == [(24, 0), (10, 0), (10, 10), (4, 20)]


def test_experts_are_counted() -> None:
    got = readings(kernels.expert_jobs(experts(), (1, 16), "fp32"))
    assert got[0].values["distinct_experts"] == 2.0  # one token: its top 2
    assert 2.0 < got[1].values["distinct_experts"] <= 8.0


def test_serving_keeps_every_request() -> None:
    load = serving.DecoderLoad("ngram", 2, 0.5, max_num_seqs=3, prompt_len=5, output_len=6,
                               burst=7, seconds=0.05)
    got = readings(serving.jobs(tiny(), load, (0.0, 0.5), "fp32"))
    burst, poisson = got
    assert burst.values["requests"] == 7 and burst.values["rate_req_s"] == 0
    assert burst.series["arrival_s"] == [0.0] * 7
    assert poisson.values["rate_req_s"] == pytest.approx(0.5 * burst.values["request_rate_s"],
                                                         rel=1e-6)
    assert len(poisson.series["ttft_s"]) == poisson.values["requests"] >= 8
    assert poisson.series["arrival_s"] == sorted(poisson.series["arrival_s"])
    assert 1.0 <= burst.values["tokens_per_step"] <= 3.0
    assert burst.values["output_tok_s"] == pytest.approx(42 / burst.values["wall_s"])


def test_serving_continued_alone_measures_its_capacity_again() -> None:
    load = serving.DecoderLoad("none", 0, 0.0, max_num_seqs=2, prompt_len=4, output_len=3,
                               burst=4, seconds=0.02)
    (got,) = readings(serving.jobs(tiny(), load, (0.6,), "fp32"))
    assert got.values["rate_req_s"] > 0


def test_refill_leaves_no_zero_blocks_and_repeats_by_seed() -> None:
    one, two = torch.zeros(3_000_001), torch.zeros(3_000_001)
    refill(one, torch.Generator().manual_seed(1))
    refill(two, torch.Generator().manual_seed(1))
    assert torch.equal(one, two) and float((one == 0).float().mean()) < 1e-4
    small = torch.zeros(7)
    refill(small, torch.Generator().manual_seed(1))
    assert bool((small != 0).all())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["small", "full"])
def test_grids_are_complete_and_in_order(device, name) -> None:
    """Also the GPU's grids, whose jobs are made here but can only run there."""
    models = [find_model(m) for m in default_models(device, name)]
    jobs = jobs_for(grid_for(device, name), models, find_model(default_moe(device)), "bf16", device)
    parts = [job.part for job in jobs]
    assert parts == sorted(parts) and set(parts) == set("ABCDEFGH")
    keys = [(p.kind, tuple(sorted(p.shape.items()))) for job in jobs for p in job.points]
    assert len(set(keys)) == len(keys)
    for job in jobs:
        for p in job.points:
            assert set(KINDS[p.kind]) <= set(p.shape)
        assert job.work.bytes >= 0 and set(job.models) <= {m.name for m in models} | {
            default_moe(device)}


def test_what_a_model_has_no_positions_for_is_left_out() -> None:
    """TINY has 512."""
    assert kernels.attention_jobs(tiny(), ((1, 4, 512),), "fp32", "cpu") == []
    assert steps.step_jobs(tiny(), (("none", 0, 1, 500),), "fp32", "cpu") == []
    assert steps.prefill_jobs(tiny(), ((512, 512),), "fp32") == []
    long = serving.DecoderLoad("none", 0, 0.0, 1, prompt_len=400, output_len=200, burst=1,
                               seconds=0.1)
    assert serving.jobs(tiny(), long, (0.0,), "fp32") == []


def test_known_shapes_are_the_published_models() -> None:
    """Parameter counts of the models' cards, computed from their configs by hand elsewhere."""
    counts = {"smollm2-135m": 134_515_008, "smollm2-360m": 361_821_120,
              "smollm2-1.7b": 1_711_376_384, "qwen3-8b": 8_190_735_360,
              "qwen3-0.6b": 596_049_920}
    for name, count in counts.items():
        assert find_model(name).config.num_parameters() == count
    layer = find_model("qwen3-30b-a3b-12l").config
    whole = layer.num_parameters() - 2 * layer.vocab_size * layer.hidden_size - layer.hidden_size
    assert whole // 12 * 48 + 2 * layer.vocab_size * 2048 + 2048 == 30_532_122_624


def test_dtypes_of_the_session_are_the_decoders() -> None:
    assert set(TORCH_DTYPES) == {"bf16", "fp32"}

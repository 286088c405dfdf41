"""Records made from known parameters: what `specsim measure` would write on a made-up machine."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from specsim.calibrate.parameters import starting_tables
from specsim.calibrate.price import Models, RecordPricer
from specsim.calibrate.records import Measurement, RunHeader, Timing
from specsim.calibrate.records_fit import Data
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.overheads import Overheads

# (hidden, layers, heads, kv heads, head width, inner width) of two small models of one vocabulary
SHAPES = {
    "small": (576, 30, 9, 3, 64, 1536),
    "large": (960, 32, 15, 5, 64, 2560),
}
VOCAB = 49152


def config(name: str) -> dict[str, object]:
    hidden, layers, heads, kv, dim, inner = SHAPES[name]
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": dim, "intermediate_size": inner, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
        "rope_theta": 1e5, "tie_word_embeddings": True, "max_position_embeddings": 8192,
        "hidden_act": "silu", "torch_dtype": "bfloat16", "attention_bias": False,
        "mlp_bias": False,
    }


def header(kind: str = "cpu", names: Sequence[str] = ("small", "large")) -> RunHeader:
    device = {"kind": kind, "name": "made-up machine", "memory_bytes": 16 * 10**9, "cores": 2}
    return RunHeader(
        device=device, software={"torch": "2.13.0"}, git_sha="abc", date="2026-01-02T03:04:05",
        models={name: {"config": config(name), "weights": "random"} for name in names},
        seed=0, threads=2, grid="full",
    )


def kernel_shapes(
    names: Iterable[str], rows: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 512),
) -> list[tuple[str, str, dict[str, int | float | str]]]:
    """(part, kind, shape) of a grid like that of `specsim measure`."""
    out: list[tuple[str, str, dict[str, int | float | str]]] = []
    for name in names:
        hidden, _, heads, kv, dim, inner = SHAPES[name]
        products = {
            "qkv": ((heads + 2 * kv) * dim, hidden), "o": (hidden, heads * dim),
            "gate_up": (2 * inner, hidden), "down": (hidden, inner), "lm_head": (VOCAB, hidden),
        }
        for m in rows:
            for matrix, (n, k) in products.items():
                out.append(("B", "gemm", {"model": name, "matrix": matrix, "m": m, "n": n, "k": k,
                                          "dtype": "bf16"}))
        for seqs in (1, 8, 32):
            for q_len in (1, 4, 8):
                for ctx in (128, 1024):
                    out.append(("C", "attention", {
                        "model": name, "seqs": seqs, "q_len": q_len, "ctx": ctx, "heads": heads,
                        "kv_heads": kv, "head_dim": dim, "dtype": "bf16",
                    }))
        for new, cached in ((32, 0), (128, 0), (512, 0), (1024, 1024)):
            out.append(("G", "prefill", {"model": name, "new": new, "cached": cached,
                                         "prompt_len": new + cached, "dtype": "bf16"}))
    for count in (1, 8, 32):
        for k in (0, 4, 8):
            for mode in ("greedy", "top_p"):
                out.append(("D", "sample", {"rows": count, "k": k, "vocab": VOCAB, "mode": mode,
                                            "draft_probs": 0}))
    return out


def step_shapes(names: Iterable[str]) -> list[tuple[str, str, dict[str, int | float | str]]]:
    return [
        ("E", "step", {"model": name, "method": method, "k": k, "seqs": seqs, "ctx": 128,
                       "dtype": "bf16"})
        for name in names
        for method, ks in (("none", (0,)), ("ngram", (1, 3, 7)), ("eagle", (1, 3)))
        for k in ks for seqs in (1, 4, 32)
    ]


def machine(**params: float) -> HardwareProfile:
    """The CPU profile with some parameters set: 'attn_decode.bf16/floor_s' = ..."""
    profile = starting_tables(load_profile("cpu-generic"))
    kernels = dict(profile.kernels)
    for name, value in params.items():
        table, _, param = name.partition("/")
        kernels[table] = replace(kernels[table], params={**kernels[table].params, param: value})
    return replace(profile, kernels=kernels, sms=2, mem_bytes=16 * 10**9)


def decoder(**overheads: float) -> EngineProfile:
    return replace(find_engine("specsim"), overheads=Overheads(**overheads))


def measured(
    profile: HardwareProfile, shapes: Iterable[tuple[str, str, dict[str, int | float | str]]],
    run: RunHeader, noise: float, seed: int, engine: EngineProfile | None = None,
) -> Data:
    """Records of these shapes, as the profile and engine price them, with log-normal noise."""
    rng = random.Random(seed)
    engine = engine or decoder()
    pricer = RecordPricer(profile, engine, Models())
    records = [
        Measurement("A", "stream", {"bytes": 1 << 30, "op": "read"}, _timing(0.03, noise), 1.9,
                    30e9, values={"bytes_per_s": profile.mem_bytes_per_s}, run=run),
        Measurement("A", "gemm_peak", {"m": 2048, "n": 2048, "k": 2048, "dtype": "bf16"},
                    Timing(*(4 * [2 * 2048**3 / profile.flops["bf16"]]), 20), 1.9, 30e9, run=run),
    ]
    for part, kind, shape in shapes:
        record = Measurement(part, kind, shape, _timing(1.0, noise), 1.9, 30e9, run=run)
        exact = 0.0 if shape.get("mode") == "top_p" else pricer.seconds(record) or 0.0
        phases: dict[str, float] = {}
        values: dict[str, float] = {}
        factor = math.exp(rng.gauss(0.0, noise))
        if kind == "step":
            model, step = pricer.step_shape(record)
            whole, bare = model.step(step), model.with_overheads(Overheads()).step(step)
            drafting = whole.draft_s + engine.overheads.ngram_seq_s * step.decode_seqs * (
                shape["method"] == "ngram")
            phases = {"draft": drafting * factor, "verify": bare.target_s * factor,
                      "sample": bare.sample_s * factor}
            values = {"mean_ctx": float(shape["ctx"])}
        records.append(replace(
            record, timing=_timing(max(exact, 1e-6) * factor, noise), phases_s=phases,
            values=values,
        ))
    return Data(tuple(records), (run,))


def _timing(seconds: float, noise: float) -> Timing:
    """Twenty repeats whose spread is the noise of a single one's median."""
    single = noise * math.sqrt(20) / 1.25
    return Timing(seconds, seconds * math.exp(-1.2815 * single),
                  seconds * math.exp(1.2815 * single), seconds * math.exp(-2 * single), 20)

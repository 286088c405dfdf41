"""Fits of attention: `attn_decode.*` and `attn_prefill*` from attn_*.csv.gz.

Held out by whole (heads, kv heads, head dim). The decode collector runs the same cache again and
again inside a CUDA graph (one copy), so caches below the L2 size are warm there.
"""

from dataclasses import replace
from typing import Any

from kernels.fitting import Fit
from kernels.gemm import DEVICE, SOURCE
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import AttentionDecode, AttentionPrefill


def windowed(ctx: float, window: int = 0, **rest: Any) -> AttentionDecode:
    """A decode that sees at most `window` cached tokens (0: all)."""
    return AttentionDecode(ctx=min(ctx, window) if window else ctx, **rest)


attn_decode = called(roofline.attn_decode, windowed)
attn_prefill = called(roofline.attn_prefill, AttentionPrefill)

VLLM = "vllm 0.24.0"
TRTLLM = "trtllm 1.3.0rc20"
SGLANG = "sglang 0.5.14"
DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}


def decode_rows(file: str, kv_fmt: str, engine: str = "") -> list[Row]:
    found = []
    for labels, kv_len, us in wide(file):
        if DTYPES[labels["kv_cache_dtype"]] != kv_fmt:
            continue
        heads, kv_heads = int(labels["num_heads"]), int(labels["num_key_value_heads"])
        head_dim = int(labels["head_dim"])
        kwargs = {
            "seqs": int(labels["batch_size"]), "q_len": 1, "heads": heads, "kv_heads": kv_heads,
            "head_dim": head_dim, "ctx": kv_len - 1, "fmt": kv_fmt,
            "window": int(labels["window_size"]), "rotated_copies": 1, "engine": engine,
        }
        found.append(Row(f"{heads}/{kv_heads}/{head_dim}", kwargs, us * 1e-6))
    return found


def prefill_rows(file: str, kv_fmt: str = "bf16", engine: str = "") -> list[Row]:
    found = []
    for labels, isl, us in wide(file):
        if DTYPES[labels.get("kv_cache_dtype", "bfloat16")] != kv_fmt:
            continue
        heads, kv_heads = int(labels["num_heads"]), int(labels["num_key_value_heads"])
        head_dim = int(labels["head_dim"])
        kwargs = {
            "new": isl, "cached": 0, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
            "window": int(labels["window_size"]), "seqs": int(labels["batch_size"]),
            "fmt": kv_fmt, "engine": engine,
        }
        found.append(Row(f"{heads}/{kv_heads}/{head_dim}", kwargs, us * 1e-6))
    return found


DECODE = {
    "floor_s": (12e-6, 4e-6, 30e-6),
    "cold_s": (5e-6, 0.0, 30e-6),
    "mem_frac": (0.9, 0.3, 0.97),
    "wide_power": (0.3, 0.0, 2.0),
    "tile_s": (3.7e-6, 0.5e-6, 30e-6),
    "tile_power": (0.5, 0.0, 2.0),
    "split_s": (1e-6, 0.0, 5e-6),
    "sm_frac": (0.85, 0.3, 1.5),
    "max_splits": (48.0, 4.0, 132.0),
    "p": (1.4, 1.0, 6.0),
    "l2_frac": (1.0, 0.3, 1.5),
    "l2_traffic": (0.5, 0.2, 1.0),
}
# The tensor cores' share in decode cannot be seen with one query per sequence; prefill's is used.
DECODE_FIXED = {"tail": 1.0, "peak_frac": 0.6, "block_s": 0.0}
PREFILL = {
    "floor_s": (12e-6, 4e-6, 30e-6),
    "mem_frac": (0.3, 0.1, 0.97),
    "peak_frac": (0.66, 0.2, 0.95),
    "wide_frac": (0.7, 0.2, 0.95),
    "chain_gain": (1.0, 0.3, 4.0),
    "tile_s": (0.4e-6, 0.0, 10e-6),
    "sag": (0.03, 0.0, 0.2),
    "sag_s": (1e-3, 1e-5, 5e-3),
    "p": (1.5, 1.0, 8.0),
}
NARROW = {"narrow_frac": (0.45, 0.1, 0.95)}
BARS = (0.10, 0.25)


def group(row: Row) -> float:
    """Query heads per KV head."""
    return float(row.kwargs["heads"] / row.kwargs["kv_heads"])


def without(free: dict[str, tuple[float, float, float]], *names: str) -> dict[
    str, tuple[float, float, float]
]:
    return {name: value for name, value in free.items() if name not in names}


def fits() -> list[Fit]:
    file = "attn_decode_vllm_0.24.0.csv.gz"
    bf16 = decode_rows(file, "bf16")
    narrow = [row for row in bf16 if row.kwargs["head_dim"] <= 256]
    # From 1024 sequences on, that version takes another path, seven times as fast.
    huge = [
        row for row in bf16 if row.kwargs["head_dim"] > 256 and int(row.kwargs["seqs"]) <= 512
    ]
    out = [
        Fit("attn_decode.bf16", SOURCE + file, f"{DEVICE}, {VLLM}", attn_decode, narrow, DECODE,
            DECODE_FIXED, BARS),
        Fit("attn_decode.fp8", SOURCE + file, f"{DEVICE}, {VLLM}", attn_decode,
            decode_rows(file, "fp8"), DECODE, DECODE_FIXED, BARS),
        Fit("attn_decode.bf16.hd512", SOURCE + file, f"{DEVICE}, {VLLM}", attn_decode, huge,
            {**without(DECODE, "wide_power", "tile_s", "tile_power"), "block_s": (2e-6, 0, 9e-6)},
            {**DECODE_FIXED, "tile_s": 0.0, "wide_power": 0.0, "tile_power": 0.0}, None,
            note="FlashAttention 4 of that version: about 2 us per sequence whatever its "
                 "length; rows of at most 512 sequences (another path serves 1,024 and more)"),
    ]
    file = "attn_decode_trtllm_1.3.0rc20.csv.gz"
    trtllm = decode_rows(file, "bf16", "trtllm")
    out.append(
        Fit("attn_decode.bf16@trtllm", SOURCE + file, f"{DEVICE}, {TRTLLM}", attn_decode,
            [row for row in trtllm if group(row) <= 16], DECODE, DECODE_FIXED, BARS,
            excluded=[row for row in trtllm if group(row) > 16],
            note="groups of at most 16 query heads; above 32 a generic kernel is up to 10 x slower")
    )
    file = "attn_decode_trtllm_fp8_1.3.0rc20.csv.gz"
    out.append(
        Fit("attn_decode.fp8@trtllm", SOURCE + file, f"{DEVICE}, {TRTLLM}", attn_decode,
            [row for row in decode_rows(file, "fp8", "trtllm") if row.kwargs["head_dim"] > 64],
            DECODE, DECODE_FIXED, BARS)
    )
    file = "attn_context_vllm_0.24.0.csv.gz"
    context = prefill_rows(file)
    out.append(
        Fit("attn_prefill", SOURCE + file, f"{DEVICE}, {VLLM}", attn_prefill,
            [row for row in context if row.kwargs["head_dim"] <= 256], PREFILL, {}, None)
    )
    out.append(
        replace(
            out[-1], name="attn_prefill.hd512",
            rows=[row for row in context if row.kwargs["head_dim"] > 256],
            free=without(PREFILL, "peak_frac"), fixed={"peak_frac": 0.66},
        )
    )
    more = "attn_context_vllm_fp8_hd64_0.24.0.csv.gz"
    out.append(
        Fit("attn_prefill", SOURCE + file, f"{DEVICE}, {VLLM}", attn_prefill,
            prefill_rows(more), NARROW, {}, None, key="attn_prefill, heads of 64", refine=True,
            note="narrow_frac alone, on " + more)
    )
    out.append(
        Fit("attn_prefill.fp8", SOURCE + more, f"{DEVICE}, {VLLM}", attn_prefill,
            prefill_rows(more, "fp8"), PREFILL | NARROW, {}, None)
    )
    # SGLang's Triton kernels, on which Gemma 4 runs before Blackwell.
    file = "attn_decode_sglang_triton_0.5.14.csv.gz"
    widest = [row for row in decode_rows(file, "bf16", "sglang") if row.kwargs["head_dim"] > 256]
    no_tiles = {"tile_power": 0.0, "wide_power": 0.0}
    out.append(
        Fit("attn_decode.bf16.hd512@sglang", SOURCE + file, f"{DEVICE}, {SGLANG}", attn_decode,
            widest, without(DECODE, *no_tiles), DECODE_FIXED | no_tiles, BARS)
    )
    file = "attn_context_sglang_triton_0.5.14.csv.gz"
    widest = [row for row in prefill_rows(file, "bf16", "sglang") if row.kwargs["head_dim"] > 256]
    out.append(
        Fit("attn_prefill.hd512@sglang", SOURCE + file, f"{DEVICE}, {SGLANG}", attn_prefill, widest,
            without(PREFILL, "peak_frac") | {"wide_frac": (0.3, 0.02, 0.95)}, {"peak_frac": 0.66},
            None)
    )
    file = "attn_context_trtllm_1.3.0rc20.csv.gz"
    out += [
        Fit(name, SOURCE + file, f"{DEVICE}, {TRTLLM}", attn_prefill,
            prefill_rows(file, kv_fmt, "trtllm"), PREFILL | NARROW, {}, None)
        for name, kv_fmt in (("attn_prefill@trtllm", "bf16"), ("attn_prefill.fp8@trtllm", "fp8"))
    ]
    return out

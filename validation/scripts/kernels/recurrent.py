"""Fits of Gated DeltaNet: `gdn_decode`, `gdn_prefill` from gdn_*.csv.gz, and of verify from
kda_decode_verify.csv.gz (Kimi Delta Attention: the only verify kernels measured on an H200; its
state and data flow are those of Gated DeltaNet).

A row is the convolution plus the recurrent kernel of one call. Held out by whole
(key heads, value heads).
"""

from collections.abc import Iterator

from kernels.fitting import Fit
from kernels.gemm import DEVICE, SOURCE
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import StateDecode, StatePrefill


def delta_net_state(
    seqs: float, q_len: int, n_k_heads: float, n_v_heads: float, dk: int, dv: int
) -> StateDecode:
    """Gated DeltaNet's: dk x dv per value head, q, k and v convolved, 8 FLOP per element."""
    channels = 2 * n_k_heads * dk + n_v_heads * dv
    return StateDecode(seqs, q_len, n_v_heads * dk * dv, channels)


gdn_decode = called(roofline.state_decode, delta_net_state)
gdn_prefill = called(roofline.state_prefill, StatePrefill)

BARS = (0.12, 0.30)
MAX_TOKENS = 65536  # an engine's step holds fewer; beyond, SGLang's kernel degrades without order


def _sums(file: str, wide_name: str) -> Iterator[tuple[dict[str, str], int, float]]:
    """Convolution and recurrent rows of the same shape added."""
    parts: dict[tuple[tuple[str, ...], int], list[float]] = {}
    shapes: dict[tuple[str, ...], dict[str, str]] = {}
    for labels, value, us in wide(file):
        key = tuple(v for name, v in labels.items() if name != "kernel_source")
        shapes[key] = labels
        parts.setdefault((key, value), []).append(us)
    for (key, value), found in parts.items():
        if len(found) == 2:
            yield shapes[key], value, sum(found)


def _heads(labels: dict[str, str]) -> dict[str, object]:
    return {
        "n_k_heads": int(labels["num_k_heads"]), "n_v_heads": int(labels["num_v_heads"]),
        "dk": int(labels["head_k_dim"]), "dv": int(labels["head_v_dim"]),
    }


def decode_rows(file: str, engine: str) -> list[Row]:
    found = []
    for labels, seqs, us in _sums(file, "batch_size"):
        heads = _heads(labels)
        kwargs = {"seqs": seqs, "q_len": 1, **heads, "rotated_copies": 1, "engine": engine}
        found.append(Row(f"{heads['n_k_heads']}/{heads['n_v_heads']}", kwargs, us * 1e-6))
    return found


def prefill_rows(file: str, engine: str) -> list[Row]:
    found = []
    for labels, tokens, us in _sums(file, "seq_len"):
        heads = _heads(labels)
        if tokens * int(labels["batch_size"]) > MAX_TOKENS:
            continue
        kwargs = {
            "tokens": tokens, **heads, "seqs": int(labels["batch_size"]), "engine": engine,
        }
        found.append(Row(f"{heads['n_k_heads']}/{heads['n_v_heads']}", kwargs, us * 1e-6))
    return found


def verify_rows(framework: str, recurrent: str, engine: str) -> list[Row]:
    """Verify of KDA: heads key heads and as many value heads of 128 x 128."""
    parts: dict[tuple[int, int, int], list[float]] = {}
    for labels, seqs, us in wide("kda_decode_verify.csv.gz"):
        if labels["fw"] != framework or labels["phase"] != "verify":
            continue
        if labels["kernel_source"] in (recurrent, "causal_conv1d_update"):
            key = (int(labels["num_v_heads"]), int(labels["seq_len"]), seqs)
            parts.setdefault(key, []).append(us)
    found = []
    for (heads, q_len, seqs), both in parts.items():
        if len(both) == 2:
            kwargs = {
                "seqs": seqs, "q_len": q_len, "n_k_heads": heads, "n_v_heads": heads, "dk": 128,
                "dv": 128, "rotated_copies": 1, "engine": engine,
            }
            found.append(Row(f"kda {heads}", kwargs, sum(both) * 1e-6))
    return found


DECODE = {
    "floor_s": (6.5e-6, 2e-6, 20e-6),
    "mem_frac": (0.83, 0.3, 0.97),
    "conv_frac": (0.5, 0.05, 0.97),
    "p": (2.0, 1.0, 8.0),
    "l2_frac": (0.9, 0.3, 1.5),
    "l2_traffic": (0.45, 0.2, 1.0),
}
PREFILL = {
    "floor_s": (12e-6, 2e-6, 40e-6),
    "peak_frac": (0.4, 0.05, 0.97),
    "mem_frac": (0.6, 0.1, 0.97),
    "conv_frac": (0.45, 0.05, 0.97),
    "p": (2.0, 1.0, 8.0),
    "tail": (0.8, 0.0, 1.0),
}
TRITON = {"chunk_traffic": (1.0, 0.0, 20.0), "ramp_s": (0.3e-6, 0.0, 1e-6)}


def fits() -> list[Fit]:
    out = []
    for framework, version, kernel in (
        ("vllm", "0.24.0", "fused_recurrent_kda"),
        ("sglang", "0.5.14", "fused_sigmoid_gating_delta_rule_update"),
    ):
        engine = "" if framework == "vllm" else framework
        suffix = f"@{engine}" if engine else ""
        measured = f"{DEVICE}, {framework} {version}"
        file = f"gdn_decode_{framework}_{version}.csv.gz"
        out.append(
            Fit(f"gdn_decode{suffix}", SOURCE + file, measured, gdn_decode,
                decode_rows(file, engine), DECODE, {"token_s": 0.5e-6}, BARS)
        )
        out.append(
            Fit(f"gdn_decode{suffix}", SOURCE + file + "; token_s: kda_decode_verify.csv.gz",
                measured, gdn_decode, verify_rows(framework, kernel, engine),
                {"token_s": (0.5e-6, 0.0, 5e-6)}, {}, None, key=f"kda_verify{suffix}", refine=True,
                note="verify of 2, 4 and 8 tokens; only token_s is fitted here")
        )
        file = f"gdn_context_{framework}_{version}.csv.gz"
        out.append(
            Fit(f"gdn_prefill{suffix}", SOURCE + file, measured, gdn_prefill,
                prefill_rows(file, engine),
                {**PREFILL, **TRITON} if engine else PREFILL,
                {} if engine else {"chunk_traffic": 0.0, "ramp_s": 0.0}, BARS,
                note="rows of at most 65,536 tokens in one call")
        )
    return out

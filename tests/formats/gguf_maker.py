"""Small GGUF headers, byte by byte, for tests."""

import struct

TYPES = {int: (4, "I"), float: (6, "f"), bool: (7, "?")}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_of(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        if value and isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(x) for x in value)
        return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    kind, code = TYPES[type(value)]
    return struct.pack("<I", kind) + struct.pack("<" + code, value)


def gguf(metadata, tensors, version=3):
    """tensors: (name, shape, ggml type number)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key) + value_of(value)
    for name, shape, kind in tensors:
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, 0)
    return out


def llama(arch="llama", layers=2, hidden=256, ffn=512, heads=8, kv=2, vocab=1000, kind=12,
          head_kind=14, tied=False, bias=False, extra=None, **more):
    """A Llama-like file; kind 12 is Q4_K, 14 Q6_K, 1 F16."""
    meta = {
        "general.architecture": arch, f"{arch}.block_count": layers,
        f"{arch}.embedding_length": hidden, f"{arch}.feed_forward_length": ffn,
        f"{arch}.attention.head_count": heads, f"{arch}.attention.head_count_kv": kv,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{arch}.context_length": 4096,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(vocab)],
        "tokenizer.ggml.scores": list(range(5000)),
    } | (extra or {}) | more
    width = hidden // heads
    tensors = [("token_embd.weight", (hidden, vocab), head_kind),
               ("output_norm.weight", (hidden,), 0)]
    if not tied:
        tensors.append(("output.weight", (hidden, vocab), head_kind))
    for i in range(layers):
        p = f"blk.{i}."
        tensors += [
            (p + "attn_norm.weight", (hidden,), 0), (p + "ffn_norm.weight", (hidden,), 0),
            (p + "attn_q.weight", (hidden, heads * width), kind),
            (p + "attn_k.weight", (hidden, kv * width), kind),
            (p + "attn_v.weight", (hidden, kv * width), kind),
            (p + "attn_output.weight", (heads * width, hidden), kind),
            (p + "ffn_gate.weight", (hidden, ffn), kind),
            (p + "ffn_up.weight", (hidden, ffn), kind),
            (p + "ffn_down.weight", (ffn, hidden), kind),
        ]
        if bias:
            tensors += [(p + f"attn_{x}.bias", (n * width,), 0)
                        for x, n in (("q", heads), ("k", kv), ("v", kv))]
    return gguf(meta, tensors)

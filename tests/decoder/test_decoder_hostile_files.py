"""Files that the decoder opens are other people's: whatever they hold ends as one line, soon."""

import json
import os
import struct
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from decoder_helpers import LLAMA, hf_folder
from specsim.decoder.config import read_config
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.gguf_files import convert
from specsim.decoder.models import load_model
from specsim.decoder.tokenizer import Tokenizer
from specsim.errors import CapacityError, FormatError, ModelConfigError, SpecSimError, UsageError
from test_decoder_files import byte_tokens, write_gguf

STRING, ARRAY, U32, F32, U64, I64, BOOL = 8, 9, 4, 6, 10, 11, 7
_CODES = {U32: "<I", F32: "<f", U64: "<Q", I64: "<q", BOOL: "<?"}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        inner, items = content
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack(_CODES[kind], content)


TOKENS, MERGES = byte_tokens()
GOOD = {
    "general.architecture": (STRING, "llama"),
    "llama.block_count": (U32, 1), "llama.context_length": (U32, 64),
    "llama.embedding_length": (U32, 8), "llama.feed_forward_length": (U32, 16),
    "llama.attention.head_count": (U32, 2), "llama.attention.head_count_kv": (U32, 1),
    "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5), "llama.rope.freq_base": (F32, 1e4),
    "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "smollm"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)),
    "tokenizer.ggml.token_type": (ARRAY, (U32, [1] * len(TOKENS))),
    "tokenizer.ggml.merges": (ARRAY, (STRING, [" ".join(m) for m in MERGES])),
    "tokenizer.ggml.eos_token_id": (U32, 0),
}
SHAPES = {
    "token_embd.weight": (8, len(TOKENS)), "output_norm.weight": (8,),
    "blk.0.attn_norm.weight": (8,), "blk.0.ffn_norm.weight": (8,),
    "blk.0.attn_q.weight": (8, 8), "blk.0.attn_k.weight": (8, 4), "blk.0.attn_v.weight": (8, 4),
    "blk.0.attn_output.weight": (8, 8), "blk.0.ffn_gate.weight": (8, 16),
    "blk.0.ffn_up.weight": (8, 16), "blk.0.ffn_down.weight": (16, 8),
}


def gguf_file(path, meta=GOOD, shapes=SHAPES, kind=0, offset=0, data=1 << 16, extra=b"", entries=0):
    """A GGUF file from its parts; extra, entries: raw metadata beside meta."""
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(meta) + entries)
    raw += b"".join(text(key) + struct.pack("<I", k) + value(k, v) for key, (k, v) in meta.items())
    raw += extra
    for name, shape in shapes.items():
        raw += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    path.write_bytes(raw + b"\0" * (-len(raw) % 32) + b"\0" * data)
    return path


def loads(path, tmp_path):
    """The whole way of `generate` and `serve`."""
    folder = convert(path, tmp_path / "cache")
    read_config(folder)
    Tokenizer(folder)
    return load_model(folder, dtype="fp32")


def test_the_file_that_the_hostile_ones_are_made_from_loads(tmp_path):
    assert loads(gguf_file(tmp_path / "m.gguf"), tmp_path).config.num_heads == 2


def array(inner, length, rest=b""):
    return text("x.long") + struct.pack("<IIQ", ARRAY, inner, length) + rest


@pytest.mark.parametrize("extra", [
    array(U32, 1 << 61), array(STRING, 1 << 61), array(BOOL, (1 << 64) - 1),
    array(ARRAY, 1 << 61), array(ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 5000),
    text("x") + struct.pack("<IQ", STRING, 1 << 62), text("x") + struct.pack("<I", 99),
    struct.pack("<Q", 1 << 63),
])
def test_lengths_that_the_file_cannot_hold(tmp_path, extra):
    path = gguf_file(tmp_path / "m.gguf", extra=extra, entries=1)
    with pytest.raises(FormatError, match=r"m\.gguf"):
        loads(path, tmp_path)


HOSTILE_VALUES = [
    (U32, 0), (U32, 7), (U32, 0xFFFFFFFF), (U64, 1 << 62), (I64, -1), (F32, float("nan")),
    (F32, float("inf")), (F32, -1.0), (STRING, ""), (STRING, "8"), (BOOL, True), (ARRAY, (U32, [])),
    (ARRAY, (U32, [2, 1])), (ARRAY, (STRING, ["a", "a b c", ""])), (STRING, "\0\n{{ x"),
]


@pytest.mark.parametrize("key", [*GOOD, "general.alignment", "llama.vocab_size",
                                 "llama.attention.key_length", "llama.rope.scaling.type",
                                 "tokenizer.ggml.bos_token_id", "tokenizer.chat_template",
                                 "tokenizer.ggml.add_bos_token"])
def test_every_entry_with_every_value(tmp_path, key):
    """Each either loads or is refused in words."""
    refused = 0
    for i, hostile in enumerate(HOSTILE_VALUES):
        path = gguf_file(tmp_path / f"m{i}.gguf", meta=GOOD | {key: hostile})
        try:
            loads(path, tmp_path)
        except SpecSimError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 600
    assert refused >= 5


@pytest.mark.parametrize("key", GOOD)
def test_every_entry_left_out(tmp_path, key):
    path = gguf_file(tmp_path / "m.gguf", meta={k: v for k, v in GOOD.items() if k != key})
    try:
        loads(path, tmp_path)
    except SpecSimError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(("name", "shape"), [
    ("token_embd.weight", (0, 8)), ("token_embd.weight", (1 << 40, 1 << 40)),
    ("output_norm.weight", (1 << 40,)), ("blk.0.attn_q.weight", (8, 7)),
    ("blk.0.attn_q.weight", (8,)), ("blk.7.attn_q.weight", (8, 8)), ("blk.x.attn_q.weight", (8, 8)),
    ("blk.0.ffn_gate_exps.weight", (8,)), ("../../../evil", (8,)), ("", (8,)),
])
def test_tensors_that_cannot_be(tmp_path, name, shape):
    path = gguf_file(tmp_path / "m.gguf", shapes=SHAPES | {name: shape})
    try:
        loads(path, tmp_path)
    except SpecSimError as error:
        assert "\n" not in str(error)
    else:
        assert name.startswith(("blk.7", "blk.x", "blk.0.ffn_gate_exps")), "nothing reads these"


@pytest.mark.parametrize("changed", [
    {"kind": 99}, {"kind": 2}, {"kind": 16}, {"kind": 40}, {"offset": 1 << 63},
    {"offset": (1 << 64) - 1}, {"data": 0}, {"data": 100},
])
def test_data_that_are_not_there_or_not_read(tmp_path, changed):
    with pytest.raises(FormatError, match="tensor"):
        loads(gguf_file(tmp_path / "m.gguf", **changed), tmp_path)


def test_a_gguf_file_cut_anywhere(tmp_path):
    write_gguf(tmp_path / "whole.gguf", "llama")
    whole = (tmp_path / "whole.gguf").read_bytes()
    for cut in range(0, len(whole), len(whole) // 60):
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises(FormatError):
            loads(tmp_path / "cut.gguf", tmp_path)
    assert not list((tmp_path / "cache").rglob("model.safetensors")), "nothing half converted"


def folder_with(tmp_path, name, content):
    """A Hugging Face folder, one file of which is another."""
    folder = hf_folder(tmp_path / "hf", replace(LLAMA, num_layers=1), seed=8)
    (folder / name).unlink(missing_ok=True)
    if content is None:
        os.mkfifo(folder / name)
    else:
        (folder / name).write_bytes(content)
    return folder


DEEP = b"[" * 100_000
JSONS = [b"", b"{", b"[]", b"3", b"null", b'"x"', DEEP, b"\xff\xfe",
         b'{"a": ' + b"9" * 10_000 + b"}", b'{"weight_map": []}', b'{"weight_map": {"a": 3}}',
         b'{"weight_map": {"a": "../b"}}',
         b'{"weight_map": {"a": "missing"}}', b'{"eos_token_id": "x"}', None]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json",
                                  "tokenizer_config.json", "model.safetensors",
                                  "model.safetensors.index.json", "chat_template.jinja"])
def test_every_file_of_a_folder_with_every_content(tmp_path, name):
    refused = 0
    for i, content in enumerate(JSONS):
        folder = folder_with(tmp_path / str(i), name, content)
        try:
            load_model(folder, dtype="fp32")
            if (folder / "tokenizer.json").exists() or "tokenizer" in name or "chat" in name:
                Tokenizer(folder)
        except SpecSimError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused >= 2


@pytest.mark.parametrize(("field", "bad"), [
    (field, bad)
    for field in ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
                  "vocab_size", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta")
    for bad in (0, -1, 1 << 70, float("inf"), "many", [1], {})
    if bad != 1 << 70 or field not in ("rms_norm_eps", "rope_theta")  # a number above 0
])
def test_every_size_of_a_config(tmp_path, field, bad):
    folder = hf_folder(tmp_path / "hf", replace(LLAMA, num_layers=1), seed=8)
    config = json.loads((folder / "config.json").read_text()) | {field: bad}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises((FormatError, ModelConfigError, UsageError)):
        load_model(folder, dtype="fp32")
    with pytest.raises((FormatError, ModelConfigError, UsageError)):
        load_model(f"random:{folder}", dtype="fp32")


def test_a_model_that_no_memory_holds(tmp_path):
    size = (1 << 31) - 8
    config = LLAMA.to_hf() | {"hidden_size": size, "intermediate_size": size, "head_dim": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CapacityError, match="billion weights"):
        load_model(f"random:{tmp_path}")


@pytest.mark.parametrize("template", [
    "{{ messages[0].content + 1 }}", "{{ 1 / 0 }}", "{% for %}", "{{ ''.__class__ }}{{ x.y.z }}",
    "{{ raise_exception('no') }}", "{{ messages[9].role }}", "{% macro m() %}{{ m() }}"
    "{% endmacro %}{{ m() }}",
])
def test_templates_that_fail(tmp_path, template):
    write_gguf(tmp_path / "m.gguf", "llama")
    folder = convert(tmp_path / "m.gguf", tmp_path / "cache")
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(UsageError, match="chat template"):
        Tokenizer(folder).encode_chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("changed", [
    {"dn": torch.ones(())}, {"dn": torch.ones(3)}, {"vocab": torch.tensor([-1, 2])},
    {"vocab": torch.tensor([])}, {"vocab": torch.tensor([0.5])}, {"vocab": torch.ones((2, 2))},
    {"vocab": torch.zeros(0, dtype=torch.int32)},
])
def test_heads_that_are_none(tmp_path, tiny, changed):
    good = EagleWeights.random(tiny["llama"], vocab_size=40)
    good.save(tmp_path / "good.safetensors")
    assert EagleWeights.load(tmp_path / "good.safetensors").max_token == 39
    save_file(dict(good.tensors) | changed, tmp_path / "bad.safetensors")
    with pytest.raises(FormatError, match="no head file"):
        EagleWeights.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("command", [["generate", "hello"], ["serve", "--port", "0"]])
def test_the_commands_end_with_one_line(tmp_path, monkeypatch, capsys, command):
    from specsim.commands import main

    path = gguf_file(tmp_path / "m.gguf", extra=array(U32, 1 << 61), entries=1)
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["specsim", *command, "--model", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "m.gguf" in error

"""GGUF files, tokenizers, safetensors folders and model names."""

import json

import pytest
import torch

from decoder_helpers import CONFIGS, LLAMA, SlotHarness, hf_folder, hf_tensors, make_model
from specsim.decoder.config import read_config
from specsim.decoder.gguf_files import _tensor, cache_root, convert, unpair_rows
from specsim.decoder.models import find_folder, load_model
from specsim.decoder.tokenizer import TextStream, Tokenizer
from specsim.decoder.weights import pair_rows
from specsim.errors import FormatError, UsageError
from specsim.formats.gguf_header import read_gguf_header

gguf = pytest.importorskip("gguf")

VOCAB = 300
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}{{ eos_token }}"


def byte_tokens():
    """A byte-level vocabulary: specials, 256 byte symbols, and some merges."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbol = {b: chr(b) for b in visible}
    hidden = [b for b in range(256) if b not in symbol]
    symbol |= {b: chr(256 + i) for i, b in enumerate(hidden)}
    base = ["<|end|>", "<|start|>", *[symbol[b] for b in range(256)]]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r")]
    tokens = base + ["".join(m) for m in merges]
    return tokens + [f"<extra{i}>" for i in range(VOCAB - len(tokens))], merges


def write_gguf(path, family, pre="smollm"):
    from dataclasses import replace

    config = replace(CONFIGS[family], vocab_size=VOCAB)
    arch = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe"}[family]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(VOCAB)
    if config.num_experts:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    tokens, merges = byte_tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (VOCAB - 2))
    writer.add_token_merges([" ".join(m) for m in merges])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    tensors = hf_tensors(config, seed=8)
    short = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "mlp.gate": "ffn_gate_inp"}
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight":
           "output_norm.weight", "lm_head.weight": "output.weight"}
    for name, tensor in tensors.items():
        if name in top:
            writer.add_tensor(top[name], tensor.numpy())
            continue
        _, _, layer, rest = name.split(".", 3)
        if ".experts." in name:
            continue
        part, kind = rest.rsplit(".", 1)
        paired = arch == "llama" and short[part] in ("attn_q", "attn_k")
        rows = pair_rows(tensor, config.head_dim) if paired else tensor
        writer.add_tensor(f"blk.{layer}.{short[part]}.{kind}", rows.numpy())
    for layer in range(config.num_layers if config.num_experts else 0):
        for part in ("gate", "up", "down"):
            stacked = torch.stack([
                tensors[f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight"]
                for e in range(config.num_experts)
            ])
            writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", stacked.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config, tensors


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_gguf_equals_the_folder_it_was_made_from(tmp_path, family):
    config, _ = write_gguf(tmp_path / "m.gguf", family)
    folder = convert(tmp_path / "m.gguf", tmp_path / "cache")
    from dataclasses import replace

    got = read_config(folder)
    assert got == replace(config, eos_token_ids=(0,), bos_token_id=1,
                          norm_topk_prob=got.norm_topk_prob)
    same = hf_folder(tmp_path / "hf", config, seed=8)
    ids = list(range(7, 40))
    ours = SlotHarness(load_model(folder, dtype="fp32").model).prompt(0, ids, 0)
    want = SlotHarness(load_model(same, dtype="fp32").model).prompt(0, ids, 0)
    assert torch.equal(ours, want)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_packed_weights_are_those_of_ggufs_own_reader(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    rng = torch.Generator().manual_seed(1)
    for i, shape in enumerate([(3, 64), (5, 2, 32), (96,)]):
        weights = torch.randn(shape, generator=rng).numpy()
        writer.add_tensor(f"t{i}", gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(tmp_path / "m.gguf")
    for ours, theirs in zip(header.tensors, gguf.GGUFReader(tmp_path / "m.gguf").tensors,
                            strict=True):
        want = torch.from_numpy(gguf.quants.dequantize(theirs.data, theirs.tensor_type).copy())
        assert torch.equal(_tensor(tmp_path / "m.gguf", header, ours), want)


def test_conversion_happens_once_and_half_done_folders_do_not_count(tmp_path):
    write_gguf(tmp_path / "m.gguf", "llama")
    first = convert(tmp_path / "m.gguf", tmp_path / "cache")
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert convert(tmp_path / "m.gguf", tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert [p.name for p in first.parent.iterdir()] == [first.name]


def test_cache_place_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPECSIM_CACHE", raising=False)
    assert cache_root() == tmp_path / "specsim"
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "other"))
    assert cache_root() == tmp_path / "other"


def test_pairing_rows_is_undone_by_unpairing():
    rows = torch.arange(3 * 8 * 5).view(24, 5)
    assert torch.equal(unpair_rows(pair_rows(rows, 8), 8), rows)
    assert pair_rows(torch.arange(8), 8).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_files_that_are_not_what_they_should_be(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"not a gguf file at all" * 10)
    with pytest.raises(FormatError, match="no GGUF file"):
        convert(tmp_path / "bad.gguf", tmp_path / "cache")
    with pytest.raises(FormatError, match="is not a file"):
        convert(tmp_path / "missing.gguf", tmp_path / "cache")
    with pytest.raises(FormatError, match=r"no \.safetensors"):
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "config.json").write_text(json.dumps(LLAMA.to_hf()))
        load_model(tmp_path / "empty")
    write_gguf(tmp_path / "odd.gguf", "llama", pre="unheard-of")
    with pytest.raises(FormatError, match="'unheard-of'"):
        convert(tmp_path / "odd.gguf", tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("model.safetensors"))


def test_incomplete_checkpoints_name_what_is_missing(tmp_path):
    folder = hf_folder(tmp_path, CONFIGS["qwen3_moe"], seed=1, shards=4)
    (folder / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(FormatError, match="1 of 4 shards are missing"):
        load_model(folder)
    dense = hf_folder(tmp_path / "dense", LLAMA, seed=1)
    raw = json.loads((dense / "config.json").read_text())
    (dense / "config.json").write_text(json.dumps(raw | {"num_hidden_layers": 4}))
    with pytest.raises(FormatError, match=r"no tensor 'model\.layers\.3"):
        load_model(dense)


def test_model_names(tmp_path):
    with pytest.raises(UsageError, match="smollm2-135m"):
        find_folder(tmp_path / "nothing")
    with pytest.raises(UsageError, match="dtype 'fp12'"):
        load_model(tmp_path, dtype="fp12")


def test_random_weights_of_a_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA.to_hf()))
    a = load_model(f"random:{tmp_path}", dtype="fp32", seed=3)
    b = load_model(f"random:{tmp_path / 'config.json'}", dtype="fp32", seed=3)
    assert torch.equal(a.model.embed, b.model.embed)
    assert 0.019 < a.model.embed.std() < 0.021
    with pytest.raises(UsageError, match="no tokenizer"):
        a.tokenizer()
    with pytest.raises(FormatError, match="cannot be read"):
        load_model("random:/does/not/exist.json")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tok") / "m.gguf"
    write_gguf(path, "llama")
    return Tokenizer(convert(path, path.parent / "cache"))


def test_tokenizer_merges_digits_and_specials(tokenizer):
    text = "hello world 12 é\n<|end|>x"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    tokens, _ = byte_tokens()
    assert tokens[ids[0]] == "hello"
    assert ids.count(0) == 1  # the special token is one id
    assert tokenizer.decode(ids) == text.replace("<|end|>", "")
    assert tokenizer.vocab_size == VOCAB


def test_streamed_pieces_join_to_the_whole_text(tokenizer):
    text = "hello wörld, 😀 日本 hello"
    ids = tokenizer.encode(text)
    for width in (1, 2, 5):
        stream = TextStream(tokenizer)
        pieces = [stream.push(ids[i : i + width]) for i in range(0, len(ids), width)]
        assert "".join(pieces) + stream.finish() == text
        assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_is_given_out_at_the_end(tokenizer):
    ids = tokenizer.encode("a😀")[:-1]
    stream = TextStream(tokenizer)
    assert stream.push(ids) == ""
    assert stream.finish().startswith("a")


def test_chat_templates_run_in_a_sandbox(tokenizer):
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.chat_text(messages) == "<|user|>hi\n<|end|>"
    assert tokenizer.decode(tokenizer.encode_chat(messages)).startswith("<|user|>hi")
    with pytest.raises(UsageError, match="'role' and a 'content'"):
        tokenizer.chat_text([{"content": "x"}])
    tokenizer_class = type(tokenizer)
    hostile = tokenizer_class.__new__(tokenizer_class)
    hostile.__dict__ |= tokenizer.__dict__
    hostile._template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(UsageError, match="refused"):
        hostile.chat_text(messages)
    hostile._template = "{{ raise_exception('no system role') }}"
    with pytest.raises(UsageError, match="no system role"):
        hostile.chat_text(messages)
    hostile._template = None
    with pytest.raises(UsageError, match="no chat template"):
        hostile.chat_text(messages)


def test_a_model_refuses_positions_it_was_not_loaded_for():
    model = make_model(LLAMA, max_positions=32)
    harness = SlotHarness(model, tokens=64)
    with pytest.raises(Exception, match="beyond the 32"):
        harness.prompt(0, list(range(40)), 0)

"""Helpers of the decoder tests: tiny models, Hugging Face folders, and bare passes."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from specsim.decoder.attention import BatchRows, PagedAttention, SlotAttention
from specsim.decoder.config import ModelConfig
from specsim.decoder.kernels import verify_attention
from specsim.decoder.kv_cache import BlockTable
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import RandomSource

LLAMA = ModelConfig(
    family="llama", hidden_size=48, num_layers=3, num_heads=6, num_kv_heads=2, head_dim=8,
    intermediate_size=96, vocab_size=131, rms_norm_eps=1e-5, max_position=256,
)
CONFIGS = {
    "llama": LLAMA,
    "qwen2": replace(LLAMA, family="qwen2", rms_norm_eps=1e-6,
                     tie_word_embeddings=True),
    "qwen3": replace(LLAMA, family="qwen3", head_dim=16, rms_norm_eps=1e-6),
    "qwen3_moe": replace(LLAMA, family="qwen3_moe", num_experts=8,
                         num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True),
}
DRAFT = replace(LLAMA, hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16,
                intermediate_size=64)


def make_model(
    config: ModelConfig, seed: int = 0, std: float = 0.2, dtype=torch.float32, **options
) -> Transformer:
    """A random model. std 0.2 spreads the logits, so that argmax ties do not occur."""
    return Transformer(config, RandomSource(config, dtype, seed, std=std),
                       ModelOptions(dtype=dtype, **options))


def hf_tensors(config: ModelConfig, seed: int, stacked: bool = False) -> dict[str, torch.Tensor]:
    """Random weights under Hugging Face names, norms around 1; fp32 values that bf16 can hold."""
    generator = torch.Generator().manual_seed(seed)

    def weight(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.1).bfloat16().float()

    def norm(size: int) -> torch.Tensor:
        return (1 + weight(size)).bfloat16().float()

    c, out = config, {}
    h, d = c.hidden_size, c.head_dim
    out["model.embed_tokens.weight"] = weight(c.vocab_size, h)
    out["model.norm.weight"] = norm(h)
    if not c.tie_word_embeddings:
        out["lm_head.weight"] = weight(c.vocab_size, h)
    for i in range(c.num_layers):
        p = f"model.layers.{i}."
        out[p + "input_layernorm.weight"] = norm(h)
        out[p + "post_attention_layernorm.weight"] = norm(h)
        for part, heads in (("q", c.num_heads), ("k", c.num_kv_heads), ("v", c.num_kv_heads)):
            out[f"{p}self_attn.{part}_proj.weight"] = weight(heads * d, h)
            if c.qkv_bias:
                out[f"{p}self_attn.{part}_proj.bias"] = weight(heads * d)
            if c.qk_norm and part != "v":
                out[f"{p}self_attn.{part}_norm.weight"] = norm(d)
        out[p + "self_attn.o_proj.weight"] = weight(h, c.num_heads * d)
        if not c.num_experts:
            for part, shape in (("gate", (c.intermediate_size, h)),
                                ("up", (c.intermediate_size, h)),
                                ("down", (h, c.intermediate_size))):
                out[f"{p}mlp.{part}_proj.weight"] = weight(*shape)
            continue
        out[p + "mlp.gate.weight"] = weight(c.num_experts, h) * 4
        inner = c.moe_intermediate_size
        gate_up = weight(c.num_experts, 2 * inner, h)
        down = weight(c.num_experts, h, inner)
        if stacked:
            out[p + "mlp.experts.gate_up_proj"] = gate_up
            out[p + "mlp.experts.down_proj"] = down
            continue
        for e in range(c.num_experts):
            q = f"{p}mlp.experts.{e}."
            out[q + "gate_proj.weight"] = gate_up[e, :inner].contiguous()
            out[q + "up_proj.weight"] = gate_up[e, inner:].contiguous()
            out[q + "down_proj.weight"] = down[e].contiguous()
    return out


def hf_folder(
    folder: Path, config: ModelConfig, seed: int, stacked: bool = False, shards: int = 1
) -> Path:
    """A folder with config.json and fp32 safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_hf("float32")))
    tensors = hf_tensors(config, seed, stacked)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names, weight_map = sorted(tensors), {}
    for i in range(shards):
        part = {name: tensors[name] for name in names[i::shards]}
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


class SlotHarness:
    """Forward passes of a model over a few slots, without engine or state."""

    def __init__(
        self, model: Transformer, slots: int = 5, tokens: int = 80, page_size: int = 0,
        use_triton: bool = False,
    ) -> None:
        self.model = model
        device = model.device
        self.table = BlockTable(slots, tokens, page_size or tokens, device)
        if self.table.whole_slots:
            pages = slots
            attention = SlotAttention()
        else:
            # Pages handed out in an order that is not that of the slots.
            count = self.table.max_pages
            pages = 1 + slots * count
            order = torch.randperm(pages - 1, generator=torch.Generator().manual_seed(0)) + 1
            for slot in range(slots):
                self.table.assign(slot, order[slot * count : (slot + 1) * count].tolist())
            attention = PagedAttention(verify_attention(use_triton))
        self.cache = model.new_cache(pages, self.table, attention)

    @torch.inference_mode()
    def prompt(self, slot: int, ids: list[int], start: int) -> torch.Tensor:
        """Logits [T, V] of a prompt chunk at positions start .. start+T-1."""
        plan = self.model.prompt_plan(slot, start, len(ids), self.cache)
        return self.model.logits(self.model.forward(torch.tensor(ids), plan))

    @torch.inference_mode()
    def verify(
        self, slots: list[int], ids: list[list[int]], starts: list[int]
    ) -> torch.Tensor:
        """Logits [B, Q, V] of equally long token rows at each row's start."""
        q_len = len(ids[0])
        lo = slots[0]
        span = (lo, lo + len(slots)) if slots == list(range(lo, lo + len(slots))) else None
        rows = BatchRows(torch.tensor(slots), max(starts) + 1, span, exact=len(slots) == 1)
        plan = self.model.plan(rows, torch.tensor(starts), q_len, self.cache)
        hidden = self.model.forward(torch.tensor(ids), plan)
        return self.model.logits(hidden).view(len(slots), q_len, -1)

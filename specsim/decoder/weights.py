"""Weights of a model, layer by layer, in the layout the transformer wants.

A `WeightSource` yields fused matrices: q, k, v rows in one, gate and up rows in one, experts
stacked. `CheckpointSource` reads Hugging Face safetensors folders (one file or shards);
`RandomSource` makes seeded normal weights of any size (never zeros: products of zeros run faster
and would flatter a measurement). Layers are read one at a time, so peak memory is the model plus
one layer.

Rows of q and k are reordered from Hugging Face's half-split rotary pairs (i, i + D/2) to adjacent
pairs (2i, 2i + 1); see `layers.rotate`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specsim.checked import LooseShape, check
from specsim.decoder.config import ModelConfig, read_object
from specsim.errors import FormatError, ModelConfigError


@dataclass(slots=True)
class LayerWeights:
    """One layer. H hidden, D head width, I intermediate, E experts; None: not in this family."""

    norm1: Tensor  # [H]
    qkv: Tensor  # [(heads + 2 kv_heads) * D, H]
    qkv_bias: Tensor | None
    q_norm: Tensor | None  # [D]
    k_norm: Tensor | None
    o: Tensor  # [H, heads * D]
    norm2: Tensor
    gate_up: Tensor  # [2I, H], with experts [E, 2I, H]
    down: Tensor  # [H, I], with experts [E, H, I]
    router: Tensor | None = None  # [E, H]


class WeightSource(Protocol):
    def embed(self) -> Tensor:
        """[vocab, H]"""
        ...

    def layer(self, index: int) -> LayerWeights: ...

    def final_norm(self) -> Tensor: ...

    def head(self) -> Tensor:
        """[vocab, H]; not called for tied embeddings."""
        ...


def pair_rows(rows: Tensor, head_dim: int) -> Tensor:
    """Half-split rotary order to adjacent pairs, over the first axis [heads * D, ...]."""
    split = rows.view(-1, 2, head_dim // 2, *rows.shape[1:])
    return split.transpose(1, 2).reshape(rows.shape)


class _Index(LooseShape):
    """model.safetensors.index.json: the file of each tensor."""

    weight_map: dict[str, str]


class CheckpointReader:
    """Tensors of a Hugging Face safetensors folder by name, read on demand."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = folder
        files = sorted(file for file in folder.glob("*.safetensors") if file.is_file())
        if not files:
            raise FormatError(
                f"{folder} has no .safetensors file; convert the checkpoint to safetensors first"
            )
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            named = check(_Index, read_object(index), str(index)).weight_map.values()
            if any(Path(name).name != name for name in named):
                raise FormatError(f"{index} names files of other folders; download the checkpoint "
                                  "again")
            files = [folder / name for name in sorted(set(named))]
            missing = [f.name for f in files if not f.is_file()]
            if missing:
                raise FormatError(
                    f"{folder}: {len(missing)} of {len(files)} shards are missing "
                    f"({missing[0]}); download the checkpoint again"
                )
        self._handles: dict[str, Any] = {}  # open safetensors files
        for file in files:
            try:
                handle = safe_open(file, framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise FormatError(f"{file} is not a readable safetensors file: {error}") from None
            for name in handle.keys():  # type: ignore[no-untyped-call]  # noqa: SIM118 - not a dict
                self._handles[name] = handle

    def __contains__(self, name: str) -> bool:
        return name in self._handles

    def __call__(self, name: str) -> Tensor:
        if name not in self._handles:
            raise FormatError(
                f"{self.folder} has no tensor {name!r}; the checkpoint is incomplete or of "
                "another architecture"
            )
        tensor: Tensor = self._handles[name].get_tensor(name)
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise FormatError(
                f"{name} of {self.folder} is stored as {tensor.dtype}; the bundled decoder loads "
                "bf16, fp16 or fp32 checkpoints"
            )
        return tensor


class CheckpointSource:
    """WeightSource over Hugging Face names; `read(name)` gives a tensor, `name in read` tests."""

    def __init__(self, config: ModelConfig, read: CheckpointReader, dtype: torch.dtype) -> None:
        self.config, self._read, self._dtype = config, read, dtype

    def _get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._read(name)
        if tuple(tensor.shape) != shape:
            raise ModelConfigError(
                f"{name} has shape {tuple(tensor.shape)}, the config says {shape}; config.json "
                "and weights belong to different models"
            )
        return tensor.to(self._dtype)

    def embed(self) -> Tensor:
        c = self.config
        return self._get("model.embed_tokens.weight", (c.vocab_size, c.hidden_size))

    def final_norm(self) -> Tensor:
        return self._get("model.norm.weight", (self.config.hidden_size,))

    def head(self) -> Tensor:
        c = self.config
        return self._get("lm_head.weight", (c.vocab_size, c.hidden_size))

    def layer(self, index: int) -> LayerWeights:
        c = self.config
        prefix = f"model.layers.{index}."
        d, h = c.head_dim, c.hidden_size
        heads = {"q": c.num_heads, "k": c.num_kv_heads, "v": c.num_kv_heads}

        def joined(kind: str, *width: int) -> Tensor:
            """Rows of q, k and v, those of q and k paired."""
            q, k, v = (self._get(f"{prefix}self_attn.{part}_proj.{kind}", (count * d, *width))
                       for part, count in heads.items())
            return torch.cat([pair_rows(q, d), pair_rows(k, d), v])

        def head_norm(part: str) -> Tensor | None:
            if not c.qk_norm:
                return None
            return pair_rows(self._get(f"{prefix}self_attn.{part}_norm.weight", (d,)), d)

        gate_up, down, router = self._ffn(prefix + "mlp.")
        return LayerWeights(
            norm1=self._get(f"{prefix}input_layernorm.weight", (h,)), qkv=joined("weight", h),
            qkv_bias=joined("bias") if c.qkv_bias else None, q_norm=head_norm("q"),
            k_norm=head_norm("k"),
            o=self._get(f"{prefix}self_attn.o_proj.weight", (h, c.num_heads * d)),
            norm2=self._get(f"{prefix}post_attention_layernorm.weight", (h,)), gate_up=gate_up,
            down=down, router=router,
        )

    def _ffn(self, prefix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        c = self.config
        h = c.hidden_size
        if not c.num_experts:
            i = c.intermediate_size
            gate_up = torch.cat([self._get(f"{prefix}{n}_proj.weight", (i, h)) for n in
                                 ("gate", "up")])
            return gate_up, self._get(f"{prefix}down_proj.weight", (h, i)), None
        i, experts = c.moe_intermediate_size, c.num_experts
        router = self._get(f"{prefix}gate.weight", (experts, h))
        if f"{prefix}experts.gate_up_proj" in self._read:  # transformers 5 may write them stacked
            return (
                self._get(f"{prefix}experts.gate_up_proj", (experts, 2 * i, h)),
                self._get(f"{prefix}experts.down_proj", (experts, h, i)),
                router,
            )
        gate_up = torch.stack([
            torch.cat([self._get(f"{prefix}experts.{e}.{n}_proj.weight", (i, h)) for n in
                       ("gate", "up")])
            for e in range(experts)
        ])
        down = torch.stack([
            self._get(f"{prefix}experts.{e}.down_proj.weight", (h, i)) for e in range(experts)
        ])
        return gate_up, down, router


class RandomSource:
    """Seeded normal weights with standard deviation `std`, norms 1, biases small.

    Made on `device`. Any two sources with one seed and config give the same tensors on one device.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, seed: int = 0, std: float = 0.02,
        device: torch.device | None = None,
    ) -> None:
        self.config, self._dtype, self._std, self._seed = config, dtype, std, seed
        self._device = device or torch.device("cpu")

    def _normal(self, stream: int) -> Callable[..., Tensor]:
        generator = torch.Generator(self._device).manual_seed(self._seed * 1_000_003 + stream)

        def make(*shape: int) -> Tensor:
            made = torch.empty(shape, dtype=self._dtype, device=self._device)
            return made.normal_(0.0, self._std, generator=generator)

        return make

    def _ones(self, size: int) -> Tensor:
        return torch.ones(size, dtype=self._dtype, device=self._device)

    def embed(self) -> Tensor:
        return self._normal(0)(self.config.vocab_size, self.config.hidden_size)

    def final_norm(self) -> Tensor:
        return self._ones(self.config.hidden_size)

    def head(self) -> Tensor:
        return self._normal(1)(self.config.vocab_size, self.config.hidden_size)

    def layer(self, index: int) -> LayerWeights:
        c, make = self.config, self._normal(index + 2)
        h = c.hidden_size
        if c.num_experts:
            i, e = c.moe_intermediate_size, c.num_experts
            gate_up, down, router = make(e, 2 * i, h), make(e, h, i), make(e, h)
        else:
            i = c.intermediate_size
            gate_up, down, router = make(2 * i, h), make(h, i), None
        return LayerWeights(
            norm1=self._ones(h), qkv=make(c.qkv_width, h),
            qkv_bias=make(c.qkv_width) if c.qkv_bias else None,
            q_norm=self._ones(c.head_dim) if c.qk_norm else None,
            k_norm=self._ones(c.head_dim) if c.qk_norm else None,
            o=make(h, c.num_heads * c.head_dim), norm2=self._ones(h), gate_up=gate_up, down=down,
            router=router,
        )

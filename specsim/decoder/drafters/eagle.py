"""EAGLE / MTP-style head: one transformer layer that reads the target's hidden states.

At position t the head sees the target's hidden state h_t (before the final norm) and the embedding
of token t+1, and predicts token t+2:

    x = fc [rms(emb(tok_{t+1})); rms(h_t)];  x = layer(x);  logits = lm_head(rms(x))

For the next draft the head's own x stands in for h. Embedding and lm_head rows are the target's;
the head may predict a reduced vocabulary (`vocab`: ids of its rows), which is most of its cost.

State: a one-layer cache of its own, entry t made from (h_t, tok_{t+1}), and the last step's hidden
states in SlotState.hidden at positions base .. base+k. The first pass of a step is k+1 wide over
those: it replaces the entries that were made from the head's own guesses by entries from the
target's hidden states, whatever number of drafts was accepted, without asking the host. Entries of
rejected positions are junk, and are overwritten before anything attends to them.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specsim.data import data_root
from specsim.decoder.attention import BatchRows, KVCache
from specsim.decoder.config import ModelConfig
from specsim.decoder.drafters.base import DraftSampler, Proposal, Proposer
from specsim.decoder.layers import RMSNorm, linear_factory
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.decoder.weights import LayerWeights, pair_rows
from specsim.errors import FormatError, UsageError
from specsim.files import replacing

_NAMES = ("ne", "nh", "fc", "n1", "qkv", "o", "n2", "gu", "dn", "nf")


def head_shapes(config: ModelConfig, inner: int) -> dict[str, tuple[int, ...]]:
    """Shape of each weight by its name in the file; inner: width of the MLP. q and k rows are
    stored in Hugging Face's half-split rotary order."""
    h = config.hidden_size
    return {
        "ne": (h,), "nh": (h,), "fc": (h, 2 * h), "n1": (h,), "qkv": (config.qkv_width, h),
        "o": (h, config.num_heads * config.head_dim), "n2": (h,), "gu": (2 * inner, h),
        "dn": (h, inner), "nf": (h,),
    }


@dataclass(slots=True)
class EagleWeights:
    """Weights of a head by their names in the file; `vocab` int64 [rows] or None for all.

    max_token: largest id in vocab, -1 without one.
    """

    tensors: dict[str, Tensor]
    vocab: Tensor | None = None
    max_token: int = -1

    @classmethod
    def load(cls, path: Path) -> "EagleWeights":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise FormatError(f"{path} is not a readable head file: {error}") from None
        missing = sorted(set(_NAMES) - set(tensors))
        if missing:
            raise FormatError(
                f"{path} lacks {', '.join(missing)}; a head file holds {', '.join(_NAMES)} and "
                "optionally vocab"
            )
        vocab = tensors.pop("vocab", None)
        if tensors["dn"].dim() != 2:
            raise FormatError(f"{path}: dn has {tensors['dn'].dim()} axes instead of 2; it is no "
                              "head file")
        if vocab is not None and (vocab.dim() != 1 or not vocab.numel() or vocab.is_floating_point()
                                  or int(vocab.min()) < 0):
            raise FormatError(f"{path}: vocab is no list of token ids; it is no head file")
        kept = {name: tensors[name] for name in _NAMES}
        return cls(kept) if vocab is None else cls(kept, vocab.long(), int(vocab.max()))

    def save(self, path: Path) -> None:
        from safetensors.torch import save_file

        out = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        if self.vocab is not None:
            out["vocab"] = self.vocab.to(torch.int32)
        with replacing(path) as part:
            save_file(out, part)

    @classmethod
    def random(cls, target: Transformer, seed: int = 0, vocab_size: int = 0) -> "EagleWeights":
        """Weights of the right shapes, for timing with forced acceptance. vocab_size 0: all."""
        generator = torch.Generator().manual_seed(seed)
        c = target.config
        inner = c.intermediate_size or c.moe_intermediate_size * c.num_experts_per_tok
        tensors = {
            name: torch.ones(shape) if len(shape) == 1
            else torch.empty(shape).normal_(0.0, 0.02, generator=generator)
            for name, shape in head_shapes(c, inner).items()
        }
        vocab = torch.arange(vocab_size) if vocab_size else None
        return cls(tensors, vocab, vocab_size - 1)


def shipped_head(model: str) -> Path:
    """The head file that ships for a model, by the model's name. Raises UsageError without one."""
    folder = data_root("catalog") / "heads"
    path = folder / model.lower() / "head.safetensors"
    if not path.is_file():
        have = ", ".join(sorted(p.parent.name for p in folder.glob("*/head.safetensors")))
        raise UsageError(
            f"no trained head ships for {model!r} (there is one for {have or 'no model'}); make "
            "one with `specsim train-head`"
        )
    return path


class EagleProposer(Proposer):
    """beside: the target's cache, whose pages and table the head's cache shares."""

    needs_hidden = True
    cache: KVCache

    def __init__(
        self, weights: EagleWeights, target: Transformer, num_speculative_tokens: int,
        state: SlotState, beside: KVCache,
    ) -> None:
        config, device, dtype = target.config, target.device, target.dtype
        w = {name: t.to(device=device, dtype=dtype) for name, t in weights.tensors.items()}
        for name, want in head_shapes(config, w["dn"].shape[-1]).items():
            if tuple(w[name].shape) != want:
                raise UsageError(
                    f"the head's {name} has shape {tuple(w[name].shape)}, this target needs "
                    f"{want}; the head was trained for another model"
                )
        self.num_speculative_tokens = num_speculative_tokens
        self._target, self._state = target, state
        self.cache = target.cache_beside(beside, layers=1)
        eps, dim = config.rms_norm_eps, config.head_dim
        self._embed_norm, self._hidden_norm = RMSNorm(w["ne"], eps), RMSNorm(w["nh"], eps)
        make = linear_factory(target.linear, device, dtype)
        self._fc = make(w["fc"])
        heads = (config.num_heads + config.num_kv_heads) * dim
        qkv = torch.cat([pair_rows(w["qkv"][:heads], dim), w["qkv"][heads:]])
        self._layers = [target.make_layer(LayerWeights(
            norm1=w["n1"], qkv=qkv, qkv_bias=None, q_norm=None, k_norm=None, o=w["o"],
            norm2=w["n2"], gate_up=w["gu"], down=w["dn"],
        ))]
        self._final_norm = RMSNorm(w["nf"], eps)
        self._vocab = None if weights.vocab is None else weights.vocab.to(device)
        if self._vocab is None:
            self._head = make(target.head_weight)
        else:
            if weights.max_token >= config.vocab_size:
                raise UsageError(
                    f"the head's vocabulary names token {weights.max_token}, the target has "
                    f"{config.vocab_size}; the head was trained for another model"
                )
            self._head = make(target.head_weight[self._vocab].contiguous())

    def prompt(self, slot: int, ids: Tensor, hidden: Tensor, start: int, last: bool) -> None:
        """Cache entries of a prompt chunk. The last position of a prompt needs the token that is
        sampled from it: its entry is made by the next step's first pass."""
        count = hidden.shape[0] - 1 if last else hidden.shape[0]
        if count:
            plan = self._target.prompt_plan(slot, start, count, self.cache)
            self._target.run(self._mix(ids[1 : count + 1], hidden[:count]), self._layers, plan)
        if last:
            self._state.hidden[slot, 0] = hidden[-1]
            self._state.base[slot] = start + count

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        state, k = self._state, self.num_speculative_tokens
        index = rows.index
        n, base = state.n[index], state.base[index]
        width = state.hidden.shape[1]
        sampler = DraftSampler(state, rows, mode)
        next_at = (base + 1).unsqueeze(1) + torch.arange(width, device=n.device)
        tokens = state.token_ids[index.unsqueeze(1), next_at]
        plan = self._target.plan(rows, base, width, self.cache, rows.bound + width - 2)
        x = self._mix(tokens.view(-1), state.hidden[index].flatten(0, 1))
        x = self._target.run(x, self._layers, plan)
        newest = (n - 2 - base).clamp(0, width - 1).view(-1, 1, 1)  # entry whose token is pending
        x = x.view(rows.size, width, -1).gather(1, newest.expand(-1, 1, x.shape[-1])).squeeze(1)
        vocab, full = self._vocab, self._target.config.vocab_size
        token = sampler.draw(self._logits(x), n, vocab, full)
        for j in range(1, k):
            plan = self._target.plan(rows, n - 2 + j, 1, self.cache, rows.bound + j - 1)
            x = self._target.run(self._mix(token, x), self._layers, plan)
            token = sampler.draw(self._logits(x), n + j, vocab, full)
        return sampler.proposal()

    def _mix(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """tokens [T], hidden [T, H] -> the layer's input [T, H]."""
        embedded = self._embed_norm(F.embedding(tokens, self._target.embed))
        return self._fc(torch.cat((embedded, self._hidden_norm(hidden)), dim=-1))

    def _logits(self, x: Tensor) -> Tensor:
        """x [B, H] -> fp32 [B, rows of the head's vocabulary]."""
        return self._head(self._final_norm(x)).float()

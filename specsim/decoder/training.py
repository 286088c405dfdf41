"""Training a one-layer draft head (`drafters.eagle`) on a target's own answers, in CPU minutes.

Recipe: training-time test as in EAGLE-3 (Li et al. 2025): the head is unrolled a few steps over its
own outputs, as it is used; step s sees the target's features up to s positions back and its own
since. Loss: cross entropy over the head's reduced vocabulary on answer tokens, step s weighted by
step_weight^s. The layer starts as a copy of the target's last layer and `fc` as the identity on the
hidden state, which is worth an epoch. Embedding and output rows are the target's, frozen.

Weights are named as in `drafters.eagle`, q and k rows in Hugging Face's half-split rotary order.
Checkpoints are safetensors files with the optimizer's moments; nothing is pickled.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specsim.decoder.config import ModelConfig
from specsim.decoder.distill import TargetAnswer
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.layers import inverse_frequencies
from specsim.decoder.weights import CheckpointReader
from specsim.errors import FormatError, UsageError
from specsim.files import replacing
from specsim.jsonable import json_text

_NORMS = ("ne", "nh", "n1", "n2", "nf")
_MATRICES = ("fc", "qkv", "o", "gu", "dn")


@dataclass(frozen=True, slots=True)
class Recipe:
    """vocab_size: rows of the head's vocabulary, the answers' most frequent tokens. unroll: steps
    of training-time test. max_len: positions of a sequence that are trained on."""

    epochs: int = 6
    vocab_size: int = 8192
    unroll: int = 3
    step_weight: float = 0.8
    batch_seqs: int = 12
    learning_rate: float = 1e-3
    warmup: int = 30
    floor: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    max_len: int = 512
    held_out: float = 0.05
    autocast: bool = True


def initial_weights(folder: Path, config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """fp32 weights to start from: the target's last layer and final norm, `fc` the identity on the
    hidden state and nearly nothing on the embedding."""
    if config.num_experts:
        raise UsageError(
            "the target has experts, the head copies a dense layer; train on a dense model"
        )
    read = CheckpointReader(folder)
    p, h = f"model.layers.{config.num_layers - 1}.", config.hidden_size
    noise = torch.Generator().manual_seed(seed)

    def rows(*names: str) -> Tensor:
        return torch.cat([read(f"{p}{name}.weight").float() for name in names])

    return {
        "fc": torch.cat((torch.randn(h, h, generator=noise) * 0.01, torch.eye(h)), dim=1),
        "qkv": rows("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "o": rows("self_attn.o_proj"),
        "gu": rows("mlp.gate_proj", "mlp.up_proj"),
        "dn": rows("mlp.down_proj"),
        "ne": torch.ones(h), "nh": torch.ones(h),
        "n1": rows("input_layernorm"), "n2": rows("post_attention_layernorm"),
        "nf": read("model.norm.weight").float(),
    }


class HeadNet(nn.Module):
    """The head with trainable weights. embed [vocab, H] and output [rows, H] stay frozen."""

    def __init__(
        self, weights: dict[str, Tensor], config: ModelConfig, embed: Tensor, output: Tensor
    ) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(weights[name].float().clone()) for name in (*_MATRICES, *_NORMS)}
        )
        self.config = config
        self.embed, self.output = embed, output.float()
        self._frequencies = inverse_frequencies(config)

    def forward(self, tokens: Tensor, hidden: Tensor, unroll: int) -> list[Tensor]:
        """tokens [B, T]: the token after each position; hidden [B, T, H]: the target's.

        Returns, per step, the head's states [B, T, H] before its final norm. Step s of position t
        stands for the s-th draft after position t - s: it is fed the state of step s-1 at t-1, and
        attends to step-0 entries up to t - s, then to entry i of step i (0 < i <= s) of its own
        chain. Positions t < s have no such chain; their states are to be ignored.
        """
        embedded = self._norm(F.embedding(tokens, self.embed), "ne")
        length = tokens.shape[1]
        at = torch.arange(length, device=tokens.device)
        angles = at[:, None].float() * self._frequencies[None, :]
        turn = (angles.cos().repeat(1, 2), angles.sin().repeat(1, 2))
        behind = at[:, None] - at[None, :]  # query position minus key position
        keys: list[Tensor] = []
        values: list[Tensor] = []
        states: list[Tensor] = []
        for step in range(unroll):
            source = hidden if step == 0 else F.pad(states[-1], (0, 0, 1, 0))[:, :-1]
            x = self._linear(torch.cat((embedded, self._norm(source, "nh")), dim=-1), "fc")
            q, k, v = self._qkv(self._norm(x, "n1"), turn)
            keys.append(k)
            values.append(v)
            seen = [behind >= step] + [behind == step - i for i in range(1, step + 1)]
            # A position without a chain sees itself, so that no row of the softmax is empty.
            seen[0] = seen[0] | ((behind == 0) & (at[:, None] < step))
            out = F.scaled_dot_product_attention(
                q, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=torch.cat(seen, 1),
                enable_gqa=self.config.group > 1,
            )
            x = x + self._linear(out.transpose(1, 2).flatten(2), "o")
            gate, up = self._linear(self._norm(x, "n2"), "gu").chunk(2, -1)
            x = x + self._linear(F.silu(gate) * up, "dn")
            states.append(x)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """[..., H] -> [..., rows]"""
        return F.linear(self._norm(states, "nf"), self.output)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[name]
        return F.rms_norm(x.float(), (x.shape[-1],), weight, self.config.rms_norm_eps)

    def _qkv(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config
        batch, length, _ = x.shape
        heads = self._linear(x, "qkv").view(batch, length, -1, c.head_dim).transpose(1, 2)
        first_v = c.num_heads + c.num_kv_heads
        q, k, v = heads[:, : c.num_heads], heads[:, c.num_heads : first_v], heads[:, first_v:]
        return _turned(q, turn), _turned(k, turn), v


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of half-split pairs. x [B, heads, T, D]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Example:
    """tokens [T], hidden [T, H], labels [T]: row of the head's vocabulary, -100 where none counts.

    Position t is fed token t+1 and predicts token t+2.
    """

    tokens: Tensor
    hidden: Tensor
    labels: Tensor


def make_example(answer: TargetAnswer, hidden: Tensor, rows: Tensor, max_len: int) -> Example:
    """rows [vocab]: a token's row in the head's vocabulary, -100 without one. The first answer
    token is the target's own; labels begin with the one after it."""
    ids = torch.tensor(answer.ids[: max_len + 2])
    labels = rows[ids[2:]].clone()
    labels[: max(0, len(answer.prompt_ids) - 1)] = -100
    return Example(ids[1:-1], hidden[: len(ids) - 2].clone(), labels)


@dataclass(slots=True)
class TrainState:
    """iteration: done; planned: of the schedule; losses: mean per hundred iterations."""

    iteration: int = 0
    planned: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)


def batches(examples: Sequence[Example], size: int, epoch: int, seed: int) -> list[list[Example]]:
    """Batches of similar length, in an order drawn per epoch."""
    by_length = sorted(examples, key=lambda e: len(e.tokens))
    groups = [by_length[i : i + size] for i in range(0, len(by_length), size)]
    random.Random(f"{seed} {epoch}").shuffle(groups)
    return groups


def collate(group: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """tokens [B, T], hidden [B, T, H], labels [B, T], padded at the end (which no position before
    the padding sees)."""
    pad = nn.utils.rnn.pad_sequence
    tokens = pad([e.tokens for e in group], batch_first=True)
    hidden = pad([e.hidden.float() for e in group], batch_first=True)
    labels = pad([e.labels for e in group], batch_first=True, padding_value=-100)
    return tokens, hidden, labels


def step_losses(net: HeadNet, group: Sequence[Example], recipe: Recipe) -> list[tuple[Tensor, int]]:
    """Per unrolled step: cross entropy, and how many labels were predicted right."""
    tokens, hidden, labels = collate(group)
    with torch.autocast("cpu", torch.bfloat16, enabled=recipe.autocast):
        out = []
        for step, states in enumerate(net(tokens, hidden, recipe.unroll)):
            counted = labels != -100
            counted[:, :step] = False
            logits = net.logits(states[counted]).float()
            wanted = labels[counted]
            loss = F.cross_entropy(logits, wanted) if len(wanted) else logits.sum()
            out.append((loss, int((logits.argmax(-1) == wanted).sum())))
    return out


def train(
    net: HeadNet, examples: Sequence[Example], recipe: Recipe, path: Path, *, budget_s: float,
    seed: int, on_step: Callable[[TrainState], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TrainState:
    """Train for recipe.epochs or as much of them as fits into budget_s, continuing `path`.

    The schedule is planned from the time of the first iterations, so that the learning rate comes
    down before the time is up. `path` is a safetensors checkpoint, written twice a minute.
    """
    parameters = dict(net.weights.items())
    optimizer = torch.optim.AdamW(net.weights.parameters(), lr=recipe.learning_rate,
                                  betas=(0.9, 0.95), weight_decay=recipe.weight_decay)
    state = _load(path, parameters, optimizer) if path.is_file() else TrainState()
    per_epoch = -(-len(examples) // recipe.batch_seqs)
    most = recipe.epochs * per_epoch
    begun = saved = clock()
    first, earlier = state.iteration, state.seconds
    recent: list[float] = []
    try:
        for group in _stream(examples, recipe, seed, state.iteration, most):
            spent = clock() - begun
            done = state.iteration - first
            if done in (3, 20) or (done and done % 100 == 0):
                fits = state.iteration + int((budget_s - spent) / (spent / done))
                state.planned = max(state.iteration + 1, min(most, fits))
            planned = state.planned or most
            if spent >= budget_s or (done > 3 and state.iteration >= planned):
                break
            for options in optimizer.param_groups:
                options["lr"] = learning_rate(recipe, state.iteration, planned)
            losses = step_losses(net, group, recipe)
            total = sum((recipe.step_weight**i * loss for i, (loss, _) in enumerate(losses)),
                        start=torch.zeros(()))
            optimizer.zero_grad(set_to_none=True)
            total.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.weights.parameters(), recipe.clip)
            optimizer.step()
            state.iteration += 1
            state.seconds = earlier + clock() - begun
            recent.append(float(losses[0][0].detach()))
            if len(recent) == 100:
                state.losses.append(sum(recent) / len(recent))
                recent.clear()
            if on_step is not None:
                on_step(state)
            if clock() - saved > 30.0:
                _save(path, parameters, optimizer, state)
                saved = clock()
    finally:  # an interruption keeps what was learnt
        if recent:
            state.losses.append(sum(recent) / len(recent))
        _save(path, parameters, optimizer, state)
    return state


def _stream(
    examples: Sequence[Example], recipe: Recipe, seed: int, start: int, most: int
) -> Iterator[list[Example]]:
    """Batches from iteration `start` of the run to iteration `most`."""
    number = 0
    for epoch in range(recipe.epochs):
        for group in batches(examples, recipe.batch_seqs, epoch, seed):
            if start <= number < most:
                yield group
            number += 1


def learning_rate(recipe: Recipe, iteration: int, planned: int) -> float:
    """Linear warm-up, then a cosine down to `floor` of the peak."""
    warmup = min(recipe.warmup, max(1, planned // 5))
    if iteration < warmup:
        return recipe.learning_rate * (iteration + 1) / warmup
    share = min(1.0, (iteration - warmup) / max(1, planned - warmup))
    cosine = 0.5 * (1 + math.cos(math.pi * share))
    return recipe.learning_rate * (recipe.floor + (1 - recipe.floor) * cosine)


@torch.no_grad()
def accuracy(net: HeadNet, examples: Sequence[Example], recipe: Recipe) -> list[float]:
    """Teacher-forced share of answer tokens predicted right, per unrolled step. Tokens outside the
    head's vocabulary are not counted (they can never be drafted)."""
    right = [0] * recipe.unroll
    count = [0] * recipe.unroll
    for i in range(0, len(examples), recipe.batch_seqs):
        group = examples[i : i + recipe.batch_seqs]
        for step, (_, hits) in enumerate(step_losses(net, group, recipe)):
            right[step] += hits
            count[step] += sum(int((e.labels[step:] != -100).sum()) for e in group)
    return [r / max(1, c) for r, c in zip(right, count, strict=True)]


def head_weights(net: HeadNet, vocab: Tensor) -> EagleWeights:
    """The head as the decoder loads it, bf16."""
    tensors = {name: p.detach().to(torch.bfloat16) for name, p in net.weights.items()}
    return EagleWeights(tensors, vocab, int(vocab.max()))


def _save(
    path: Path, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer,
    state: TrainState,
) -> None:
    """Weights, both moments and the state, under a final name only when complete."""
    from safetensors.torch import save_file

    tensors = {f"p.{name}": p.detach() for name, p in parameters.items()}
    for name, p in parameters.items():
        moments = optimizer.state.get(p, {})
        for key in ("exp_avg", "exp_avg_sq"):
            if key in moments:
                tensors[f"{key}.{name}"] = moments[key]
    with replacing(path) as part:
        save_file({name: t.contiguous() for name, t in tensors.items()}, part,
                  metadata={"state": json_text(asdict(state))})


def _load(
    path: Path, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer
) -> TrainState:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            state = TrainState(**json.loads((file.metadata() or {})["state"]))
            names = set(file.keys())
            for name, p in parameters.items():
                p.data.copy_(file.get_tensor(f"p.{name}"))
                if f"exp_avg.{name}" in names:
                    optimizer.state[p] = {
                        "step": torch.tensor(float(state.iteration)),
                        "exp_avg": file.get_tensor(f"exp_avg.{name}"),
                        "exp_avg_sq": file.get_tensor(f"exp_avg_sq.{name}"),
                    }
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FormatError(
            f"{path} is no checkpoint of this head ({str(error)[:120]}); remove it to start over"
        ) from None
    return state

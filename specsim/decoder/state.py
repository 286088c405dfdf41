"""All per-sequence tensors of a run, one row per slot, on the device.

The last slot is scratch: padded rows of a batch run on it. It is always finished, so nothing is
ever committed to it, and its n is 2, the least a live slot has (one prompt token and the pending
one), so that no index goes below 0.

Invariants of a live slot with n committed tokens: token_ids[:n] are the tokens; the target's cache
holds positions 0 .. n-2; a draft model's cache holds positions 0 .. n-3 at least.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specsim.decoder.options import MAX_STOP_IDS, SamplingParams
from specsim.decoder.sampling import RowParams


@dataclass(slots=True)
class SlotState:
    """Tensors [slots, ...]; slots counts the scratch slot.

    hidden [slots, k+1, H] and base [slots]: the target's hidden states of the last step's
    positions base .. base+k, for drafters that read them; else hidden has no elements.
    """

    token_ids: Tensor  # int64 [slots, max_model_len + k + 2]
    n: Tensor  # int64 [slots]
    limit: Tensor  # int64 [slots], n at which the request is finished
    stop_ids: Tensor  # int64 [slots, MAX_STOP_IDS], -1 where unused
    finished: Tensor  # bool [slots]
    temperature: Tensor  # fp32 [slots]
    top_k: Tensor  # int64 [slots]
    top_p: Tensor  # fp32 [slots]
    seed: Tensor  # int64 [slots]
    hidden: Tensor
    base: Tensor  # int64 [slots]

    @classmethod
    def new(
        cls, max_num_seqs: int, max_model_len: int, k: int, device: torch.device,
        hidden_size: int = 0, dtype: torch.dtype = torch.float32,
    ) -> "SlotState":
        slots = max_num_seqs + 1

        def ints(*shape: int, value: int = 0) -> Tensor:
            return torch.full(shape, value, dtype=torch.int64, device=device)

        def floats(value: float) -> Tensor:
            return torch.full((slots,), value, dtype=torch.float32, device=device)

        return cls(
            token_ids=ints(slots, max_model_len + k + 2), n=ints(slots, value=2),
            limit=ints(slots, value=2), stop_ids=ints(slots, MAX_STOP_IDS, value=-1),
            finished=torch.ones(slots, dtype=torch.bool, device=device), temperature=floats(0.0),
            top_k=ints(slots), top_p=floats(1.0), seed=ints(slots),
            hidden=torch.zeros((slots, k + 1, hidden_size), dtype=dtype, device=device),
            base=ints(slots),
        )

    @property
    def scratch(self) -> int:
        return int(self.n.shape[0]) - 1

    def admit(
        self, slot: int, prompt: Tensor, params: SamplingParams, seed: int,
        stop_ids: tuple[int, ...],
    ) -> None:
        """Load a request into a free slot. prompt: int64 [P] on the host. Nothing is committed
        until the prompt has been computed: `commit_first` sets n."""
        length = prompt.shape[0]
        self.token_ids[slot, :length].copy_(prompt, non_blocking=True)
        stops = torch.full((MAX_STOP_IDS,), -1, dtype=torch.int64)
        stops[: len(stop_ids)] = torch.tensor(stop_ids, dtype=torch.int64)
        self.stop_ids[slot].copy_(stops, non_blocking=True)
        self.n[slot] = length
        self.limit[slot] = length + params.max_tokens
        self.finished[slot] = False
        self.temperature[slot] = params.temperature
        self.top_k[slot] = params.top_k
        self.top_p[slot] = params.top_p
        self.seed[slot] = seed

    def params(self, rows: Tensor) -> RowParams:
        return RowParams(self.temperature[rows], self.top_k[rows], self.top_p[rows],
                         self.seed[rows])

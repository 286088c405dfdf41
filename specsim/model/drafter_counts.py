"""Exact parameter counts of drafters, and the bytes they hold and read.

What a drafter shares with its target (embedding, head) is not counted as its own, but is
counted among the bytes that a pass reads.
"""

from specsim.errors import UsageError
from specsim.model.layer_counts import KVBytes, kv_of_layers, layer_bytes, layer_parameters
from specsim.model.part import PLAIN_BYTES
from specsim.model.spec import Drafter, ModelSpec
from specsim.units import DTYPE_BYTES


def drafter_parameters(drafter: Drafter, active: bool = False) -> int:
    """Parameters a drafter owns; shared tables of the target are not counted.

    With `active`, experts count as top_k and one of `n_predict` physical copies.
    """
    copies = 1 if active else drafter.n_predict
    count = copies * sum(layer_parameters(drafter.layers, drafter.hidden, active))
    count += copies * drafter.fc_in * drafter.fc_out + copies * drafter.extra_weights
    count += sum(rows * columns for rows, columns in drafter.extra_matrices)
    return count + drafter.lookup_weights + _own_tables(drafter)


def _own_tables(drafter: Drafter) -> int:
    if drafter.n_heads_medusa:
        per_head = drafter.hidden * drafter.hidden + drafter.vocab * drafter.hidden
        return drafter.n_heads_medusa * per_head
    count = drafter.draft_vocab * drafter.hidden if drafter.own_head else 0
    if drafter.own_embed and not (drafter.own_head and drafter.tied_embeddings):
        count += drafter.vocab * drafter.hidden
    return count


def drafter_weight_bytes(drafter: Drafter) -> float:
    """Bytes a drafter adds to the device."""
    layers = sum(layer_bytes(drafter.layers, drafter.hidden))
    fc = drafter.fc_in * drafter.fc_out * drafter.fc_weight.bytes_per_weight
    total = drafter.n_predict * (layers + fc + drafter.extra_weights * PLAIN_BYTES)
    matrices = sum(rows * columns for rows, columns in drafter.extra_matrices)
    total += matrices * drafter.fc_weight.bytes_per_weight
    total += drafter.lookup_weights * PLAIN_BYTES
    return total + _own_tables(drafter) * drafter.head_weight.bytes_per_weight


def drafter_pass_bytes(drafter: Drafter) -> float:
    """Weight bytes one single-token pass reads, its head (own or the target's) included."""
    layers = sum(layer_bytes(drafter.layers, drafter.hidden, active=True))
    fc = drafter.fc_in * drafter.fc_out * drafter.fc_weight.bytes_per_weight
    matrices = sum(rows * columns for rows, columns in drafter.extra_matrices)
    total = layers + fc + matrices * drafter.fc_weight.bytes_per_weight
    total += drafter.extra_weights * PLAIN_BYTES
    if drafter.n_heads_medusa:
        return total + _own_tables(drafter) * drafter.head_weight.bytes_per_weight
    rows = drafter.candidates if drafter.clustered else drafter.draft_vocab
    return total + rows * drafter.hidden * drafter.head_weight.bytes_per_weight


def drafter_kv_bytes(drafter: Drafter, kv_dtype: str = "bf16") -> KVBytes:
    """Cache bytes per token of the drafter's own layers (none where it reads the target's)."""
    if kv_dtype not in DTYPE_BYTES:
        known = ", ".join(DTYPE_BYTES)
        raise UsageError(f"KV cache dtype {kv_dtype!r} is not known; use one of {known}")
    return kv_of_layers(drafter.layers, DTYPE_BYTES[kv_dtype], drafter.n_predict)


def drafter_from_spec(spec: ModelSpec) -> Drafter:
    """A whole small model as the drafter of a larger one (method `draft_model`)."""
    return Drafter(
        name=spec.name,
        kind="model",
        hidden=spec.hidden,
        layers=spec.layers,
        vocab=spec.vocab,
        draft_vocab=spec.vocab,
        own_head=True,
        own_embed=True,
        extra_weights=spec.final_norm_weights + spec.extra_weights,
        extra_matrices=spec.extra_matrices,
        lookup_weights=sum(rows * width for rows, width in spec.tables),
        head_weight=spec.embed_weight if spec.tied_embeddings else spec.head_weight,
        tied_embeddings=spec.tied_embeddings,
        source=spec.source,
    )

"""Sums over layers: parameters, bytes of their weights, bytes they cache per token."""

from dataclasses import dataclass

from specsim.model.part import PLAIN_BYTES
from specsim.model.spec import LayerGroup


@dataclass(frozen=True, slots=True)
class KVBytes:
    """Cache bytes per token. `full` grows without end; `sliding` is ((window, bytes), ...);
    `index` are the keys of a sparse-attention indexer (read in full, even where the
    attention itself reads only its top-k tokens)."""

    full: float
    sliding: tuple[tuple[int, float], ...] = ()
    index: float = 0.0

    @property
    def per_token(self) -> float:
        """Bytes one more token adds while every window is still open."""
        return self.full + self.index + sum(size for _, size in self.sliding)

    def held(self, context_tokens: float) -> float:
        """Bytes a sequence of `context_tokens` holds, windows capped."""
        capped = sum(min(context_tokens, window) * size for window, size in self.sliding)
        return (self.full + self.index) * context_tokens + capped


def layer_parameters(
    layers: tuple[LayerGroup, ...], hidden: int, active: bool = False
) -> tuple[int, int, int]:
    """(mixer, ffn, norm) parameters of all layers; what they have beside counts as ffn."""
    mixer = ffn = norms = 0
    for group in layers:
        if group.mixer is not None:
            mixer += group.count * group.mixer.parameters(hidden)
        for part in (*group.branches, *group.extras):
            ffn += group.count * part.parameters(hidden, active)
        norms += group.count * group.norm_weights
    return mixer, ffn, norms


def layer_bytes(
    layers: tuple[LayerGroup, ...], hidden: int, active: bool = False
) -> tuple[float, float, float]:
    """(mixer, ffn, norm) bytes of all layers; what they have beside counts as ffn."""
    mixer = ffn = norms = 0.0
    for group in layers:
        if group.mixer is not None:
            mixer += group.count * group.mixer.weight_bytes(hidden)
        for part in (*group.branches, *group.extras):
            ffn += group.count * part.weight_bytes(hidden, active)
        norms += group.count * group.norm_weights * PLAIN_BYTES
    return mixer, ffn, norms


def kv_of_layers(layers: tuple[LayerGroup, ...], element: float, copies: int = 1) -> KVBytes:
    """Cache bytes per token of `copies` times these layers; `element` is the dtype's size."""
    full = index = 0.0
    sliding: dict[int, float] = {}
    for group in layers:
        if group.mixer is None:
            continue
        count, row = group.count * copies, group.mixer.cache_row(element)
        index += count * row.index_size
        full += count * row.kept_size
        if row.window:
            sliding[row.window] = sliding.get(row.window, 0.0) + count * row.size
        else:
            full += count * row.size
    return KVBytes(full, tuple(sorted(sliding.items())), index)

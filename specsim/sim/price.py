"""Seconds of a planned step, by linear interpolation in tables of the latency model.

Two tables per pair (drafts verified, drafts proposed), filled by `surface` where a run needs them:

* decode_s[sequences, mean cached tokens]: exact in the number of sequences (CUDA graphs make it a
  staircase), linear between nodes of the context.
* mixed_s[sequences, tokens, mean span]: steps with prompt chunks, at one context. Tokens are all of
  the step, verified and prompt ones: they decide the matrix products. The span of a prompt token
  is how many tokens it attends to, itself included; chunks of equal total length and equal mean
  span cost the same attention. What another context of the decoding sequences changes is taken
  from the decode table.

Functions here run as Python or compiled, in the same order of operations.
"""

# State is arrays or lists of numbers; what is read from it has no static type.
# mypy: disable-error-code="no-any-return"

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.rows import between_corners, node_below


def price_step(c: Core) -> bool:
    """Set X_STEP_S. False if a table entry is missing (or all are, when pricing exactly)."""
    ints = c.ints
    if ints[f.I_EXACT] != f.EXACT_OFF:
        given = ints[f.I_EXACT] == f.EXACT_GIVEN
        ints[f.I_EXACT] = f.EXACT_ASK
        return given
    tier = c.tier[ints[f.I_K_NOW]][ints[f.I_K_NEXT]]
    if tier < 0:
        return False
    seqs = ints[f.I_SCHEDULED]
    context = mean_context(c)
    if ints[f.I_NEW_TOKENS] > 0:
        new = ints[f.I_NEW_TOKENS]
        seconds = mixed_seconds(c, tier, seqs, context, new, ints[f.I_SPAN_WORK] / new)
    else:
        seconds = decode_seconds(c, tier, seqs, context)
    if seconds != seconds:  # noqa: PLR0124 - NaN, in a form that compiles to one comparison
        return False
    c.flts[f.X_STEP_S] = seconds
    return True


def step_width(c: Core, drafts: int) -> int:
    """Tokens that a decoding request takes part with when it verifies `drafts`."""
    if drafts > 0 and c.ints[f.I_WIDTH] > 0:
        return c.ints[f.I_WIDTH]
    return drafts + 1


def mean_context(c: Core) -> float:
    """Cached tokens per scheduled decoding request."""
    ints = c.ints
    seqs = ints[f.I_SCHEDULED]
    if seqs == 0:
        return 0.0
    total = ints[f.I_CONTEXT]
    for r in range(seqs, ints[f.I_N_ROWS]):
        total -= int(c.rows[f.R_COMPUTED, r])
    return total / seqs


def decode_seconds(c: Core, tier: int, seqs: int, context: float) -> float:
    j = node_below(c.grid_ctx, context)
    share = (context - c.grid_ctx[j]) / (c.grid_ctx[j + 1] - c.grid_ctx[j])
    below = c.decode_s[tier, seqs, j]
    above = c.decode_s[tier, seqs, j + 1]
    return below + (above - below) * share


def mixed_seconds(
    c: Core, tier: int, seqs: int, context: float, new: int, span: float
) -> float:
    tokens = seqs * step_width(c, c.ints[f.I_K_NOW]) + new
    a = node_below(c.grid_seqs, seqs)
    b = node_below(c.grid_tokens, tokens)
    d = node_below(c.grid_span, span)
    seconds = between_corners(
        c.mixed_s[tier, a : a + 2, b : b + 2, d : d + 2],
        (seqs - c.grid_seqs[a]) / (c.grid_seqs[a + 1] - c.grid_seqs[a]),
        (tokens - c.grid_tokens[b]) / (c.grid_tokens[b + 1] - c.grid_tokens[b]),
        (span - c.grid_span[d]) / (c.grid_span[d + 1] - c.grid_span[d]),
    )
    if seqs > 0:
        known_s = c.decode_s[tier, seqs, c.ints[f.I_AT_NODE]]
        seconds += decode_seconds(c, tier, seqs, context) - known_s
    return seconds

"""A forward pass as a value: what runs before, in and after its layers, and over which rows.

A step of an engine is a few of these (the target's, the drafter's) and some ops outside any. The
latency layer prices them, with what recurs priced once; `pass_ops` lists every call in order.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specsim.model.spec import Drafter, LayerGroup, ModelSpec
from specsim.ops.network import (
    drafter_ends,
    group_context,
    group_rows,
    head_ops,
    sequences,
    target_ends,
    target_head,
)
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Routing, Rows, Work, attention_share

Ends = Callable[[Work], tuple[list[OpCost], list[OpCost]]]


class Pass(NamedTuple):
    """One forward pass: layer groups of width `hidden` over `work`, with the ops before and after
    them that `ends` makes from the work of one attention group. times: identical passes.
    later: a pass after the first of a step, whose `ends` may differ. state_copies: writes of a
    recurrent state beyond the first."""

    phase: str
    name: str
    layers: Sequence[LayerGroup]
    hidden: int
    work: Work
    parallel: Parallel
    ends: Ends
    state_copies: float = 0.0
    later: bool = False
    times: int = 1

    def rows_of(self, group: LayerGroup, share: Work, routing: Routing) -> Rows:
        """(ops before, ops after) the mixer's work on the cache, for one attention group's
        `share`."""
        return group_rows(
            group, self.hidden, self.work.rows, share.rows, sequences(self.work), self.parallel,
            routing, self.name, bool(self.work.prefill),
        )

    def context_of(self, group: LayerGroup, share: Work, kv_dtype: str) -> list[OpCost]:
        """The mixer's work on the cache or state."""
        return group_context(
            group, share, self.parallel, kv_dtype, self.state_copies, self.name
        )


def target_pass(
    spec: ModelSpec, work: Work, parallel: Parallel, state_copies: float = 0.0
) -> Pass:
    """The target over `work`, output head included."""
    return Pass(
        "target", "", spec.layers, spec.hidden, work, parallel,
        lambda share: target_ends(spec, share.rows, share.head_rows, parallel),
        state_copies,
    )


def drafter_pass(
    drafter: Drafter, work: Work, parallel: Parallel, *, later: bool = False, times: int = 1
) -> Pass:
    """A drafter over `work`: join projection, its layers, its output head."""
    name = "draft."
    return Pass(
        "draft", name, drafter.layers, drafter.hidden, work, parallel,
        lambda share: drafter_ends(
            drafter, share.rows, share.head_rows, parallel, name, later=later
        ),
        0.0, later, times,
    )


def early_exit_pass(
    spec: ModelSpec,
    layers: Sequence[LayerGroup],
    work: Work,
    parallel: Parallel,
    *,
    later: bool = False,
    times: int = 1,
) -> Pass:
    """The target's first `layers` as its own drafter, with the target's output head."""
    name = "draft."
    return Pass(
        "draft", name, layers, spec.hidden, work, parallel,
        lambda share: ([], head_ops(
            spec.hidden, spec.vocab, share.head_rows, target_head(spec), parallel, name
        )),
        0.0, later, times,
    )


def pass_ops(run: Pass, kv_dtype: str, routing: Routing) -> list[OpCost]:
    """Every call of one pass, in order of execution."""
    share = attention_share(run.work, run.parallel)
    first, last = run.ends(share)
    ops = list(first)
    for group in run.layers:
        before, after = run.rows_of(group, share, routing)
        ops += before
        ops += run.context_of(group, share, kv_dtype)
        ops += after
    return ops + last

"""The state of one replica, by name: what the step loop reads and writes.

The loop (`step.run`) runs from one source as plain Python or compiled (`to_c`). Plain, the state is
the objects below, lists and numpy arrays. Compiled, the same fields lie in C structures made from
these classes (`structs`), which the driver and the machine code see alike. A field is a number, an
object, or a list or array of either; `structs.kind_of` knows which types may stand here.

Lengths are tokens, KV memory is counted in blocks, times are seconds. Requests inside the replica
are known by the number of their slot.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

# Arrays by number of dimensions, as the compiler must know it.
Ints = Annotated[NDArray[np.int64], 1]
Ints2 = Annotated[NDArray[np.int64], 2]
Floats = Annotated[NDArray[np.float64], 1]
Floats2 = Annotated[NDArray[np.float64], 2]
Floats3 = Annotated[NDArray[np.float64], 3]
Floats4 = Annotated[NDArray[np.float64], 4]
Draws = Annotated[NDArray[np.uint8], 1]

# --- values of fields -----------------------------------------------------------------------
# Core.pricing: interpolate, ask the cost function at each step with prompts, at each step
INTERPOLATED, EXACT_MIXED, EXACT = range(3)
# Last axis of the tables of steps with prompts: seconds without waiting for launches; by how much
# the device is slower than the launches. In `prompt_s` each at the first and the last of a cell.
WORK, LEAD = range(2)
# Core.stage
BOUNDARY, UNDECIDED, UNPRICED, IN_FLIGHT = range(4)
# Slot.where
NOWHERE, WAITING, IN_PREFILL, DECODING, SENDING = range(5)
# Rows.state; a finished request lingers for the step that was planned before its end was known
LIVE, LINGERING, GONE = range(3)

NO_DRAFT = 255  # in Core.accept: the step has no draft
NO_NODE = -1  # also the key of blocks whose content nobody will ask for
ROOT = 0  # serial before the first piece of a prompt

# --- why `run` returns ----------------------------------------------------------------------
(
    RAN_TO_FLIGHT,  # a step is in flight and ends after the horizon
    RAN_TO_FINISH,  # a request finished and somebody waits for it
    RAN_IDLE,  # nothing to do
    RAN_TO_ARRIVAL,  # nothing to do before a request leaves the front end
    RAN_STUCK,  # requests wait, none runs, none can be admitted
    NEED_POLICY,  # how many tokens to draft in the planned step
    NEED_PRICE,
    NEED_DRAWS,
    NEED_LOG,
    NEED_NODES,
    NEED_FEED,
) = range(11)


@dataclass(slots=True)
class StepRules:
    """What does not change during a run; named as in `EngineRules` where it stands there."""

    max_num_seqs: int = 0  # running requests, decoding and in prefill
    max_num_batched_tokens: int = 0
    block_size: int = 0
    num_kv_blocks: int = 0
    full_blocks: int = 1  # per block_size tokens, see `config.BlockCosts`, with the next four
    window_blocks: int = 0
    window_tokens: int = 0
    state_blocks: int = 0
    keeps_last_window: bool = False
    segment: int = 1  # units of block_size tokens in one node of a window (see `window`)
    window_cap: int = 0  # most units of a window that admission asks for
    lookahead: int = 0  # slots reserved behind the scheduled tokens
    watermark_blocks: int = 0  # left free by admission
    num_speculative_tokens: int = 0
    verify_tokens: int = 0  # per request; 0: 1 + drafts
    readback_lag_steps: int = 0
    plan_ahead: bool = False
    prefix_caching: bool = False
    drop_last_cached_block: bool = False
    prefill_first: bool = False
    groups: int = 1  # of attention
    chunked_prefill: bool = False
    reserve_full_isl: bool = False
    preempt_fewest_tokens: bool = False  # else the request admitted last
    draws: int = 0  # entries of `Core.accept` per slot
    draws_skip: bool = False  # some verify steps carry no draft
    adaptive: bool = False
    asks_policy: bool = False  # a policy outside decides on every draft (`policies`)
    ragged: bool = False  # drafts of a step may differ by request (`Rows.depth`)
    hides_launches: bool = False  # of prompts, behind the step before (`latency.launches`)
    log_capacity: int = 0
    gap_capacity: int = 0
    stop_on_finish: bool = False  # come back after each finished request: somebody waits for it
    supplied: bool = False  # a closed loop sends a request for each that finishes (`standby`)
    front_end_s: float = 0.0  # from the client to the scheduler, for a loop inside the engine
    warmup_s: float = 0.0  # requests sent from here on are measured
    stall_s: float = 0.0  # a gap longer than this is a stall
    send_token_s: float = 0.0  # of the link, for a token of a prompt that is handed over
    send_by_chunk: bool = False  # else when the whole prompt is computed
    reserve_min: float = 0.0
    reserve_decay: float = 0.0  # per decode step


@dataclass(slots=True)
class Slot:
    """A request inside the replica. While it decodes, its row holds what changes in each step."""

    request_id: int = 0
    prompt_tokens: int = 0
    requested_tokens: int = 0  # output
    target: int = 0  # tokens to compute before decoding: prompt; after preemption also the output
    computed: int = 0
    remaining: int = 0
    held: int = 0  # units of block_size tokens, shared ones included
    private: int = 0  # units whose blocks of full layers no other request can use
    passed: int = 0  # units of which windows need nothing any more
    shown: int = 0  # units up to which blocks of windows are nodes; further ones are its own
    cached_tokens: int = 0  # prompt tokens found in the cache at the first admission
    draw: int = 0  # position in `Core.accept`
    draw_block: int = 0  # which block of draws is loaded
    depth: int = 0  # drafts proposed at the end of its prompt, where they differ by request
    verify_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    chunks: int = 0
    run_start: int = 0  # emit step from which it got tokens in every step
    stalled: int = 0
    stalls: int = 0
    stall_mark: int = 0
    preemptions: int = 0
    first_piece: int = 0
    pieces: int = 0
    grows: int = 0
    measured: int = 0
    sends: int = 0  # the request is handed over when its prompt is complete
    dropped: int = 0  # by the client or a failure; its place is given up at the next chance
    where: int = NOWHERE
    session: int = 0
    turn: int = 0
    attempts: int = 0
    arrival_s: float = -1.0
    scheduled_s: float = -1.0
    first_token_s: float = -1.0
    last_token_s: float = -1.0
    end_s: float = -1.0
    ready_s: float = -1.0  # in the engine's queue from here on
    send_rest_s: float = 0.0  # of the link, for what does not grow with every token
    sent_s: float = -1.0  # when the link is through with what is computed of the prompt


@dataclass(slots=True)
class Ring:
    """A queue of slots in a ring buffer."""

    slots: list[int]
    head: int = 0
    count: int = 0


@dataclass(slots=True)
class SlotList:
    """The first `count` entries are slots."""

    slots: list[int]
    count: int = 0


def push(ring: Ring, slot: int) -> None:
    """Add a slot at the end of the queue."""
    tail = ring.head + ring.count
    size = len(ring.slots)
    ring.slots[tail if tail < size else tail - size] = slot
    ring.count += 1


def push_front(ring: Ring, slot: int) -> None:
    ring.head = (ring.head if ring.head > 0 else len(ring.slots)) - 1
    ring.slots[ring.head] = slot
    ring.count += 1


def pop(ring: Ring) -> int:
    """Take the first slot of the queue, which is not empty."""
    slot = ring.slots[ring.head]
    ring.head = 0 if ring.head + 1 == len(ring.slots) else ring.head + 1
    ring.count -= 1
    return slot


def append(some: SlotList, slot: int) -> None:
    some.slots[some.count] = slot
    some.count += 1


def drain(some: SlotList) -> list[int]:
    """Take out all slots."""
    if some.count == 0:
        return []
    taken = [int(slot) for slot in some.slots[: some.count]]
    some.count = 0
    return taken


@dataclass(slots=True)
class Rows:
    """Decoding requests in the order they were admitted: one column each of `table`, whose rows
    are the other fields."""

    table: Ints2
    gains: Ints2  # accepted, draw, verify_steps, drafted: advance together (`rows.emit_rows`)
    slot: Ints
    remaining: Ints
    computed: Ints
    held: Ints
    accepted: Ints
    draw: Ints
    verify_steps: Ints
    drafted: Ints
    state: Ints
    stalled: Ints
    depth: Ints  # drafts verified in the coming step, where they differ by request
    next_depth: Ints  # proposed in the step being run

    @classmethod
    def empty(cls, most: int) -> "Rows":
        """Room for `most` requests."""
        table = np.zeros((12, most), dtype=np.int64)
        return cls(table, table[4:8], *table)


@dataclass(slots=True)
class StepLog:
    """What the steps did, one entry each."""

    start_s: Floats
    end_s: Floats
    rows: Ints  # decoding requests
    width: Ints  # tokens of each
    context: Ints  # cached tokens of all of them
    new: Ints  # prompt tokens
    chunks: Ints
    span_work: Ints  # tokens that the prompt tokens attend to, summed
    next_drafts: Ints
    waiting: Ints
    held: Ints  # blocks, by the gauge
    emits: Ints  # whether decoding requests got tokens
    out: Ints  # tokens given out at the end of the step

    @classmethod
    def empty(cls, steps: int) -> "StepLog":
        count = len(fields(cls)) - 2
        return cls(np.zeros(steps), np.zeros(steps), *np.zeros((count, steps), dtype=np.int64))


@dataclass(slots=True)
class Chunk:
    """Prompt tokens of a slot that are computed in the planned step, after `cached` ones."""

    slot: int = 0
    new: int = 0
    cached: int = 0


@dataclass(slots=True)
class Node:
    """A piece of prompt content of which the first `units` are present (see `kv`)."""

    key: int = 0
    serial: int = 0  # unlike the node's number never used again
    parent: int = 0  # serial of the piece before
    above: int = 0  # node of the piece before, while in use
    units: int = 0
    blocks: int = 0  # of memory
    users: int = 0
    before: int = 0
    after: int = 0
    chain: int = 0  # next node of the same bucket


@dataclass(slots=True)
class PrefixCache:
    """Nodes, the queue of those that no request uses, and the hash table to find them by."""

    nodes: list[Node]
    buckets: list[int]  # heads of the hash chains
    piece_key: list[int]  # content pieces of prompts, those of a request side by side
    piece_end: list[int]  # tokens of the prompt up to the piece's end
    queue_first: int = NO_NODE
    queue_last: int = NO_NODE
    unused_first: int = NO_NODE  # head of the list of nodes that stand for nothing
    unused: int = 0  # how many, without those kept back
    serial: int = 0  # of the newest node
    most_pieces: int = 0  # of one prompt
    matched_unused: int = 0  # result of `match_prefix`: unused blocks that admission would use


@dataclass(slots=True)
class Prices:
    """Tables of step times (see `price`)."""

    tier: list[list[int]]  # [verify drafts][next drafts] -> index into the tables, or -1
    context: list[float]  # mean cached tokens per decoding sequence, nodes of the next two tables
    cells: list[float]  # first tokens of the cells of `prompt_s`, and where the last ends
    new: list[float]  # prompt tokens, nodes of the tables below, each with one of the next three
    seqs: list[float]
    chunks: list[float]
    cached: list[float]  # before each chunk
    decode_s: Floats3  # [tier, sequences, context]; NaN: not priced yet
    beside_s: Floats3  # [tier, seqs, context]: the same beside a short prompt, without its wait
    prompt_s: Floats3  # [plane, cell, 2 * PART + end]: one prompt chunk beside some sequences
    # [tier, node, new, PART]: what sequences from the node below on, further chunks, and cached
    # tokens before them add to it. Sequences are at node `mixed_at` of the context.
    by_seqs_s: Floats4
    by_chunks_s: Floats4  # by plane in place of tier: who runs beside them matters to experts
    by_cached_s: Floats4
    mixed_at: int = 0


@dataclass(slots=True)
class Core:
    """All state of one replica."""

    rules: StepRules
    slots: list[Slot]
    rows: Rows
    log: StepLog
    cache: PrefixCache
    prices: Prices
    waiting: Ring
    standby: Ring  # requests that enter the queue one by one as others finish
    coming: Ring  # requests on their way through the front end, in order
    prefill: SlotList  # in the order they were admitted
    picked: Ints  # rows that a function of `rows` has picked out
    finished: SlotList  # their last token came (or they were dropped), for the driver to collect
    freed: SlotList  # nothing refers to them any more
    chunks: list[Chunk]  # of the step being run
    drafts_by_batch: list[int]  # drafts to propose by number of scheduled requests
    lanes: list[float]  # when each link to the decode replicas is free
    adapt: list[list[int]]  # [[lowest batch, drafts...]] of adaptive drafts, padded with -1
    # Rows that took part in verify steps since the policy was asked last, by accepted drafts; and
    # those of them whose drafts were all accepted.
    accepted_rows: Ints
    complete_rows: Ints
    accept: Draws  # [slot * draws + draw]: accepted drafts of the coming verify steps
    cover: Ints  # [decode step]: change in the number of streams whose gap this step ends
    gaps: Floats  # gaps between tokens of requests that sat out at least one step
    stage: int = BOUNDARY
    pricing: int = INTERPOLATED
    priced: bool = False  # the driver has set the price of the planned step
    unchecked: int = 0  # steps with prompts interpolated since the last one that was checked
    check_after: int = 0  # how many may be
    steps: int = 0  # begun
    emit_step: int = 0  # steps that gave every decoding request its tokens
    n_rows: int = 0
    lingering: int = 0
    sending: int = 0  # prompts whose blocks are held until their cache is sent
    sitting_out: int = 0  # decoding requests that took no part in the last step
    supply_left: bool = False  # the closed loop has more than stands in `standby`
    backlog: int = 0  # requests that wait outside for a slot
    free_blocks: int = 0  # not held by any request; cached ones count as free
    admission_blocked: bool = False  # the first waiting request does not fit before a release
    preempted: int = 0  # in this step
    drafts: int = 0  # verified in the coming step, the most of any request
    next_drafts: int = 0  # proposed in the step being run
    unloaded: bool = False  # the drafter is not in memory
    undecided: bool = False  # `next_drafts` is the most a policy may ask for
    context: int = 0  # cached tokens of all decoding requests
    scheduled: int = 0  # decoding requests in the step being run
    verified: int = 0  # tokens they take part with
    n_chunks: int = 0
    new_tokens: int = 0  # prompt tokens in the step being run
    span_work: int = 0  # sum over them of the tokens each attends to
    safe_draws: int = 0  # verify steps before a row could run out of draws
    step_accepted: int = 0
    least_left: int = 0  # tokens left to write of the row with the fewest, or less
    logged: int = 0
    cover_from: int = -1  # emit step of cover[0]
    n_gaps: int = 0
    preemptions: int = 0
    stall_steps: int = 0  # decode steps longer than the stall limit so far
    tokens: int = 0  # given out
    gauge: int = 0  # blocks held at the last reading of vLLM's gauge
    held_max: int = 0  # largest reading
    waiting_max: int = 0
    adapt_steps: int = 0
    adapt_k: int = 0
    accepted_mean: float = 0.0  # accepted drafts per request and step, smoothed
    clock_s: float = 0.0  # where this replica is; ahead of the run's clock while steps are taken
    step_s: float = 0.0  # duration of the step being run
    idle_s: float = 0.0  # of it, waiting for launches that could be hidden behind the step before
    free_s: float = 0.0  # in which the host can launch the next one
    before_s: float = 0.0  # `free_s` of the step before it; 0 if none had planned it ahead
    end_s: float = 0.0  # when it ends
    last_emit_s: float = 0.0  # when the last step ended that gave every decoding request tokens
    planned_s: float = field(default=np.inf)  # who is ready by then can run in the coming step
    reserve: float = 0.0  # share of the outputs still to come that admission keeps free (SGLang)

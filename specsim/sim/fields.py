"""Layout of a replica's state: which number sits where in the arrays of `Core`.

The scheduler runs either as plain Python (state in lists and numpy rows) or compiled by numba
(state in numpy arrays); both need state without objects. A name here is an index. Lengths are
tokens, KV memory is counted in blocks, times are seconds.
"""

from typing import Any, NamedTuple


class Core(NamedTuple):
    """All state of one replica. int: list or int64 array, float: list or float64 array.

    ints, flts      scalars, see the I_ and X_ names
    slot            [slot][slot field] of every request inside the replica
    slot_time       [slot][time field]
    rows            int64 [row field, row]: decoding requests in the order they were admitted
    prefill         slots in prefill, in the order they were admitted
    wait            ring buffer of waiting slots
    standby         ring buffer of slots that enter the queue one by one as others finish
    coming          ring buffer of slots on their way through the front end, in order
    finished        slots whose last token came (or that were dropped), for the driver to collect
    freed           slots that nothing refers to any more
    accept          uint8 or int64 [slot * draws + draw]: accepted drafts of the coming verify steps
    span_key, span_end   content pieces of prompts: key, and tokens up to the piece's end
    node            [node field][node] of the prefix cache
    bucket          heads of the cache's hash chains
    chunk           [chunk field][i] of the prompt chunks of the step being run
    k_table         drafts to propose by number of scheduled requests
    adapt           [[lowest batch, steps...]] of an adaptive draft length, padded with -1
    tier            [verify drafts][next drafts] -> index into the tables, -1: not priced yet
    grid_ctx        mean cached tokens per decoding sequence, nodes of the decode table
    grid_seqs, grid_tokens, grid_span   nodes of the mixed table (see `price`)
    decode_s        float64 [tier, sequences, ctx]; NaN: not priced yet
    mixed_s         float64 [tier, seqs, tokens, span], at context node I_AT_NODE
    log_s           float64 [start and end, step]
    log             int64 [log field, step]
    cover           int64 [decode step]: change in the number of streams whose gap this step ends
    gaps            gaps between tokens of requests that sat out at least one step
    """

    ints: Any
    flts: Any
    slot: Any
    slot_time: Any
    rows: Any
    prefill: Any
    wait: Any
    standby: Any
    coming: Any
    finished: Any
    freed: Any
    accept: Any
    span_key: Any
    span_end: Any
    node: Any
    bucket: Any
    chunk: Any
    k_table: Any
    adapt: Any
    tier: Any
    grid_ctx: Any
    grid_seqs: Any
    grid_tokens: Any
    grid_span: Any
    decode_s: Any
    mixed_s: Any
    log_s: Any
    log: Any
    cover: Any
    gaps: Any


# --- ints: rules, constant during a run -----------------------------------------------------
(
    I_MAX_SEQS,  # running requests, decoding and in prefill
    I_BUDGET,  # tokens per step
    I_BLOCK,  # tokens per KV block
    I_BLOCKS,  # KV blocks of the replica
    I_LOOKAHEAD,  # slots reserved behind the scheduled tokens
    I_WATERMARK,  # blocks that admission leaves free
    I_K_MAX,
    I_WIDTH,  # tokens verified per request; 0: 1 + drafts
    I_LAG,  # steps a finished request still occupies (asynchronous scheduling)
    I_AHEAD,  # a step is planned when the one before it starts
    I_CACHING,
    I_DROP_LAST,  # EAGLE-like drafters recompute the last cached block
    I_PREFILL_FIRST,  # prompts run in steps of their own, before decoding
    I_CHUNKED,
    I_RESERVE_FULL,  # the whole prompt must fit at admission
    I_CHUNK_MAX,  # longest chunk of one prompt; 0: no limit
    I_VICTIM_FEWEST,  # preempt the last admitted (0) or the one with the fewest tokens (1)
    I_DRAWS,  # entries of `accept` per slot
    I_BY_POSITION,  # draws are indexed by output position instead of verify step
    I_SKIPS,  # some verify steps carry no draft
    I_ADAPTIVE,
    I_STRETCHES,  # decode steps may be taken many at a time (`stretch`)
    I_EXACT,  # price every step by the cost function itself
    I_AT_NODE,  # node of grid_ctx that the mixed table is for
    I_LOG_CAP,
    I_GAP_CAP,
    I_STOP_ON_FINISH,  # come back after each finished request: somebody waits for it
    # --- state
    I_STAGE,
    I_STEP,  # steps begun
    I_EMIT_STEP,  # steps that gave every decoding request its tokens
    I_N_ROWS,
    I_N_PREFILL,
    I_N_ZOMBIES,
    I_N_STALLED,  # decoding requests that sat out the last step
    I_W_HEAD,
    I_W_LEN,
    I_SUPPLIED,  # a closed loop sends a request for each that finishes (`standby`)
    I_S_HEAD,
    I_S_LEN,
    I_C_HEAD,
    I_C_LEN,
    I_S_MORE,  # the supply is not exhausted
    I_BACKLOG,  # requests that wait outside for a slot
    I_N_FINISHED,
    I_N_FREED,
    I_FREE,  # blocks not held by any request; cached ones count as free
    I_BLOCKED,  # the first waiting request cannot be admitted before something is freed
    I_PREEMPTED,  # in this step
    I_K_NOW,  # drafts verified in the coming step
    I_K_NEXT,  # drafts proposed in the step being run
    I_CONTEXT,  # cached tokens of all decoding requests
    I_SCHEDULED,  # decoding requests in the step being run
    I_N_CHUNKS,
    I_NEW_TOKENS,  # prompt tokens in the step being run
    I_SPAN_WORK,  # sum over them of the tokens each attends to
    I_SAFE_DRAWS,  # verify steps before a row could run out of draws
    I_STEP_ACCEPTED,
    I_LEAST_LEFT,  # tokens left to write of the row with the fewest, or less
    I_LOG_N,
    I_EMIT_BASE,  # emit step of cover[0]
    I_N_GAPS,
    I_N_PREEMPTIONS,
    I_STALL_STEPS,  # decode steps longer than the stall limit so far
    I_TOKENS,  # tokens given out
    I_HELD_MAX,
    I_WAIT_MAX,
    I_LRU_HEAD,
    I_LRU_TAIL,
    I_NODE_FREE,  # head of the list of unused nodes
    I_NODES_FREE,  # how many, without those kept back
    I_SERIAL,  # serial of the next node
    I_SPAN_MAX,  # pieces of the prompt with the most
    I_MATCH_FREE,  # result of `match`: unpinned blocks that admission would pin
    I_ADAPT_STEPS,
    I_ADAPT_K,
    I_LENGTH,
) = range(76)

# --- flts -----------------------------------------------------------------------------------
(
    X_CLOCK_S,  # where this replica is; ahead of the run's clock within a stretch
    X_STEP_S,  # duration of the step being run
    X_END_S,  # when it ends
    X_LAST_EMIT_S,  # when the last step ended that gave every decoding request its tokens
    X_FRONT_END_S,  # from the client to the scheduler, for a closed loop inside the engine
    X_WARM_UP_S,  # requests sent from here on are measured
    X_STALL_S,  # a gap longer than this is a stall
    X_RESERVE,  # share of the remaining outputs that admission keeps free (SGLang)
    X_RESERVE_MIN,
    X_RESERVE_DECAY,  # per decode step
    X_EMA,  # accepted drafts per request and step, smoothed
    X_PLANNED_S,  # requests ready by then take part in the coming step (I_AHEAD)
    X_LENGTH,
) = range(13)

# I_EXACT: interpolate, ask the cost function at each step, it has been asked for this step
EXACT_OFF, EXACT_ASK, EXACT_GIVEN = range(3)

# --- stages of a step -----------------------------------------------------------------------
STAGE_BOUNDARY, STAGE_UNPRICED, STAGE_IN_FLIGHT = range(3)

# --- slot fields ----------------------------------------------------------------------------
(
    S_ID,
    S_PROMPT,
    S_OUTPUT,
    S_TARGET,  # tokens to compute before decoding (prompt; after preemption also the output)
    S_COMPUTED,
    S_REMAINING,
    S_HELD,  # blocks, shared ones included
    S_PRIVATE,  # blocks no other request can use
    S_CACHED,  # prompt tokens found in the cache at the first admission
    S_DRAW,  # position in `accept`
    S_DRAW_BLOCK,  # which block of draws is loaded
    S_VERIFY_STEPS,
    S_DRAFTED,
    S_ACCEPTED,
    S_CHUNKS,
    S_RUN_START,  # emit step from which it got tokens in every step
    S_STALLED,
    S_STALLS,
    S_STALL_MARK,
    S_PREEMPTIONS,
    S_SPAN,
    S_N_SPANS,
    S_GROWS,
    S_MEASURED,
    S_DROPPED,  # by the client or a failure; its place is given up at the next chance
    S_WHERE,
    S_SESSION,
    S_TURN,
    S_ATTEMPTS,
    S_LENGTH,
) = range(30)

WHERE_NOWHERE, WHERE_WAITING, WHERE_PREFILL, WHERE_DECODE = range(4)

# --- slot times -----------------------------------------------------------------------------
T_ARRIVAL, T_SCHEDULED, T_FIRST, T_LAST, T_END, T_READY, T_LENGTH = range(7)

# --- row fields -----------------------------------------------------------------------------
(
    R_SLOT,
    R_REMAINING,
    R_COMPUTED,
    R_HELD,
    R_ACCEPTED,
    R_DRAW,  # this and the next two advance together (`rows.emit_rows`)
    R_VERIFY_STEPS,
    R_DRAFTED,
    R_ZOMBIE,
    R_STALLED,
    R_LENGTH,
) = range(11)
ROW_LIVE, ROW_ZOMBIE, ROW_GONE = range(3)

# --- chunk, log, node fields ----------------------------------------------------------------
C_SLOT, C_NEW, C_CACHED, C_LENGTH = range(4)
(
    L_ROWS,  # decoding requests
    L_WIDTH,  # tokens of each
    L_CONTEXT,  # cached tokens of all of them
    L_NEW,  # prompt tokens
    L_CHUNKS,
    L_SPAN_WORK,  # tokens that the prompt tokens attend to, summed
    L_NEXT_DRAFTS,
    L_WAITING,
    L_HELD,  # blocks
    L_EMIT,
    L_OUT,  # tokens given out at the end of the step
    L_LENGTH,
) = range(12)
(
    N_KEY,
    N_SERIAL,  # unlike the node's number never used again
    N_PARENT,  # serial of the piece before
    N_UP,  # node of the piece before, while in use
    N_BLOCKS,
    N_USERS,
    N_BEFORE,
    N_AFTER,
    N_CHAIN,
    N_LENGTH,
) = range(10)

# --- why `run` returns ----------------------------------------------------------------------
(
    RAN_TO_FLIGHT,  # a step is in flight and ends after the horizon
    RAN_TO_FINISH,  # a request finished and somebody waits for it
    RAN_IDLE,  # nothing to do
    RAN_TO_ARRIVAL,  # nothing to do before a request leaves the front end
    RAN_STUCK,  # requests wait, none runs, none can be admitted
    NEED_PRICE,
    NEED_DRAWS,
    NEED_LOG,
    NEED_NODES,
    NEED_FEED,
) = range(10)

NO_DRAFT = 255
NO_NODE = -1
ROOT = 0  # serial before the first piece

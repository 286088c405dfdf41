"""Overheads: seconds that an engine's host adds to the kernels of a step.

They are the only fitted numbers of an engine (`validation/scripts/fit_engines.py`); what stands for
them in `engines/*.toml` names its source.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Overheads:
    """Wall seconds that the host adds, beyond the kernels of `specsim.roofline`.

    step_s: every step: scheduling, input preparation, output handling not hidden by the device.
    seq_s: the same per decoding sequence.
    layer_s: per layer and step: small kernels and gaps that the op list does not hold.
    sync_s: per sum over 8 GPUs of a step, beyond its transfer: waiting for the last GPU to arrive;
        for other numbers of them see `latency.collectives.wait_share`.
    spec_step_s: once per step while speculation is on (rejection sampler, drafter metadata).
    spec_seq_s: the same per decoding sequence.
    draft_pass_s: between draft passes that replay a CUDA graph.
    host_pass_s: what the host needs for a draft pass that no single graph holds: metadata and slots
        made anew, attention launched by hand. It binds where the device is faster.
    eager_kernel_s: launch time of one kernel outside any CUDA graph.
    prompt_op_s: what the host needs for one op of the list in a pass that holds prompts and runs
        outside CUDA graphs; it binds only when the device is faster. An op stands for several
        launches (quantisation, layout, routing) and the Python around them.
    eager_op_s: the same where graphs and compiled code are switched off (--enforce-eager).
    mixed_step_s: extra of a step that holds prefill tokens.
    request_s: front end per request before its first token (HTTP, tokeniser, first scheduling).
    host_step_s: what the host needs to prepare a step; it binds only when the device is faster.
    lockstep_s: of that, what every step pays where the next one is not planned ahead.
    ngram_seq_s: lookup of one sequence on the host; ngram_token_s: of an n-gram, more per token.
    tree_pass_s: extra of a draft pass that keeps several branches (top-k, mask building).
    tree_layer_s: per layer of a step that verifies trees: attention to the cache and to the masked
        branches are two calls, whose results are merged.
    wide_layer_s: per layer of a step in which sequences bring more than one row each: kernels that
        a single row does without (see validation/reports/width_jump.md).
    """

    step_s: float = 0.0
    seq_s: float = 0.0
    layer_s: float = 0.0
    sync_s: float = 0.0
    spec_step_s: float = 0.0
    spec_seq_s: float = 0.0
    draft_pass_s: float = 0.0
    eager_kernel_s: float = 0.0
    prompt_op_s: float = 0.0
    eager_op_s: float = 0.0
    mixed_step_s: float = 0.0
    request_s: float = 0.0
    host_step_s: float = 0.0
    ngram_seq_s: float = 0.0
    ngram_token_s: float = 0.0
    tree_pass_s: float = 0.0
    host_pass_s: float = 0.0
    lockstep_s: float = 0.0
    tree_layer_s: float = 0.0
    wide_layer_s: float = 0.0

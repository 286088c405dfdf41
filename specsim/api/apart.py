"""Prefill and decoding on replicas apart, from the options to what is predicted or simulated."""

from dataclasses import replace

from specsim.analytic.apart import Apart
from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.latency.kv_link import CHUNKS, link_rate
from specsim.options.apart import ApartOptions


def apart_of(options: ApartOptions, system: System) -> Apart | None:
    """What the options ask for beside the decode replicas' `system`; None: nothing. SpecSimError
    for a link that is not known, and where a prefill replica does not hold the model."""
    if options.prefill_replicas is None or options.decode_replicas is None:
        return None
    if system.parallel.pp > 1:
        raise UsageError(
            f"--pp is {system.parallel.pp}, but replicas that only compute prompts or decode "
            "are not split into stages; leave out --pp or --prefill-replicas and --decode-replicas"
        )
    prefill = system
    if options.prefill_tp is not None and options.prefill_tp != system.parallel.tp:
        parallel = system.parallel
        if parallel.ep > 1 or parallel.attention_dp > 1:
            raise UsageError(
                f"--prefill-tp is {options.prefill_tp}, but with --ep or --attention-dp prefill "
                "replicas are split as the decode replicas are; leave it out"
            )
        setup = system.setup
        if setup.draft_tp > 1:
            setup = replace(setup, draft_tp=options.prefill_tp)
        prefill = system.with_(parallel=replace(parallel, tp=options.prefill_tp), setup=setup)
    apart = Apart(
        prefill, options.prefill_replicas, options.decode_replicas,
        link_rate(options.kv_link, system.profile), by_chunk=options.kv_transfer == CHUNKS,
    )
    _ = prefill.latency, apart.link  # refuse what does not fit, before anything is computed
    return apart

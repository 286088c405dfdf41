"""How a server is told what to accept: vLLM's synthetic acceptance, SGLang's simulated length."""

import shlex

from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.jsonable import json_text
from specsim.planning.flags import ServedNames, flags_of


def pinned_command(system: System, length: float, names: ServedNames) -> str:
    """'vLLM 0.25.1: vllm serve ...': the version and the command that start `system` with its
    acceptance length dictated, so that the cost of a step is measured without acceptance in the
    way. UsageError where the version has no such switch."""
    server, asked = system.engine.server, names.version or system.engine.version
    flags, why = flags_of(system, names)
    if flags is None:
        raise UsageError(why)
    if flags.speculative_config is not None and server.offers("synthetic_acceptance", asked):
        config = {**flags.speculative_config, "rejection_sample_method": "synthetic",
                  "synthetic_acceptance_length": length}
        return f"{flags.written_for}: {shlex.join([*flags.args[:-1], json_text(config)])}"
    if server.fixed_acceptance:
        return f"{flags.written_for}: {server.fixed_acceptance}={length:g} {flags.command}"
    raise UsageError(
        f"{server.label or system.engine.name} {asked} cannot be told what to accept; vLLM can "
        "from 0.25 on (not its CPU build), SGLang by SGLANG_SIMULATE_ACC_LEN"
    )

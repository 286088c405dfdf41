"""Which records a profile was fitted on, and which are left to judge it.

Kernel points and prompts (parts A to D, F, G) are what a fit may use. Whole steps and serving (E,
H) are kept to judge it, except a few steps that give the engine's own time per step (see
`calibrate.host`). A run is known by an id made from its header, which the fitted profile's kernel
tables name in their source line: so `specsim validate records` knows what a profile has seen.
"""

import hashlib
import re
from collections.abc import Iterable

from specsim.calibrate.records import Measurement, RunHeader
from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import json_text

FIT_PARTS = "ABCDFG"
_RUN = re.compile(r"run ([0-9a-f]{12})\b")


def run_id(run: RunHeader) -> str:
    """12 hexadecimal digits that tell runs apart: a run that is continued keeps its id."""
    text = json_text(run.identity(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def runs_seen(profile: HardwareProfile) -> set[str]:
    """Ids of the runs that the profile's kernel tables were fitted on."""
    return {found for table in profile.kernels.values() for found in _RUN.findall(table.source)}


def split_of(record: Measurement, seen: Iterable[str]) -> str:
    """'fitted' for a point that a fit of these runs used, else 'held-out'."""
    known = record.run is not None and run_id(record.run) in seen
    return "fitted" if known and record.part in FIT_PARTS else "held-out"

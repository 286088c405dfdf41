"""Results of foreign benchmark tools, read into one normal form.

    from specsim.formats.bench import read_bench
    runs = read_bench("result.json")          # a file or a folder; list of BenchRun

The format is recognised by what is in the file, never by its name. `record` defines the normal
form and what each quantity means; each other module knows one foreign format and says in its
docstring how that tool's names differ from it.
"""

from specsim.formats.bench.folder import read_bench, scan
from specsim.formats.bench.load import Scan
from specsim.formats.bench.record import (
    BenchAcceptance,
    BenchLoad,
    BenchRun,
    RequestRow,
    ServerArgs,
    ServerSide,
    Stat,
)

__all__ = [
    "BenchAcceptance",
    "BenchLoad",
    "BenchRun",
    "RequestRow",
    "Scan",
    "ServerArgs",
    "ServerSide",
    "Stat",
    "read_bench",
    "scan",
]

"""The charting library, packed into the page so that it opens offline.

plotly.js comes from the `plotly` package, compressed: 4.8 MB become 2 MB of base64, which the
browser unpacks. The page's policy admits scripts by their SHA-256 alone, so the library is hashed
as it will run, and nothing else can.
"""

import base64
import hashlib
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from specsim.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bundle:
    """packed: gzip in base64. digest: for the content policy. version: of the library."""

    packed: str
    digest: str
    version: str


@lru_cache(maxsize=1)
def plotly_bundle() -> Bundle:
    """plotly.js of the installed package; UsageError with the way out where it is missing."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError(
            "an HTML report needs plotly, which is not installed: pip install 'specsim-llm[report]'"
        ) from None
    source = get_plotlyjs()
    found = re.search(r"plotly\.js v([\w.]+)", source[:400])
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)  # 31: a gzip header without a date
    packed = packer.compress(source.encode()) + packer.flush()
    return Bundle(
        base64.b64encode(packed).decode("ascii"), sha256(source), found[1] if found else "unknown"
    )


def sha256(script: str) -> str:
    """A script as a content security policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def resource(name: str) -> str:
    """A file beside this module: the page's own script or style."""
    return (files("specsim.report.html") / name).read_text(encoding="utf-8")

"""What computes the figures: this version with its code and data, as one short name.

Workers elsewhere, and a journal that is gone on with, must be of the same build: another version
may compute other figures, and so may a checkout whose code or data were changed in between.
"""

import hashlib
import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

from specsim.data import data_root
from specsim.errors import ServerError, UsageError
from specsim.planning.executors.base import words
from specsim.version import __version__

DATA = ("engines", "hw_profiles", "catalog", "scenarios")


@cache
def build_id() -> str:
    """Version and digest of code and data, such as '0.1.0 (3f2a9c01be77)'."""
    code = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for root, pattern in ((code, "*.py"), *((data_root(name), "*") for name in DATA)):
        for path in sorted(root.rglob(pattern)):
            if path.is_file():
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:12]})"


def worker_build() -> str:
    """Runs on a worker. A plain function, as Ray wants them."""
    return build_id()


def check_builds(found: Iterable[str], place: str) -> None:
    """UsageError if any worker has another build than this machine."""
    others = sorted({build for build in found if build != build_id()})
    if others:
        raise UsageError(
            f"workers at {place} have specsim {', '.join(others)}, this machine has {build_id()}: "
            "figures could differ; install the same version everywhere"
        )


def package(name: str, title: str, scheme: str) -> ModuleType:
    """An optional package that runs the workers. UsageError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"--executor {scheme}:// needs {title}, which is not installed; "
            f"pip install 'specsim-llm[{scheme}]' or use --executor local"
        ) from None


def without_specsim(place: str, error: Exception) -> UsageError:
    """Workers that cannot say which build they have."""
    return UsageError(
        f"the workers of {place} cannot import specsim ({words(error)[:120]}); install "
        f"specsim-llm {__version__} on them"
    )


def lost(name: str, reason: str = "") -> ServerError:
    """The connection to a cluster is gone in the middle of a sweep."""
    return ServerError(
        f"the connection to {name} was lost{reason}; what was finished is kept: run the same "
        "command again to go on"
    )

"""Workers elsewhere must be of this version: another one may compute other figures."""

from collections.abc import Iterable

from specsim import __version__
from specsim.errors import UsageError


def worker_version() -> str:
    """Runs on a worker."""
    return __version__


def check_versions(found: Iterable[str], place: str) -> None:
    """UsageError if any worker has another version than this machine."""
    others = sorted({version for version in found if version != __version__})
    if others:
        raise UsageError(
            f"workers at {place} have specsim {', '.join(others)}, this machine has {__version__}: "
            "figures could differ; install the same version everywhere"
        )

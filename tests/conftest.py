"""What holds for all tests."""

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings
from thinned import examples

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: the tests that
# interrupt a run would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Cores are shared, and a pause is no failure.
settings.register_profile("specsim", max_examples=examples(100), deadline=None)
settings.load_profile("specsim")


def pytest_collection() -> None:
    """No garbage is looked for meanwhile: what collecting makes stays. It would take a third of it.
    """
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()  # nor is it gone through later
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """What the tests of a file leave behind is collected after it, and what then stays (prices and
    syntax trees that are remembered) is not gone through again: it was a tenth of the run."""
    done = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done

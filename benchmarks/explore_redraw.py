"""How long `specsim explore` takes from a change to the frame that shows it, in Chromium.

    python benchmarks/explore_redraw.py [--changes 100] [--pin]

Each change is an input event on one field, alternately k, GPU, weights, acceptance rate and output
tokens, so that no prediction is asked for twice. Times (User Timing, of the page itself) run from
the event: `answer` up to the server's, `redraw` up to the animation frame after the verdict and the
charts in view are drawn, `whole` until all four charts are. The first WARM_UP changes, in which the
browser compiles the charting library, are told apart. Milliseconds. Needs selenium, chromium and
chromedriver.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from chromium import open_browser, screen, until

WARM_UP = 10
CHANGE = """
const [name, text, done] = arguments;
performance.clearMeasures();
const field = document.getElementById("field-" + name);
field.value = text;
field.dispatchEvent(new Event("input", { bubbles: true }));
const took = (what) => (performance.getEntriesByName(what)[0] || {}).duration;
const timer = setInterval(() => {
  const fault = document.getElementById("fault").textContent;
  if (!took("whole") && !fault) return;
  clearInterval(timer);
  done([took("answer"), took("redraw"), took("whole"), fault]);
}, 20);
"""


def changes() -> Iterator[tuple[str, str]]:
    """(field, what is put into it), without end."""
    turn = 0
    while True:
        yield "k", str(1 + turn % 7)
        yield "gpu", ("h100-sxm", "h200-sxm", "b200")[turn % 3]
        yield "weights", ("fp8", "bf16", "nvfp4")[turn % 3]
        yield "acceptance_rate", f"{0.4 + 0.01 * (turn % 50):.2f}"
        yield "output_len", str(200 + 20 * turn)
        turn += 1


def told(name: str, times: Sequence[float]) -> str:
    ranked = sorted(times)
    return (f"{name:<7} median {statistics.median(ranked):.0f}, 90 % below "
            f"{ranked[int(0.9 * len(ranked))]:.0f}, worst {ranked[-1]:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--pin", action="store_true", help="with a second deployment beside it")
    asked = parser.parse_args()
    words = [sys.executable, "-m", "specsim", "explore", "qwen3.6-27b", "--no-browser"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as profile,
    ):
        assert server.stdout is not None
        browser = open_browser(Path(profile))
        try:
            browser.set_script_timeout(60)
            screen(browser, 1200, 900, False)
            browser.get(server.stdout.readline().split()[-1])
            until(browser, "+(document.documentElement.dataset.drawn || 0) === 1")
            if asked.pin:
                browser.execute_script("document.getElementById('pin').click()")
                until(browser, "+document.documentElement.dataset.drawn === 2")
            found: list[list[float]] = []
            for _, (name, text) in zip(range(WARM_UP + asked.changes), changes(), strict=False):
                *times, fault = browser.execute_async_script(CHANGE, name, text)
                if fault:
                    raise SystemExit(f"{name} = {text}: {fault}")
                found.append(times)
        finally:
            browser.quit()
            server.terminate()
    first, rest = found[:WARM_UP], found[WARM_UP:]
    print(f"{len(rest)} changes after {WARM_UP}, whose worst redraw took "
          f"{max(times[1] for times in first):.0f} ms")
    for name, times in zip(("answer", "redraw", "whole"), zip(*rest, strict=True), strict=True):
        print(told(name, times))


if __name__ == "__main__":
    main()

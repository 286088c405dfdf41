"""Fits the H200's kernel tables to measured kernels and writes what came out.

    python validation/scripts/fit_h200_kernels.py            # fit, write profile and report
    python validation/scripts/fit_h200_kernels.py --check    # fit, compare, write nothing

Reads validation/data/h200, writes the tables below the marker line of hw_profiles/h200-sxm.toml,
validation/reports/kernel_fit.json (scores and parameters) and kernel_fit.md (the same to read).
Nothing here is random: the same data and code give the same files.
"""

import os
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from common import PROFILES, REPORTS, write_json, write_text  # noqa: E402
from kernels import attention, comm, gemm, mla, moe, recurrent  # noqa: E402
from kernels.fitting import Fitted, run, with_table  # noqa: E402
from kernels.output import assumed_tables, profile_text, report, to_json  # noqa: E402

from specsim.hardware.store import load_profile  # noqa: E402

PROFILE = PROFILES / "h200-sxm.toml"
REPORT = REPORTS / "kernel_fit"
FAMILIES = (gemm, attention, mla, moe, recurrent, comm)


def main(check: bool) -> int:
    """0 when the files were written, or under --check when the profile holds these numbers."""
    profile = load_profile("h200-sxm")
    done: list[Fitted] = []
    for family in FAMILIES:
        for fit in family.fits():
            began = time.perf_counter()
            fitted = run(fit, profile)
            done.append(fitted)
            profile = with_table(profile, fit.name, fitted.params)
            held = fitted.held_out_rows if fitted.held_out_rows.n else fitted.fitted_rows
            sys.stdout.write(
                f"{fit.label:26s} median {held.median:6.1%}  p90 {held.p90:6.1%}  "
                f"bias {held.bias:+6.1%}  ({fitted.scheme}, {time.perf_counter() - began:.0f} s)\n"
            )
    text = profile_text(PROFILE.read_text(), done, assumed_tables(done))
    if check:
        same = text == PROFILE.read_text()
        sys.stdout.write("the profile holds these numbers\n" if same else "the profile differs\n")
        return 0 if same else 1
    write_text(PROFILE, text)
    document = to_json(done)
    write_json(REPORT.with_suffix(".json"), document)
    write_text(REPORT.with_suffix(".md"), report(done))
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

"""The GPU of this machine, as its driver names it."""

import subprocess

TIMEOUT_S = 5.0


def local_gpu() -> str:
    """The first GPU's name by nvidia-smi; '' where there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.partition("\n")[0].strip()[:100]

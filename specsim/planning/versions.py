"""Versions of engines as users write them, and methods that a later version lost.

Read from the sources of vLLM 0.25.1 and 0.33.0 (config/speculative.py, Apache-2.0).
"""

import re

MEDUSA_UNTIL = (0, 33)  # medusa is in 0.25.1 and gone in 0.33.0


def asked_version(text: str) -> str | None:
    """The version in an engine as users write it ('vllm==0.33.0', 'sglang 0.5'), None without."""
    match = re.search(r"(?:==|@|\s)\s*v?(\d+(?:\.\d+)*)", text)
    return match.group(1) if match else None


def version_key(text: str) -> tuple[int, ...]:
    """'0.25.1' as (0, 25, 1); anything behind the numbers is left out."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3])


def gone(engine: str, version: str | None, method: str) -> str:
    """Why a version newer than the engine's profile does not have a method; '' where it has."""
    if engine == "vllm" and method == "medusa" and version_key(version or "") >= MEDUSA_UNTIL:
        return f"vLLM {version} has no method 'medusa' any more (0.25.1 has it)"
    return ""

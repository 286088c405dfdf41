"""What a run was measured on: device, software, clocks, version of the code.

Nothing here raises: what the machine does not tell is left out.
"""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu",
          "power.draw", "power.limit", "ecc.mode.current")
_CPU_FILES = Path("/sys/devices/system/cpu")


def device_facts(device: torch.device) -> dict[str, object]:
    """kind, name, memory_bytes, and cores and caches of a CPU or SMs, driver, clocks of a GPU."""
    return _cuda_facts(device) if device.type == "cuda" else _cpu_facts()


def _cpu_facts() -> dict[str, object]:
    memory = _fields(Path("/proc/meminfo")).get("MemTotal", "0 kB")
    facts: dict[str, object] = {
        "kind": "cpu", "name": _cpu_name(), "cores": os.cpu_count() or 1,
        "memory_bytes": int(memory.split()[0]) * 1024, "caches": _caches(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }
    facts = {name: value for name, value in facts.items() if value}
    if hasattr(os, "getloadavg"):
        facts["load_average"] = round(os.getloadavg()[0], 2)
    return facts


def _cpu_name() -> str:
    """Model name with family and stepping, which tell apart virtual machines' vague names."""
    cpu = _fields(Path("/proc/cpuinfo"))
    name = cpu.get("model name") or platform.processor() or platform.machine()
    if not cpu.get("model"):
        return name
    family, stepping = cpu.get("cpu family", ""), cpu.get("stepping", "")
    return f"{name} (family {family} model {cpu['model']} stepping {stepping})"


def _fields(path: Path) -> dict[str, str]:
    """The first value of each 'name: value' line of a file."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        if value.strip():
            found.setdefault(name.strip(), value.strip())
    return found


def _caches() -> dict[str, str]:
    """Size of each cache level as the system states it, of the first core."""
    out = {}
    for index in sorted((_CPU_FILES / "cpu0" / "cache").glob("index*")):
        level, kind = _text(index / "level").strip(), _text(index / "type").strip()
        if kind != "Instruction" and level:
            out[f"L{level}"] = _text(index / "size").strip()
    return out


def _cuda_facts(device: torch.device) -> dict[str, object]:
    index = device.index or 0
    props = torch.cuda.get_device_properties(index)
    return {
        "kind": "cuda",
        "name": props.name,
        "memory_bytes": props.total_memory,
        "sms": props.multi_processor_count,
        "capability": f"{props.major}.{props.minor}",
        "l2_bytes": getattr(props, "L2_cache_size", 0),
        **clocks(device),
    }


def clocks(device: torch.device) -> dict[str, str]:
    """Driver, clocks, temperature and power as nvidia-smi states them; nothing without it."""
    if device.type != "cuda":
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader",
               f"--id={device.index or 0}"]
    line = _output(command)
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_QUERY):
        return {}
    return {name.replace(".", "_"): value for name, value in zip(_QUERY, values, strict=True)}


def software() -> dict[str, str]:
    """Versions that decide speed and results (numba compiles the decoder's small CPU kernels)."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    for package in ("specsim-llm", "triton", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if "specsim-llm" not in found:
        from specsim.version import __version__

        found["specsim-llm"] = __version__
    for name in ("OMP_WAIT_POLICY", "OMP_PROC_BIND", "GOMP_SPINCOUNT"):
        if os.environ.get(name):
            found[name] = os.environ[name]
    return found


def git_sha() -> str:
    """Commit of the checkout this code runs from, with '+' if it has changes; '' without one.

    $SPECSIM_GIT_SHA stands in where a copy of the code has no repository.
    """
    stated = os.environ.get("SPECSIM_GIT_SHA")
    if stated:
        return stated[:64]
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    sha = _output(["git", "-C", str(root), "rev-parse", "HEAD"]).strip()
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--", "specsim"]).strip()
    return sha + "+" if sha and changed else sha


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""

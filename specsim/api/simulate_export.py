"""Files that `specsim simulate` writes for other tools: --export, --export-vllm-bench,
--export-prometheus. Formats are checked before the run, so that none is lost to a typo.
"""

import json
from pathlib import Path
from typing import Any

from specsim.api.simulate_load import check_writable
from specsim.errors import UsageError
from specsim.files import replacing
from specsim.sim.result import Simulation

OPTIONS = (
    ("export", "--export"),
    ("export_vllm_bench", "--export-vllm-bench"),
    ("export_prometheus", "--export-prometheus"),
)


def check_exports(values: dict[str, Any]) -> bool:
    """Refuse files that cannot be written; True if the run must keep its steps."""
    from specsim.report.export_rows import check_export_path

    paths = [(values.get(name), option) for name, option in OPTIONS]
    for path, option in paths:
        check_writable(path, option)
    if values.get("export") is not None:
        check_export_path(values["export"])
    named = [str(Path(path).absolute()) for path, _ in paths if path is not None]
    if len(set(named)) < len(named):
        raise UsageError("two exports have the same file; give each its own")
    return any(values.get(name) is not None for name, _ in OPTIONS[1:])


def write_exports(values: dict[str, Any], found: Simulation) -> None:
    """The files asked for, of the first run with speculation."""
    from specsim.report.export_rows import write_rows

    if values.get("export") is not None:
        write_rows((record.to_dict() for record in found.comparison.first.records),
                   values["export"])
    if values.get("export_vllm_bench") is not None:
        from specsim.report.export_vllm_bench import vllm_bench_dict

        text = json.dumps(vllm_bench_dict(found), allow_nan=False) + "\n"
        _write(values["export_vllm_bench"], "--export-vllm-bench", text)
    if values.get("export_prometheus") is not None:
        from specsim.report.export_prometheus import prometheus_text

        _write(values["export_prometheus"], "--export-prometheus", prometheus_text(found))


def _write(path: str, option: str, text: str) -> None:
    target = Path(path)
    try:
        with replacing(target) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{option} {path[:80]!a} cannot be written: {error.strerror or error}"
        ) from None

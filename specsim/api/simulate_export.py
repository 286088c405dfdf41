"""Files that `specsim simulate` writes for other tools: --export, --export-vllm-bench,
--export-prometheus. Formats are checked before the run, so that none is lost to a typo.
"""

from pathlib import Path

from specsim.api.simulate_load import check_writable
from specsim.errors import UsageError
from specsim.files import replacing
from specsim.jsonable import json_text
from specsim.options.serving import ExportOptions
from specsim.sim.result import SimulationFigures


def check_exports(options: ExportOptions) -> bool:
    """Refuse files that cannot be written; True if the run must keep its steps."""
    from specsim.report.export_rows import check_export_path

    paths = {
        "--export": options.export,
        "--export-vllm-bench": options.export_vllm_bench,
        "--export-prometheus": options.export_prometheus,
    }
    for flag, path in paths.items():
        check_writable(path, flag)
    if options.export is not None:
        check_export_path(str(options.export))
    named = [str(Path(path).absolute()) for path in paths.values() if path is not None]
    if len(set(named)) < len(named):
        raise UsageError("two exports have the same file; give each its own")
    return options.export_vllm_bench is not None or options.export_prometheus is not None


def write_exports(options: ExportOptions, found: SimulationFigures) -> None:
    """The files asked for, of the first run with speculation."""
    from specsim.report.export_rows import write_rows

    if options.export is not None:
        write_rows((record.to_dict() for record in found.comparison.first.records),
                   str(options.export))
    if options.export_vllm_bench is not None:
        from specsim.report.export_vllm_bench import vllm_bench_dict

        text = json_text(vllm_bench_dict(found)) + "\n"
        _write(str(options.export_vllm_bench), "--export-vllm-bench", text)
    if options.export_prometheus is not None:
        from specsim.report.export_prometheus import prometheus_text

        _write(str(options.export_prometheus), "--export-prometheus", prometheus_text(found))


def _write(path: str, option: str, text: str) -> None:
    target = Path(path)
    try:
        with replacing(target) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{option} {path[:80]!a} cannot be written: {error.strerror or error}"
        ) from None

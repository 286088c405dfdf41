"""Files that `specsim simulate` writes besides its result. They are checked before the run, so that
none is lost to a typo.
"""

from pathlib import Path

from specsim.files import check_writable, write_whole
from specsim.jsonable import json_text
from specsim.options.serving import ExportOptions, SimulateOptions
from specsim.sim.export import write_chrome_trace
from specsim.sim.result import SimulationFigures


def check_exports(options: SimulateOptions) -> bool:
    """Refuse files that cannot be written, or would replace what is read or another of them; True
    if the run must keep its steps."""
    from specsim.report.export_rows import check_export_path

    paths = {
        "--trace-out": options.trace_out,
        "--records": options.records,
        "--export": options.export,
        "--export-vllm-bench": options.export_vllm_bench,
        "--export-prometheus": options.export_prometheus,
    }
    read = [options.trace, options.acceptance_trace, options.scenario, options.gpu, options.model]
    for flag, path in paths.items():
        check_writable(path, flag, read)
        read.append(path)
    for flag, rows in (("--records", options.records), ("--export", options.export)):
        if rows is not None:
            check_export_path(str(rows), flag)
    steps = (options.trace_out, options.export_vllm_bench, options.export_prometheus)
    return any(path is not None for path in steps)


def write_exports(options: ExportOptions, found: SimulationFigures) -> None:
    """The files asked for, of the first run with speculation."""
    from specsim.report.export_rows import write_rows

    first = found.comparison.first
    for flag, rows in (("--records", options.records), ("--export", options.export)):
        if rows is not None:
            write_rows((record.to_dict() for record in first.records), str(rows), flag)
    if options.trace_out is not None:
        write_chrome_trace(first.cluster, Path(options.trace_out))
    if options.export_vllm_bench is not None:
        from specsim.report.export_vllm_bench import vllm_bench_dict

        text = json_text(vllm_bench_dict(found)) + "\n"
        write_whole(Path(options.export_vllm_bench), text)
    if options.export_prometheus is not None:
        from specsim.report.export_prometheus import prometheus_text

        write_whole(Path(options.export_prometheus), prometheus_text(found))

"""Files that `specsim simulate` writes besides its result. They are checked before the run, so that
none is lost to a typo.
"""

from pathlib import Path

from specsim.files import check_writable, write_whole
from specsim.jsonable import json_text
from specsim.options.declare import declared
from specsim.options.serving import ExportOptions, SimulateOptions
from specsim.sim.export import write_chrome_trace
from specsim.sim.result import SimulationFigures


def check_exports(options: SimulateOptions) -> bool:
    """Refuse files that cannot be written, or would replace what is read or another of them; True
    if the run must keep its steps."""
    from specsim.report.export_rows import check_export_path

    read = [options.trace, options.acceptance_trace, options.scenario, options.gpu, options.model]
    asked = {name: getattr(options, name) for name in declared(ExportOptions)}
    for name, path in asked.items():
        flag = declared(ExportOptions)[name].flag
        check_writable(path, flag, read)
        read.append(path)
        if path is not None and name in ("records", "export"):
            check_export_path(str(path), flag)
    return any(asked[name] for name in ("trace_out", "export_vllm_bench", "export_prometheus"))


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

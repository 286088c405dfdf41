"""`specsim validate bench`: a benchmark's result file beside the simulation of its load."""

from typing import TYPE_CHECKING

from specsim.commands import validate_deployment as d
from specsim.commands.bind import command
from specsim.options.measured import ValidateBenchCommand

if TYPE_CHECKING:
    from specsim.formats.bench import BenchRun


@command(ValidateBenchCommand)
def bench(options: ValidateBenchCommand) -> None:
    """Simulate the load of every run in FILES with the acceptance that was measured there, and put
    the measured figures beside the predicted ones."""
    from specsim.accuracy.bench import points_of
    from specsim.accuracy.live import Settings, judge
    from specsim.files import check_writable
    from specsim.formats.bench import read_bench
    from specsim.formats.load_model import load_model
    from specsim.methods.registry import is_plain
    from specsim.options.groups import DeploymentOptions

    files = options.files
    check_writable(options.out, "--out", files)
    runs = [run for file in files for run in read_bench(file)]
    points = points_of(runs)
    model = options.model or _model_of(runs)
    load_model(model)
    asked = options.but(model=model)
    found_k = {run.server_args.num_speculative_tokens for run in runs} - {None}
    if asked.k is None and asked.speculative_config is None and len(found_k) == 1 and (
        asked.method is not None and not is_plain(asked.method)
    ):
        asked = asked.but(k=found_k.pop())
    chosen = d.names_of(asked.fitted)
    d.check_fitted(chosen, [point.name for point in points])
    deployer = d.Deployer.of(DeploymentOptions.of(asked))
    settings = Settings(deployer.assumed, asked.prefix_caching, chosen, asked.explain)
    title = (
        f"{deployer.base.spec.name}: {len(points)} measured run{'s' * (len(points) > 1)} beside "
        f"the simulation of the same requests on {deployer.base.profile.title or asked.gpu}, "
        f"{deployer.base.engine.title or asked.engine}"
    )
    named = ("model", "gpu", "engine", "method", "draft", "k", "tp", "weights", "kv")
    provenance = {
        "files": [str(file) for file in files],
        "options": {name: getattr(asked, name) for name in named},
    }
    notes = list(deployer.warnings)
    if deployer.base.speculative and not deployer.assumed:
        notes += [
            f"{point.name}: {point.run.source} shows no drafts: simulated as plain decoding; give "
            "--acceptance-length if it did draft"
            for point in points if not d.drafts(point.run)
        ]
    found = judge("bench", title, points, deployer.system, settings, provenance, notes)
    d.finish(found, options.max_error, options.json_out, options.out)


def _model_of(runs: "list[BenchRun]") -> str:
    """The model that the files name."""
    from specsim.errors import UsageError

    names = sorted({run.model for run in runs if run.model})
    if len(names) != 1:
        raise UsageError(
            f"the files name {len(names)} models; give --model with a name from "
            "`specsim models`, a config.json or its folder"
        )
    return names[0].rsplit("/", 1)[-1]

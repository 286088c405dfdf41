"""`specsim.validate_bench`: a benchmark's result files beside the simulation of their loads."""

from specsim.accuracy.bench import points_of
from specsim.accuracy.live import Settings, judge
from specsim.api.functions import named_function
from specsim.api.judged_server import JudgedServer, check_fitted, drafts, names_of
from specsim.api.validation import Validation
from specsim.errors import UsageError
from specsim.formats.bench import BenchRun, read_bench
from specsim.formats.load_model import load_model
from specsim.methods.registry import is_plain
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import ValidateBenchOptions
from specsim.options.values import paths_of


def run(options: ValidateBenchOptions) -> Validation:
    """Simulate the load of every run in `files` with the acceptance that was measured there, and
    put the measured figures beside the predicted ones."""
    files = paths_of(options.files)
    runs = [found for file in files for found in read_bench(file)]
    points = points_of(runs)
    model = options.model or model_of_files(runs)
    load_model(model)
    asked = options.but(model=model)
    found_k = {item.server_args.num_speculative_tokens for item in runs} - {None}
    if asked.k is None and asked.speculative_config is None and len(found_k) == 1 and (
        asked.method is not None and not is_plain(asked.method)
    ):
        asked = asked.but(k=found_k.pop())
    chosen = names_of(asked.fitted)
    check_fitted(chosen, [point.name for point in points])
    server = JudgedServer.of(DeploymentOptions.of(asked))
    settings = Settings(
        server.assumed, asked.prefix_caching, chosen, asked.explain, server.expected)
    title = (
        f"{server.base.spec.name}: {len(points)} measured run{'s' * (len(points) > 1)} beside "
        f"the simulation of the same requests on {server.base.profile.title or asked.gpu}, "
        f"{server.base.engine.described}"
    )
    named = ("model", "gpu", "engine", "method", "draft", "k", "tp", "weights", "kv")
    provenance = {
        "files": [str(file) for file in files],
        "options": {name: getattr(asked, name) for name in named},
    }
    notes = list(server.warnings)
    if server.base.speculative and not server.assumed:
        notes += [
            f"{point.name}: {point.run.source} shows no drafts: simulated as plain decoding; give "
            "--acceptance-length if it did draft"
            for point in points if not drafts(point.run)
        ]
    found = judge("bench", title, points, server.system, settings, provenance, notes)
    return Validation(found, repeat(options))


validate_bench = named_function(ValidateBenchOptions, run)


def model_of_files(runs: list[BenchRun]) -> str:
    """The model that the files name."""
    names = sorted({found.model for found in runs if found.model})
    if len(names) != 1:
        raise UsageError(
            f"the files name {len(names)} models; give --model with a name from "
            "`specsim models`, a config.json or its folder"
        )
    return names[0].rsplit("/", 1)[-1]

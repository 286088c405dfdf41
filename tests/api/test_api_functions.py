"""The Python interface: what is public, light to import, equal to the command line, and checked."""

import contextlib
import inspect
import io
import json
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from thinned import slow

import specsim
from specsim.api.calibrate import calibrate
from specsim.commands import app, main
from specsim.errors import CapacityError, FormatError, ModelConfigError, SpecSimError, UsageError
from specsim.options.declare import declared
from specsim.options.prediction import PredictOptions
from specsim.options.registry import function_models

ROOT = Path(__file__).resolve().parents[2]
# Where output goes, and what only draws, has no place in a function that returns its result.
ONLY_TYPED = {"share", "json_out", "csv_out", "wide", "plot", "no_plot", "every_point", "help"}
FUNCTIONS = ["calibrate", "capacity", "compare", "crossover", "diagnose", "explain", "fleet",
             "gpus", "matrix", "models", "pareto", "policies", "predict", "quick", "read_bench",
             "report", "simulate", "sweep", "tune", "validate_bench", "validate_live",
             "validate_published",
             "validate_records"]
# The command line has the records and the model of calibrate as one list of words.
SAME = sorted(
    name for name in function_models() if name != "calibrate" and not name.startswith("validate")
)


def typed(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command line prints."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with contextlib.suppress(SystemExit):
        main()
    monkeypatch.undo()
    return out.getvalue()


def parameters(name: str) -> dict[str, Any]:
    return {p.name: p for p in typer.main.get_command(app).commands[name].params}  # type: ignore[attr-defined]


def test_public_names_exist_and_are_documented() -> None:
    assert set(FUNCTIONS) <= set(specsim.__all__)
    guide = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    for name in specsim.__all__:
        assert getattr(specsim, name) is not None
        assert name in guide or name.startswith("__"), f"{name} is not in the reference"
        assert name in dir(specsim)
    with pytest.raises(AttributeError, match="predikt"):
        specsim.predikt  # noqa: B018


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_and_a_prediction_little() -> None:
    code = (
        "import sys; before = set(sys.modules); import specsim;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - {'specsim'};"
        "std = set(sys.stdlib_module_names); assert new <= std, new;"
        "assert not any(m.startswith('specsim.') for m in sys.modules), 'parts were loaded';"
        "specsim.predict('qwen3.6-27b', concurrency=4);"
        "heavy = {'torch', 'numpy', 'scipy', 'simpy', 'typer', 'click', 'rich', 'pandas'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run_python(code) == "[]"


def test_parts_of_the_package_stay_modules() -> None:
    code = (
        "import specsim, specsim.report.tables, specsim.calibrate.records as r;"
        "assert callable(specsim.report) and callable(specsim.calibrate);"
        "from specsim.report import tables; from specsim import calibrate;"
        "assert specsim.report.tables is tables and specsim.calibrate.records is r;"
        "assert calibrate is specsim.calibrate; print('ok')"
    )
    assert run_python(code) == "ok"


@pytest.mark.parametrize("name", SAME)
def test_options_are_those_of_the_command_line(name: str) -> None:
    theirs = {key: p for key, p in parameters(name).items() if key not in ONLY_TYPED}
    ours = declared(function_models()[name])
    assert list(ours) == list(theirs)
    for option, item in ours.items():
        assert theirs[option].default == item.default, option
    called = getattr(import_module(f"specsim.api.{name}"), name)
    assert list(inspect.signature(called).parameters) == list(ours)


def test_calibrate_has_the_options_of_its_command() -> None:
    ours = inspect.signature(calibrate).parameters
    theirs = set(parameters("calibrate")) - ONLY_TYPED - {"inputs"}
    assert set(ours) - {"model", "records"} == theirs
    for name in theirs - {"from_", "plain", "spec", "holdout"}:
        assert parameters("calibrate")[name].default == ours[name].default, name


# The first call of a function is run by default.
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("predict", "qwen3.6-27b", {"weights": "fp8", "concurrency": [1, 16]}),
    ("predict", "qwen3.6-27b", {"k": 2, "acceptance": (0.93, 0.75), "rate": [0.5, 1]}),
    ("predict", "llama-3.1-8b", {
        "gpu": "h100-sxm", "concurrency": 8, "acceptance_length": 3, "gpu_memory_utilization": 0.8,
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 4,
                               "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}}),
    ("tune", "qwen3.6-27b", {"concurrency": 16, "slo": {"ttft_mean": 2.0}, "max_k": 4}),
    ("tune", "qwen3.6-27b", {"rate": 2, "methods": ["mtp", "ngram"]}),
    ("crossover", "qwen3.6-27b", {"contexts": [1024, 8192], "max_concurrency": 40}),
    ("pareto", "llama-3.1-8b", {"ks": [0, 3], "tps": 1, "max_num_seqs": [1, 64],
                                "weights": ["bf16", "fp8"]}),
    ("simulate", "llama-3.1-8b", {"rate": 2, "requests": 20, "baseline": False, "seed": 3}),
    ("simulate", "llama-3.1-8b", {"concurrency": 2, "requests": 8, "prefix_caching": False}),
    ("policies", "llama-3.1-8b", {"concurrency": 2, "requests": 8, "replications": 2,
                                  "policy": ["static", "goodput,probe=5", "none"]}),
]


FIRST = {name: i for i, (name, *_) in reversed(list(enumerate(CALLS)))}


@pytest.mark.parametrize(("name", "model", "options"), [
    call if FIRST[call[0]] == i and call[0] != "policies" else slow(*call)
    for i, call in enumerate(CALLS)
])
def test_a_result_is_what_its_command_prints(
    name: str, model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = getattr(specsim, name)(model, **options)
    printed = json.loads(typed(result.command + " --json", monkeypatch))
    ours = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert shlex.split(printed.pop("command"))[:3] == shlex.split(ours.pop("command"))[:3]
    # What a run took on this machine is no part of the result.
    for document in (printed, ours):
        document.pop("wall_s", None)
    assert printed == ours
    assert str(result).splitlines()[0] in typed(result.command, monkeypatch)


@pytest.mark.slow
def test_capacity_is_what_its_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    result = specsim.capacity(
        "llama-3.1-8b", unit="rate", slo={"ttft_p95": 1}, duration=20, replications=2,
        resolution=0.5, jobs=1, no_stream_floor=True,
    )
    assert isinstance(result, specsim.Capacity) and result.main.capacity > 0
    printed = json.loads(typed(result.command + " --json", monkeypatch))
    ours = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert shlex.split(printed.pop("command"))[:3] == shlex.split(ours.pop("command"))[:3]
    assert printed == ours
    assert len(result.to_rows()) >= 2 and "requests/s" in str(result)


def test_rows_frames_and_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    result = specsim.predict("qwen3.6-27b", concurrency=[1, 16])
    rows = result.to_rows()
    assert [row["concurrency"] for row in rows] == [1, 16]
    low, high = result.points[0].interval_90["speedup"] or [0, 0]
    assert (rows[0]["speedup.low_90"], rows[0]["speedup.high_90"]) == (low, high)
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    assert isinstance(result.to_frame(), pandas.DataFrame)
    assert list(result.to_frame("pandas")["speedup"]) == [p.speedup for p in result.points]
    assert isinstance(result.to_frame("polars"), polars.DataFrame)
    assert result.to_frame("polars")["speedup"].to_list() == [p.speedup for p in result.points]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(result.to_frame(), polars.DataFrame)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        result.to_frame()
    with pytest.raises(UsageError, match="pip install polars"):
        result.to_frame("polars")
    with pytest.raises(UsageError, match="arrow"):
        result.to_frame("arrow")


def test_notebook_tables_escape_what_they_show() -> None:
    result = specsim.predict("qwen3.6-27b", concurrency=1)
    evil = "<script>alert(1)</script>"
    object.__setattr__(result, "warnings", (evil,))
    object.__setattr__(result, "command", evil)
    page = result._repr_html_()
    assert evil not in page and page.count("&lt;script&gt;") == 2
    assert "<table" in page and f">{result.points[0].speedup:.2f}x</td>" in page
    assert "<script" not in page and "at most" in page  # the lines of the text as well


def test_results_are_the_typed_ones_of_the_model() -> None:
    from specsim.analytic.predict import PredictionFigures

    result = specsim.predict("qwen3.6-27b", concurrency=1)
    assert isinstance(result, specsim.Prediction) and isinstance(result, PredictionFigures)
    assert result.system.setup.k == result.to_dict()["k"] == 3
    assert repr(result) == (
        "<specsim.Prediction: specsim predict qwen3.6-27b --concurrency 1>"
    )


@pytest.mark.parametrize(("options", "words"), [
    ({"concurency": 4}, "no option 'concurency'; did you mean 'concurrency'?"),
    ({"tp": "2"}, "tp is '2'; it must be a whole number"),
    ({"tp": 2.5}, "tp is 2.5; it must be a whole number"),
    ({"tp": True}, "tp is True; it must be a whole number"),
    ({"gpu": 3}, "gpu is 3; it must be text"),
    ({"gpu": None}, "gpu is None; it must be text"),
    ({"acceptance": {"a": 1}}, "acceptance is {'a': 1}; it must be"),
    ({"concurrency": [1, None]}, "concurrency has None"),
    ({"concurrency": [1, 0]}, "--concurrency has 0"),
    ({"concurrency": 1, "rate": 1}, "give one of them"),
    ({"acceptance_rate": 0.7, "acceptance_length": 2.5}, "both say what is accepted"),
])
def test_misuse_is_a_usage_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        specsim.predict("qwen3.6-27b", **options)
    assert words in str(caught.value)


def test_errors_are_those_of_the_package() -> None:
    with pytest.raises(ModelConfigError, match="near: Qwen3"):
        specsim.predict("qwen3.6-27")
    with pytest.raises(CapacityError):
        specsim.predict("deepseek-v3", gpu="l4")
    with pytest.raises(UsageError, match="MODEL is needed"):
        specsim.predict()
    with pytest.raises(UsageError, match="it must be text"):
        specsim.predict(7)  # type: ignore[arg-type]
    for name in ("simulate", "pareto", "crossover", "tune"):
        with pytest.raises(SpecSimError):
            getattr(specsim, name)("no-such-model-xyz", **{"rate": 1} if name == "simulate" else {})


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    given = {"concurrency": numpy.array([1, 8]), "tp": numpy.int64(2),
             "acceptance_rate": numpy.float32(0.5)}
    values = PredictOptions.of_values({"model": "m", **given})
    assert values.concurrency == "1,8" and values.tp == 2
    assert values.acceptance_rate == 0.5


DATA = ROOT / "tests" / "formats" / "data"
PLAIN, NGRAM = DATA / "vllm_base_codeedit_c1.json", DATA / "vllm_ngram3_codeedit_c1.json"


def test_benchmarks_are_read_and_calibrated_from(tmp_path: Path) -> None:
    runs = specsim.read_bench(PLAIN, str(NGRAM))
    assert len(runs) == 2 and [run.load.max_concurrency for run in runs] == [1, 1]
    assert runs[1].acceptance is not None and runs[0].acceptance is None
    table = runs.to_frame("pandas")
    assert list(table["tpot_s.mean"]) == [run.tpot_s.mean for run in runs]
    assert Path(runs[1].source).name in str(runs) and "<table" in runs._repr_html_()
    assert runs.to_dict(requests=True)["runs"][0]["requests"]
    fitted = specsim.calibrate(
        "smollm2-135m", from_=[PLAIN, NGRAM], gpu="cpu-generic", method="ngram", k=3,
        out=tmp_path / "mine.toml",
    )
    assert fitted.written == (str(tmp_path / "mine.toml"),) and fitted.parameters
    assert {row["name"] for row in fitted.to_rows()} == {p["name"] for p in fitted.parameters}
    assert fitted.command.startswith("specsim predict smollm2-135m") and "ngram" in str(fitted)
    measured = runs[0].tpot_s.mean
    plain = specsim.predict(
        "smollm2-135m", gpu="cpu-generic", engine=str(tmp_path / "mine.toml"), method="none",
        concurrency=1, input_len=round(runs[0].input_tokens_mean),
        output_len=round(runs[0].output_tokens_mean),
    )
    before = specsim.predict(
        "smollm2-135m", gpu="cpu-generic", method="none", concurrency=1,
        input_len=round(runs[0].input_tokens_mean), output_len=round(runs[0].output_tokens_mean),
    )
    off, was = (abs(p.points[0].tpot_s / measured - 1) for p in (plain, before))
    assert off < 0.25 * was


def test_calibrate_says_what_is_missing() -> None:
    for call in ({}, {"from_": PLAIN}, {"records": "x.jsonl", "from_": PLAIN}):
        with pytest.raises(UsageError):
            specsim.calibrate(**call)
    with pytest.raises(SpecSimError):
        specsim.calibrate(records="/no/such/records.jsonl")
    with pytest.raises(FormatError):
        specsim.read_bench("/no/such/file.json")


def test_report_takes_results_dicts_and_files(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    result = specsim.predict("qwen3.6-27b", concurrency=[1, 16])
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(result.to_dict()), encoding="utf-8")
    page = specsim.report(
        result, result.to_dict(), saved, output=tmp_path / "page.html", title="A <b>title</b>"
    )
    text = page.read_text(encoding="utf-8")
    assert "Qwen3.6-27B" in text and "<b>title" not in text
    for bad in ((), (object(),), ({"kind": "poem"},), (tmp_path / "none.json",)):
        with pytest.raises(SpecSimError):
            specsim.report(*bad, output=tmp_path / "bad.html")
    with pytest.raises(UsageError, match="would replace"):
        specsim.report(saved, output=saved)
    assert not (tmp_path / "bad.html").exists()

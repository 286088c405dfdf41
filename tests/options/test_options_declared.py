"""An option is declared once: what is made from its field, and what every declaration must keep."""

import inspect
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import model_validator
from typer.testing import CliRunner

from specsim.api.functions import named_function
from specsim.commands import COMMANDS, app
from specsim.commands.bind import BoundCommand, command
from specsim.commands.validate import ValidateGroup
from specsim.errors import UsageError
from specsim.options.config_file import default_map, read_file, settable
from specsim.options.declare import REQUIRED, OptionSet, declared, opt, repeat
from specsim.options.groups import AcceptanceOptions, DeploymentOptions, OutputOptions
from specsim.options.registry import (
    command_models,
    command_names,
    function_models,
    module_of,
)
from specsim.options.serving import SimulateOptions
from specsim.options.sizing import CapacityOptions
from specsim.options.tables import file_keys, from_table
from specsim.options.values import FilePaths, Numbers


class PaceOptions(OptionSet):
    pace: float | None = opt(
        None, "--pace", "--speed", help="How fast.", gt=0, le=9, file_key="pace_per_s"
    )
    steps: Numbers | None = opt(None, help="Steps.")
    again: bool = opt(True, "--again/--once", help="Whether to go on.")


class PlaceOptions(OptionSet):
    name: str = opt(REQUIRED, help="A name.", argument=True)
    files: FilePaths | None = opt(None, help="Files.")
    limits: str | Mapping[str, object] | None = opt(None, help="Limits.")


class WalkOptions(PlaceOptions, PaceOptions):
    NAME = "walk"

    slow: bool = opt(False, help="Slowly.")

    @model_validator(mode="after")
    def _slow_or_paced(self) -> Self:
        if self.slow and self.pace is not None:
            raise UsageError("--slow and --pace contradict each other; give one")
        return self


class WalkCommand(WalkOptions, OutputOptions):
    out: Path | None = opt(None, help="File.", output=True)


def test_the_order_is_that_of_the_classes_and_output_comes_last() -> None:
    assert list(declared(WalkCommand)) == [
        "name", "files", "limits", "pace", "steps", "again", "slow", "out", "wide", "json_out",
        "csv_out",
    ]


def test_a_command_line_is_made_from_the_fields() -> None:
    parsed = command(WalkCommand)(lambda options: None).parsed()
    flags = {item.name: (item.opts, item.secondary_opts) for item in parsed.params}
    assert flags["pace"] == (["--pace", "--speed"], [])
    assert flags["again"] == (["--again"], ["--once"])
    assert flags["files"][0] == ["--files"] and flags["name"][0] == ["name"]
    helps = {item.name: getattr(item, "help", None) for item in parsed.params}
    assert helps["slow"] == "Slowly."


def call(arguments: Sequence[str]) -> WalkCommand:
    found: list[WalkCommand] = []
    command(WalkCommand)(found.append).parsed()(list(arguments), standalone_mode=False)
    return found[0]


def test_what_was_given_is_known_and_typed() -> None:
    options = call(["home", "--speed", "2", "--files", "a", "--files", "b", "--once"])
    assert (options.pace, options.again, options.name) == (2.0, False, "home")
    assert options.files == [Path("a"), Path("b")] and options.steps is None
    assert options.typed == {"name", "pace", "files", "again"}
    assert options.but(steps="1,2").typed == options.typed | {"steps"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--pace", "0"], "--speed is 0; it must be above 0 and at most 9"),
        (["x", "--pace", "nan"], "--speed is nan"),
        (["x", "--pace", "2", "--slow"], "--slow and --pace contradict"),
        (["x", "--json", "--csv"], "choose one output"),
    ],
)
def test_ranges_and_contradictions_are_usage_errors(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call(arguments)
    options = call(["x"])
    given = {"pace": 2, "slow": True} if "--slow" in arguments else {"pace": -1}
    with pytest.raises(UsageError):
        options.but(**given)


def test_python_callers_give_their_own_kinds() -> None:
    walk = named_function(WalkOptions, lambda options: options)
    options = walk(name="x", steps=[1, 2.5], pace=3, limits={"a": 1}, files="one")
    assert options.steps == "1,2.5" and options.pace == 3.0
    assert options.limits == '{"a": 1}' and options.files == [Path("one")]
    for given, words in (
        ({"nam": 1}, "needs name"), ({"name": "x", "pase": 1}, "did you mean 'pace'?"),
        ({"name": "x", "slow": 1}, "slow is 1; it must be True or False"),
        ({"name": None}, "name is None; it must be text"),
    ):
        with pytest.raises(UsageError, match=words):
            walk(**given)  # type: ignore[arg-type]


def test_a_result_repeats_what_was_given_but_not_where_it_went() -> None:
    options = call(["a b", "--pace", "2", "--once", "--steps", "1,2", "--out", "f", "--json"])
    assert repeat(options) == "specsim walk 'a b' --speed 2 --steps 1,2 --once"
    assert repeat(call(["--pace", "1.5", "--", "-x"])) == (
        "specsim walk --speed 1.5 -- -x"
    )


def test_files_have_keys_of_their_own() -> None:
    assert file_keys(PaceOptions)["pace_per_s"].name == "pace"
    assert from_table(PaceOptions, {"pace_per_s": 2, "steps": [1, 2]}, "here:") == {
        "pace": 2.0, "steps": "1,2",
    }
    with pytest.raises(UsageError, match="here: pace_per_s is True; it must be a number"):
        from_table(PaceOptions, {"pace_per_s": True}, "here:")
    with pytest.raises(UsageError, match="here: steps is \\['a'\\]; it must be a list of numbers"):
        from_table(PaceOptions, {"steps": ["a"]}, "here:")


def test_scenario_and_fleet_files_know_only_keys_of_options() -> None:
    """Besides what names the engine, every key of a scenario's [system] is an option's."""
    from specsim.sim.scenario import SYSTEM_KEYS

    assert {*SYSTEM_KEYS} - {"engine_version"} <= set(file_keys(SimulateOptions))


# --- of all commands ----------------------------------------------------------------------------


def commands() -> dict[str, BoundCommand[Any]]:
    found = {}
    for name, model in command_models().items():
        items = vars(import_module(f"specsim.commands.{module_of(name)}")).values()
        found[name] = next(
            item for item in items if isinstance(item, BoundCommand) and item.options is model
        )
    return found


def test_the_list_of_commands_says_what_each_says() -> None:
    table = {name: text for texts in COMMANDS.values() for name, text in texts.items()}
    table |= {f"validate {name}": text for name, text in ValidateGroup.lists["Commands"].items()}
    table.pop("validate")
    assert set(table) == set(command_models())
    for name, bound in commands().items():
        help_text = " ".join(inspect.cleandoc(bound.body.__doc__ or "").split())
        assert help_text.startswith(table[name]), name
        rest = help_text.removeprefix(table[name])
        assert table[name].endswith(".") and (not rest or rest.startswith(" ")), name


@pytest.mark.parametrize("name", command_models())
def test_every_option_is_in_the_help_of_its_command(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for item in declared(command_models()[name]).values():
        for flag in item.on if not item.option.argument else ():
            assert flag in done.output, f"{flag} of {name}"
        assert item.option.help and item.option.help[-1] in ".)", f"{item.name} of {name}"


@pytest.mark.parametrize("name", function_models())
def test_a_function_has_what_its_command_has_but_no_output(name: str) -> None:
    ours = declared(function_models()[name])
    assert not {"json_out", "csv_out"} & set(ours)
    extra = {"records", "model"} if name == "calibrate" else set()  # one list of words there
    theirs = next(m for n, m in command_models().items() if n.replace(" ", "_") == name)
    assert set(ours) - extra <= set(declared(theirs))


def test_every_command_about_a_deployment_has_the_same_field_for_an_option() -> None:
    """A default or a range that differs would be a second declaration."""
    ours = declared(DeploymentOptions)
    for name in ("predict", "explain", "tune", "crossover", "simulate", "capacity"):
        theirs = declared(command_models()[name])
        for option in ours:
            assert theirs[option].option is ours[option].option, f"{option} of {name}"


def test_plain_decoding_puts_all_aside_that_drafts() -> None:
    options = DeploymentOptions(
        model="m", method="eagle3", k=3, acceptance="0.8,0.5,0.3", tree="2,4", draft_share=0.5
    )
    plain = options.plain()
    assert plain.method == "none" and plain.k is None and plain.tree is None
    assert plain.draft_share == 1.0 and not plain.acceptance_flags
    assert AcceptanceOptions().acceptance_flags == []


def test_specsim_toml_sets_every_option_that_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "specsim.toml"
    path.write_text("[simulate]\nmax-concurrent = 4\nfail = '0:1'\n[capacity]\njobs = 3\n")
    found = read_file(path)
    with_general = tmp_path / "general.toml"
    with_general.write_text("[defaults]\ngpu = 'l4'\n")
    assert {item.command for item in read_file(with_general, "predict").defaults} == {"predict"}
    assert len(read_file(with_general).defaults) > 9
    assert {(item.command, item.name, item.value) for item in found.defaults} == {
        ("simulate", "max_concurrent", 4), ("simulate", "fail", "0:1"), ("capacity", "jobs", 3),
    }
    assert default_map(found, ["capacity", "--jobs", "2"])["simulate"]["max_concurrent"] == 4
    for name in command_names():
        assert not any(item.option.argument and key != "model"
                       for key, item in settable(name).items())
        assert tomllib.loads(f"['{name}']")  # a name that can be a section
    assert shlex.split(repeat(CapacityOptions(jobs=3))) == ["specsim", "capacity", "--jobs", "3"]

"""Declared shapes: what is accepted, and the one line for what is not."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator, model_validator

from specsim.checked import Broken, LooseShape, Rule, Shape, Texts, check, json_value, toml_table
from specsim.errors import FormatError, UsageError
from specsim.files import file_text


class Users(Shape):
    count: Annotated[int, Field(ge=1, le=100)]
    pace: Annotated[float, Field(gt=0)] = 1.0
    thinking: bool = True


class Case(Shape):
    gpus: Texts = ()
    slo: dict[str, Annotated[float, Field(ge=0, lt=1)]] = Field(default_factory=dict)
    unit: Literal["tokens", "requests"] = "tokens"
    name: Annotated[str | None, Rule("text on one line")] = None

    @field_validator("name")
    @classmethod
    def _one_line(cls, value: str | None) -> str | None:
        if value == "bad":
            raise ValueError("'bad' is no name; take another")
        if value == "long":
            raise Broken("a short name")
        return value

    @model_validator(mode="after")
    def _gpus_named(self) -> "Case":
        if "" in self.gpus:
            raise Broken("a list of names", "gpus", self.gpus)
        return self


class Plan(Shape):
    users: Users
    case: list[Case] = Field(default_factory=list)


def wrong(raw: object) -> str:
    with pytest.raises(UsageError) as caught:
        check(Plan, raw, "plan.toml", UsageError)
    return str(caught.value)


def test_a_value_of_the_declared_shape_is_taken_as_it_is() -> None:
    plan = check(Plan, {"users": {"count": 3, "pace": 2}, "case": [{"gpus": ["a"]}]}, "x")
    assert (plan.users.count, plan.users.pace, plan.case[0].gpus) == (3, 2.0, ("a",))


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({}, "plan.toml needs users, a table"),
        ({"users": 3}, "plan.toml: users is 3; it must be a table"),
        ([1], "plan.toml holds [1]; it must be a table"),
        ({"users": {}}, "plan.toml: [users] needs count, a whole number from 1 to 100"),
        ({"users": {"count": 0}},
         "plan.toml: [users] count is 0; it must be a whole number from 1 to 100"),
        ({"users": {"count": True}},
         "plan.toml: [users] count is True; it must be a whole number from 1 to 100"),
        ({"users": {"count": 10**5000}},
         "plan.toml: [users] count is an integer of more than 30 digits; it must be a whole "
         "number from 1 to 100"),
        ({"users": {"cuont": 3}}, "plan.toml: [users] has no key 'cuont'; did you mean 'count'?"),
        ({"users": {"count": 3}, "zzz": 1},
         "plan.toml has no key 'zzz'; it has case, users"),
        ({"users": {"count": 3, "pace": 0}},
         "plan.toml: [users] pace is 0; it must be a number above 0"),
        ({"users": {"count": 3, "thinking": "no"}},
         "plan.toml: [users] thinking is 'no'; it must be true or false"),
        ({"users": {"count": 3}, "case": [{"gpus": "a"}]},
         "plan.toml: [[case]] 1 gpus is 'a'; it must be a list of texts"),
        ({"users": {"count": 3}, "case": [{"slo": {"tpot": 2}}]},
         "plan.toml: [[case]] 1 [slo] tpot is 2; it must be a number from 0 to below 1"),
        ({"users": {"count": 3}, "case": [{"unit": "GB"}]},
         "plan.toml: [[case]] 1 unit is 'GB'; it must be one of tokens, requests"),
        ({"users": {"count": 3}, "case": [{"name": 5}]},
         "plan.toml: [[case]] 1 name is 5; it must be text on one line"),
        ({"users": {"count": 3}, "case": [{"name": "bad"}]},
         "plan.toml: [[case]] 1: 'bad' is no name; take another"),
        ({"users": {"count": 3}, "case": [{"name": "long"}]},
         "plan.toml: [[case]] 1 name is 'long'; it must be a short name"),
        ({"users": {"count": 3}, "case": [{"gpus": ["a", ""]}]},
         "plan.toml: [[case]] 1 gpus is ('a', ''); it must be a list of names"),
    ],
)
def test_what_is_wrong_is_one_line_with_place_value_rule(raw: object, line: str) -> None:
    assert wrong(raw) == line


def test_foreign_tables_may_hold_more() -> None:
    class Result(LooseShape):
        duration: float

    assert check(Result, {"duration": 2, "else": 1}, "x").duration == 2.0


def test_files_are_read_with_their_limits(tmp_path: Path) -> None:
    toml, broken, twice = tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "c.json"
    toml.write_text("[users]\ncount = 3\n")
    assert check(Plan, toml_table(file_text(toml), toml.name), toml.name).users.count == 3
    broken.write_text("[users\n")
    with pytest.raises(FormatError, match=r"^b.toml is not valid TOML: "):
        toml_table(file_text(broken), broken.name)
    twice.write_text('{"users": {"count": 3, "count": 4}}')
    with pytest.raises(FormatError, match="the key 'count' stands twice in one object"):
        json_value(file_text(twice), twice.name)
    with pytest.raises(FormatError, match=r"larger than 0\.001 MB"):
        file_text(_filled(tmp_path / "big", 2000), 1000)
    with pytest.raises(FormatError, match="No such file"):
        file_text(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"a = 1\nb = '\xe4'\n")
    with pytest.raises(FormatError, match="line 2 is not UTF-8"):
        file_text(tmp_path / "latin")


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{"])
def test_absurd_json_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(FormatError, match=r"^f is not valid JSON: [^\n]{1,250}$"):
        json_value(text, "f")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "1" * 5000, "a = 1\na = 2"])
def test_absurd_toml_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(FormatError, match=r"^f is not valid TOML: [^\n]{1,250}$"):
        toml_table(text, "f")


def _filled(path: Path, size: int) -> Path:
    path.write_text("x" * size)
    return path

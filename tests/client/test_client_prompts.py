"""What is sent."""

import json
from itertools import pairwise

import pytest

from specsim.client.prompts import builtin_prompts, random_prompts, read_prompts, take
from specsim.errors import FormatError, UsageError


def write(path, *lines):
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines) + "\n")
    return path


def test_files_of_all_kinds(tmp_path):
    file = write(tmp_path / "p.jsonl", {"prompt": "a", "output_tokens": 5},
                 {"turns": ["b", "c"]}, "", {"question": "d", "max_tokens": 9},
                 {"prompt": [1, 2, 3]})
    found = read_prompts(file)
    assert [p.content for p in found] == ["a", "b", "d", (1, 2, 3)]
    assert [p.output_tokens for p in found] == [5, 256, 9, 256]
    assert {p.output_tokens for p in read_prompts(file, 3)} == {3}
    assert len(read_prompts(file, limit=2)) == 2


@pytest.mark.parametrize("line, words", [
    ("{x", "not valid JSON"), ("[]", "JSON object"), ({"prompt": ""}, "no prompt"),
    ({"prompt": [1, "a"]}, "no prompt"), ({"prompt": "a", "output_tokens": 0}, "from 1"),
    ({"prompt": "a", "output_tokens": "x"}, "whole"), ({"text": 5}, "no prompt"),
])
def test_broken_lines_are_named(tmp_path, line, words):
    with pytest.raises(FormatError, match=words) as found:
        read_prompts(write(tmp_path / "p.jsonl", {"prompt": "a"}, line))
    assert "line 2" in str(found.value)


def test_broken_files(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        read_prompts(tmp_path / "nothing")
    with pytest.raises(FormatError, match="no prompt"):
        read_prompts(write(tmp_path / "e.jsonl", ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(FormatError, match="UTF-8"):
        read_prompts(tmp_path / "b.jsonl")


def test_random_prompts_are_consecutive_ids_and_repeatable():
    found = random_prompts([(4, 2), (9, 3)], vocab=7, seed=1)
    assert found == random_prompts([(4, 2), (9, 3)], vocab=7, seed=1)
    assert [len(p.content) for p in found] == [4, 9]
    for prompt in found:
        assert all((b - a) % 7 == 1 for a, b in pairwise(prompt.content))
    with pytest.raises(UsageError):
        random_prompts([(1, 1)], vocab=1)


def test_take_goes_on_where_it_stopped():
    prompts = builtin_prompts(8)
    assert len(prompts) == len(set(prompts)) == 16 and prompts[0].output_tokens == 8
    assert take(prompts, 3, len(prompts) - 1) == [prompts[-1], prompts[0], prompts[1]]

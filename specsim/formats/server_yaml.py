"""YAML around a server's command: the file that --config names, compose and Kubernetes files.

Only plain data is built (the safe loader), of files of limited size and with few aliases, since
nested ones multiply. What is made of it is words of a command line, which are read as all others.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from specsim.errors import FormatError, shown
from specsim.files import file_text
from specsim.formats.shell_words import on_one_line
from specsim.jsonable import json_text

MAX_YAML = 100_000  # characters
MAX_ALIASES = 20
MAX_DEPTH = 50  # Kubernetes needs ten or so; PyYAML's time grows with the square of the depth
_KEYS = re.compile(r"^[ \t-]*(?:services|apiVersion|kind|containers|image|command|args|"
                   r"repository|modelURL|vllmConfig)[ \t]*:", re.MULTILINE)


def is_container_file(text: str) -> bool:
    """Whether a text given as a command is YAML with the keys of compose or Kubernetes."""
    return _KEYS.search(text) is not None


def container_commands(text: str, where: str) -> dict[str, str]:
    """Name of a service or container -> what it runs, as one line: variables, image, command.
    Equal names are numbered. FormatError for what is no such file."""
    found: dict[str, str] = {}
    for name, line in _containers(documents(text, where), ""):
        names = (f"{name} ({number})" if number > 1 else name for number in count(1))
        found[next(free for free in names if free not in found)] = line
    return found


def config_words(name: str, files: Mapping[str, str]) -> list[str]:
    """The flags in the file of --config, as vLLM and SGLang make them: true is a switch, false
    leaves it out, a table is JSON. FormatError where the file is not here or no such table."""
    words = []
    for key, value in settings_table(name, files, "--config", "max-num-seqs: 64").items():
        if value is None or value is False or key == "config":
            continue
        words.append(f"--{key}" if value is True else f"--{key}={_value(value)}")
    return words


def settings_table(
    name: str, files: Mapping[str, str], flag: str = "--extra_llm_api_options",
    example: str = "max_batch_size: 64",
) -> dict[str, object]:
    """The table in a file that a command names. files: what the command's own text
    writes. FormatError where the file is not here or holds no table."""
    where = f"{flag} {name[:200]} in --command"
    text = next((held for other, held in files.items() if Path(other) == Path(name)), None)
    try:
        text = file_text(Path(name).expanduser(), MAX_YAML) if text is None else text
    except (FormatError, RuntimeError) as error:  # RuntimeError: no home folder
        raise FormatError(
            f"{where} cannot be used ({error}); model, formats and speculation may stand in it: "
            "copy it here and give its path, or write it in front: cat > FILE <<EOF ... EOF"
        ) from None
    found = documents(text, where)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise FormatError(f"{where} holds no table; write lines such as '{example}'")
    return {str(key): value for key, value in found[0].items()}


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return json_text(value, default=str) if isinstance(value, dict | bool) else str(value)


def documents(text: str, where: str) -> list[object]:
    """The documents of a YAML text as plain data; FormatError for what is none."""
    import yaml  # by few commands only

    if len(text) > MAX_YAML:
        raise FormatError(f"{where} is longer than {MAX_YAML} characters; give one server's part")
    try:
        aliases = depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            aliases += isinstance(event, yaml.AliasEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if aliases > MAX_ALIASES:
                raise FormatError(f"{where} has over {MAX_ALIASES} aliases (*name); write them out")
            if depth > MAX_DEPTH:
                raise RecursionError
        found = list(yaml.safe_load_all(text))
        json_text(found, default=str)  # neither holds itself nor has keys that flags cannot have
        return found
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise FormatError(f"{where} is not YAML: {problem}{line}; correct it") from None
    except (ValueError, RecursionError, TypeError) as error:  # dates, digits, depth, keys
        reason = str(error)
        if isinstance(error, RecursionError) or "Circular" in reason:
            reason = "it holds itself or is nested too deeply"
        raise FormatError(f"{where} cannot be read as YAML: {reason[:80]}; correct it") from None


def _containers(value: object, name: str) -> Iterator[tuple[str, str]]:
    """Every table with a command or an image, wherever it stands."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item, name)
    elif isinstance(value, dict):
        own = str(value.get("name", name))
        if value.keys() & {"image", "command", "args"}:
            yield own, _line(value)
            return
        if "services" in value:  # beside them stand parts for reuse
            value = {"services": value["services"]}
        for key, item in value.items():
            yield from _containers(item, str(key))


def _line(container: Mapping[object, object]) -> str:
    """Kubernetes calls compose's entrypoint command, and its command args."""
    image = container.get("image")
    start = ["docker", "run", str(image)] if image else []
    parts = [container.get(key) for key in ("entrypoint", "command", "args")]
    variables = container.get("environment", container.get("env"))
    return " ".join([shlex.join([*_variables(variables), *start]), *map(_shell, parts)])


def _shell(command: object) -> str:
    if command is None or isinstance(command, str):
        return on_one_line(command or "")
    if not isinstance(command, list) or not all(isinstance(w, str | int | float) for w in command):
        raise FormatError(
            f"--command holds a container whose command is {shown(command)}; it must be a list of "
            "words or one line"
        )
    return shlex.join(map(_value, command))


def _variables(given: object) -> list[str]:
    """NAME=VALUE of a table, a list of such words, or Kubernetes' list of name and value."""
    if isinstance(given, dict):
        return [f"{key}={_value(value)}" for key, value in given.items()]
    items = given if isinstance(given, list) else []
    return [
        f"{item.get('name')}={item.get('value', '')}" if isinstance(item, dict) else str(item)
        for item in items
    ]

"""A server's command line, `vllm serve ...`, `python -m sglang.launch_server ...` or
`trtllm-serve ...`, as a whole
(docs/tune.md says what may stand around it). It is split as a POSIX shell would and ends with
its command. Nothing is run; the only files that are opened are a compose or Kubernetes
file that is named in its place, and the one that --config names."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError, UsageError
from specsim.files import file_text
from specsim.formats.engine_flags import read_sglang, read_vllm
from specsim.formats.server_flags import ServerCommand, ServerWords
from specsim.formats.server_yaml import (
    MAX_YAML,
    config_words,
    container_commands,
    is_container_file,
)
from specsim.formats.shell_words import here_files, split_words, until_operator
from specsim.formats.trtllm_flags import read_trtllm

_IMAGE = re.compile(
    r"(?:^|/)(vllm-openai|sglang|tensorrt-llm/release)(?::v?(\d+\.\d+(?:\.\d+)?))?\S*$"
)
_MODULE = re.compile(
    r"(?:^|[/.])(?:(vllm)[./]entrypoints|(sglang)[./](?:launch_server|serve)|"
    r"(tensorrt_llm)[./]commands[./]serve)\b"
)
_ENGINES = {"tensorrt_llm": "trtllm"}
_TRTLLM = "trtllm-serve"
_READERS = {"vllm": read_vllm, "sglang": read_sglang, "trtllm": read_trtllm}
_FLAGS_IN_FILE = ("vllm", "sglang")  # whose --config holds flags, TensorRT-LLM's settings
_VARIABLE = re.compile(r"(?:--env=|-e)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PROGRAM = re.compile(r"python[\d.]*|torchrun|env|uv|vllm|trtllm-serve|sh|bash|zsh")
_SHELLS = frozenset({"sh", "bash", "zsh"})
_RUNS_LINE = re.compile(r"-[a-z]*c")
# Programs whose flags are not read, and the way on.
_DESCRIBE = "describe it with MODEL, --tp, --max-num-seqs, --method, --k and "
_OTHERS = {
    "llama-server": "its MODEL.gguf may be named as MODEL, with --engine vllm as the nearest",
    "ollama": "name the model as MODEL, with --engine vllm as the nearest",
    "text-generation-launcher": _DESCRIBE + "--engine vllm, the nearest",
    "lmdeploy": _DESCRIBE + "--engine vllm, the nearest",
}
EXAMPLE = (
    "'vllm serve MODEL --max-num-seqs 64', 'python -m sglang.launch_server --model-path M' or "
    "'trtllm-serve MODEL --max_batch_size 64'"
)


def parse_command(text: str) -> ServerCommand:
    """Reads a command line. FormatError where no server is started in it or the quoting is
    broken, UsageError for a flag with a value that the engine would refuse."""
    if (path := _yaml_path(text)) is not None:
        try:
            text = file_text(path, MAX_YAML)
        except FormatError as error:
            raise FormatError(
                f"--command names the file {text.strip()[:200]}: {error}; give a compose or "
                "Kubernetes file that is here, or the command itself in quotes"
            ) from None
    plain, files = here_files(text)
    if is_container_file(plain):
        server = _in_container(text)
    else:
        server = find_server(split_words(plain))
        files = {_expanded(name, server.environment): held for name, held in files.items()}
        server = replace(server, files=files)
    if server.engine in _FLAGS_IN_FILE:
        server = replace(server, words=_with_config(server))
    return _READERS[server.engine](server)


def _yaml_path(text: str) -> Path | None:
    """The file that was named in place of a command."""
    named = len(text.split()) == 1 and text.strip().endswith((".yml", ".yaml"))
    with suppress(RuntimeError):  # nobody of this name has a home folder
        return Path(text.strip()).expanduser() if named else None
    return Path(text.strip())


def _in_container(text: str) -> ServerWords:
    """The one server among the containers of a compose or Kubernetes file."""
    found: dict[str, ServerWords] = {}
    for name, line in container_commands(text, "--command").items():
        with suppress(FormatError):
            found[name] = find_server(split_words(line))
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise FormatError(
            f"--command is a file with {len(found)} servers ({', '.join(found)[:80]}); keep the "
            "one to predict"
        )
    raise FormatError(
        "--command is a compose or Kubernetes file, but no container in it starts a server known "
        f"here; give what it runs as one line: {EXAMPLE}"
    )


def _with_config(server: ServerWords) -> list[str]:
    """The flags of --config FILE in front of those written, which win as in vLLM and SGLang."""
    words = server.words
    for i, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name == "--config":
            rest = words[:i] + words[i + (1 if sign else 2) :]
            if not sign:
                value = words[i + 1] if i + 1 < len(words) else ""
            model = 0 if not rest or rest[0].startswith("-") else 1
            return rest[:model] + config_words(value, server.files) + rest[model:]
    return words


def find_server(
    words: list[str], version: str = "", variables: Mapping[str, str] | None = None
) -> ServerWords:
    """The server that the words start, with the flags behind its name. FormatError for none.
    version, variables: of what runs these words."""
    engine, environment = "", dict(variables or {})
    for i, word in enumerate(words):
        behind = words[i + 1 :]
        base = word.rsplit("/", 1)[-1]
        if base in ("vllm", "sglang") and behind[:1] == ["serve"]:
            engine, behind = base, behind[1:]
        elif base == _TRTLLM:
            engine, behind = "trtllm", behind[behind[:1] == ["serve"] :]
            if behind[:1] == ["disaggregated"]:
                raise FormatError(
                    "--command starts TensorRT-LLM's router of workers that share prompts and "
                    "decoding; give the trtllm-serve of a worker, with --prefill-replicas"
                )
        elif (module := _MODULE.search(word)) is not None:
            found = next(filter(None, module.groups()))
            engine = _ENGINES.get(found, found)
        elif base in _SHELLS and behind[:1] and _RUNS_LINE.fullmatch(behind[0]):
            return find_server(
                split_words(behind[1] if len(behind) > 1 else ""), version, environment
            )
        elif (image := _IMAGE.search(word)) is not None and i and not word.startswith("-"):
            version = image.group(2) or ""
            # vLLM's image starts the server itself: what follows are its flags.
            if image.group(1) == "vllm-openai" and not _starts_itself(behind):
                engine, behind = "vllm", behind[behind[:1] == ["serve"] :]
        elif (variable := _VARIABLE.fullmatch(word)) is not None:
            environment[variable.group(1)] = variable.group(2)
        if engine and (own := until_operator(behind)):  # none: `pkill -f vllm.entrypoints;`
            _check_last(behind[len(own) :])
            own = [_expanded(word, environment) for word in own]
            return ServerWords(engine, version, own, environment)
        engine = ""
    raise FormatError(_no_server(words))


def _check_last(words: list[str]) -> None:
    """That the commands behind a server start no other one."""
    with suppress(FormatError):
        other = find_server(words)
        start = " ".join([other.engine, *other.words])
        raise UsageError(
            f"--command starts a second server, {start[:80]!r}; keep the one to predict"
        )


def _starts_itself(behind: list[str]) -> bool:
    """Whether the words behind an image name the program that it runs."""
    return bool(behind) and _PROGRAM.fullmatch(behind[0].rsplit("/", 1)[-1]) is not None


def _expanded(word: str, environment: Mapping[str, str]) -> str:
    """$NAME, ${NAME}, ${NAME:-DEFAULT} and Kubernetes' $(NAME) where the command itself sets them;
    others stay as they are."""
    def value(found: re.Match[str]) -> str:
        name, default, *others = found.groups()
        instead = found.group() if default is None else default
        return environment.get(name or others[0] or others[1], instead)

    return re.sub(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|\((\w+)\)|(\w+))", value, word)


def _no_server(words: list[str]) -> str:
    if len(words) == 1 and Path(words[0]).suffix in (".sh", ".txt", ".service"):
        return (
            f"--command is {words[0][:80]!r}, a name and no command; give what stands in it: "
            f'--command "$(cat {words[0][:80]})"'
        )
    names = (word.rsplit("/", 1)[-1] for word in words)
    way_on = next((_OTHERS[name] for name in names if name in _OTHERS), f"write {EXAMPLE}")
    start = " ".join(words[:6])
    return f"--command starts no server known here: {start[:80]!r}; {way_on}"

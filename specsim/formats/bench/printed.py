"""The table that vLLM's and SGLang's serving benchmarks print, as people paste it: in SGLang's
cookbook, in pull requests, in logs of a terminal.

    ============ Serving Benchmark Result ============
    Successful requests:                     40
    Mean TTFT (ms):                          412.15

Each label is the key of the tool's JSON in other words, so the table is read as that JSON. Several
tables in one text are several runs. Figures are rounded to two decimals; vLLM prints no model.
So is summary.csv of `vllm bench sweep`: one run a row, the keys of the JSON as columns.
"""

import ast
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace

from specsim.data import data_table
from specsim.errors import FormatError
from specsim.formats.bench import sglang, vllm_serve
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.unread import unread, with_note
from specsim.jsonable import json_text

NAME = "printed table of vllm bench serve or sglang bench_serving"
_HEADING = re.compile(r"=+ *Serving Benchmark Result *=+")
_LINE = re.compile(r"[^\S\n]*([A-Za-z][^:\n]{0,60}?)[^\S\n]*:[^\S\n]+(\S[^\n]{0,60}?)[^\S\n]*")
_TIME = re.compile(r"(mean|median|std|max|p[\d.]{1,7}) (ttft|tpot|itl|e2el|e2e latency) \(ms\)")
_POSITION = re.compile(r"position \d{1,3}")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?")
_KEYS: dict[str, str] = data_table("catalog", "foreign.toml")["printed"]
_PER_POSITION = "spec_decode_per_position_acceptance_rates"
_OF_SGLANG = {"backend", "concurrency", "accept_length", "mean_e2e_latency_ms"}


def matches(document: ResultFile) -> bool:
    return not document.is_json and _HEADING.search(document.text) is not None


def read(document: ResultFile) -> list[BenchRun]:
    runs = []
    for line, table in _tables(document.text):
        record = _record(table)
        native = bool(_OF_SGLANG & record.keys())
        one = ResultFile(document.origin, table, (record,), lines=(line,))
        [run] = sglang.read(one) if native else vllm_serve.read(one)
        shape = sglang.SglangResult if native else vllm_serve.VllmResult
        noted = "read from the printed table: figures are rounded, and it does not name the model"
        runs.append(with_note(
            replace(run, warnings=(*run.warnings, noted)), unread(shape, [record])
        ))
    return runs


def _tables(text: str) -> Iterator[tuple[int, str]]:
    """Line of each heading, and the text from there to the next one or to the rule below."""
    found = list(_HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        table = text[match.end() : end].split("=" * 40, maxsplit=1)[0]
        yield text.count("\n", 0, match.start()) + 1, table


def _record(table: str) -> dict[str, object]:
    out: dict[str, object] = {}
    rates: list[float] = []
    for line in table.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        label, text = match[1].lower(), match[2]
        number = float(text) if _NUMBER.fullmatch(text) else None
        if _POSITION.fullmatch(label) and number is not None:
            rates.append(number / 100)
        elif number is not None or label in ("backend", "traffic request rate"):
            out.setdefault(_key(label), text if number is None else number)
    if rates:
        out[_PER_POSITION] = rates
    if "max_concurrency" in out:
        out.setdefault("request_rate", "inf")  # vLLM prints a rate only where there is one
    return out


def _key(label: str) -> str:
    """The key of the JSON; of a label that is not known, the label in the same form."""
    time = _TIME.fullmatch(label)
    if time is not None:
        return f"{time[1]}_{time[2].replace(' ', '_')}_ms"
    return _KEYS.get(label, re.sub(r"\W+", "_", label).strip("_"))


_WORDS = ("date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id",
          "ramp_up_strategy")
MAX_LITERAL = 10_000  # characters; longer lists are numbers, which JSON reads
SWEEP_NAME = "vllm bench sweep CSV"


def matches_sweep(document: ResultFile) -> bool:
    if document.is_json:
        return False
    header = document.text.lstrip("\ufeff \r\n").split("\n", 1)[0].strip().split(",")
    return "completed" in header and "output_throughput" in header


def read_sweep(document: ResultFile) -> list[BenchRun]:
    try:
        rows = list(csv.DictReader(io.StringIO(document.text.lstrip("\ufeff \r\n"))))
    except csv.Error as error:
        raise FormatError(f"{document.origin}: not a CSV: {error}") from None
    records = [
        {name: value for name, text in row.items()
         if name and (value := text or None if name in _WORDS else _value(text)) is not None}
        for row in rows
    ]
    if not records:
        raise FormatError(f"{document.origin}: a header without rows; one row a run is expected")
    lines = tuple(range(2, len(records) + 2))
    runs = vllm_serve.read(ResultFile(document.origin, "", tuple(records), lines=lines))
    return [
        with_note(replace(run, format=vllm_serve.SWEEP), unread(vllm_serve.VllmResult, [record]))
        for run, record in zip(runs, records, strict=True)
    ]


def _value(text: object) -> object:
    """A cell as JSON has it; lists and objects may be written as Python shows them. None where it
    is empty or cannot be understood."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _literal(text) if text.startswith(("[", "{")) else text


def _literal(text: str) -> object:
    try:
        value = ast.literal_eval(text) if len(text) <= MAX_LITERAL else None
        return json.loads(json_text(value))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None

"""summary.csv of `vllm bench sweep`: one run a row, the keys of its JSON as columns."""

import ast
import csv
import io
import json
from dataclasses import replace

from specsim.errors import FormatError
from specsim.formats.bench import vllm_serve
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.unread import unread, with_note
from specsim.jsonable import json_text

_WORDS = ("date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id",
          "ramp_up_strategy")
MAX_LITERAL = 10_000  # characters; longer lists are numbers, which JSON reads
NAME = "vllm bench sweep CSV"


def matches(document: ResultFile) -> bool:
    if document.is_json:
        return False
    header = document.text.lstrip("\ufeff \r\n").split("\n", 1)[0].strip().split(",")
    return "completed" in header and "output_throughput" in header


def read(document: ResultFile) -> list[BenchRun]:
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

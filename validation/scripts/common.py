"""What the scripts of validation/ share: where things lie, reading, writing, Markdown.

Importing it makes the checkout's own package the one that is used, installed or not: a script
imports it before anything of specsim.
"""

import argparse
import csv
import gzip
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VALIDATION = ROOT / "validation"
DATA, REPORTS, MEASURED = VALIDATION / "data", VALIDATION / "reports", VALIDATION / "measured"
PROFILES, CATALOG, ENGINES = ROOT / "hw_profiles", ROOT / "catalog", ROOT / "engines"
PUBLISHED = DATA / "published" / "published_measurements.csv"
PUBLISHED_2 = DATA / "published" / "published_measurements_2.csv"
ACCEPTANCE_MEASURED = PUBLISHED.with_name("acceptance_measurements.csv")
SILICON = DATA / "e2e_silicon_h200.csv"
STATISTICS = DATA / "acceptance_statistics.json"
LEDGER = REPORTS / "ledger.json"
LOSO = REPORTS / "loso.json"

if str(ROOT) not in sys.path:
    sys.path.insert(1, str(ROOT))


def read_csv(path: Path) -> list[dict[str, str]]:
    """Its rows, of a plain or a gzipped file."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, data: object) -> None:
    write_text(path, json.dumps(data, indent=1) + "\n")


def write_lines_json(path: Path, data: object, depth: int) -> None:
    """JSON with one line per entry of the tables and lists at `depth`, so that changes can be
    read."""
    write_text(path, _lines(data, depth, 1) + "\n")


def _lines(data: object, depth: int, indent: int) -> str:
    if depth == 0 or not isinstance(data, dict | list) or not data:
        return json.dumps(data)
    if isinstance(data, dict):
        inner = [f"{json.dumps(k)}: {_lines(v, depth - 1, indent + 1)}" for k, v in data.items()]
    else:
        inner = [_lines(v, depth - 1, indent + 1) for v in data]
    space, (begin, end) = " " * indent, "{}" if isinstance(data, dict) else "[]"
    return f"{begin}\n{space}" + f",\n{space}".join(inner) + f"\n{space[1:]}{end}"


def report_written(
    doc: str | None, out: Path, run: Callable[[], Any], text_of: Callable[[Any], str],
    write: Callable[[Path, Any], None] = write_json,
) -> None:
    """The `main` of a script that prints a report of what `run` finds, and with --write keeps both
    as out.md and out.json."""
    parser = argparse.ArgumentParser(description=str(doc).split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {out.name}.md and .json")
    keep = parser.parse_args().write
    found = run()
    text = text_of(found)
    sys.stdout.write(text)
    if keep:
        write_text(out.with_suffix(".md"), text)
        write(out.with_suffix(".json"), found)


def replace_between(path: Path, begin: str, text: str, end: str) -> None:
    """Put `text` between the first two marks of a file; the marks stay."""
    pattern = re.compile(rf"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
    found = path.read_text(encoding="utf-8")
    write_text(path, pattern.sub(lambda m: m[1] + text + m[2], found, count=1))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: bool = False) -> list[str]:
    """Lines of a Markdown table; all columns but the first stand to the right, unless `left`."""
    rule = "|" + "---|" * len(header) if left else f"| --- |{' ---: |' * (len(header) - 1)}"
    return [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]

"""The work folder of `specsim validate run`: what is done is kept, and a later call goes on.

    plan.json          the plan; a folder belongs to one
    records.jsonl      of `specsim measure`
    profile.toml, profile-engine.toml, calibration.json
    serving.jsonl      one line per load: first its prediction, then, once served, its measurement

A prediction is written before its load is served, with the time, and is never written again.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specsim.accuracy.run_plan import RunPlan
from specsim.checked import json_value
from specsim.errors import FormatError, UsageError
from specsim.files import file_text, told, write_whole
from specsim.jsonable import json_text

MAX_FILE_BYTES = 100_000_000


@dataclass
class WorkFolder:
    """Paths of a work folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.records = self.folder / "records.jsonl"
        self.profile = self.folder / "profile.toml"
        self.calibration = self.folder / "calibration.json"
        self.serving = self.folder / "serving.jsonl"

    def open(self, plan: RunPlan) -> None:
        """Make the folder, or check that it belongs to the same plan. UsageError otherwise."""
        path = self.folder / "plan.json"
        wanted = json_text(plan.to_dict(), indent=1)
        if not path.exists():
            write_whole(path, wanted + "\n")
        elif json_value(file_text(path), str(path)) != json.loads(wanted):
            raise UsageError(
                f"{self.folder} holds a run of another plan; choose another --work folder"
            )

    def lines(self) -> Iterator[dict[str, object]]:
        """Whole lines of serving.jsonl; one cut short by a killed run is passed over."""
        if not self.serving.exists():
            return
        if self.serving.stat().st_size > MAX_FILE_BYTES:
            raise FormatError(f"{self.serving} is larger than {MAX_FILE_BYTES} bytes")
        for number, line in enumerate(self.serving.read_bytes().split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                _ = found["load"], found["what"]
            except (ValueError, KeyError, TypeError, RecursionError):
                if not line.endswith(b"}"):
                    continue
                raise FormatError(f"{self.serving} line {number} is no line of a run") from None
            yield found

    def done(self) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]]]:
        """(predictions, measurements) by the key of their load."""
        predicted: dict[str, dict[str, object]] = {}
        measured: dict[str, dict[str, object]] = {}
        for line in self.lines():
            (predicted if line["what"] == "predicted" else measured)[str(line["load"])] = line
        return predicted, measured

    def add(self, line: dict[str, object]) -> None:
        """Append a line; flushed, so that stopping at any moment loses nothing finished."""
        with told(self.serving, FormatError), self.serving.open("ab") as file:
            # Begins a line of its own, whatever a killed run left of the one before.
            file.write((b"\n" if file.tell() else b"") + json_text(line).encode())
            file.flush()
            os.fsync(file.fileno())


def load_key(method: tuple[str, int], how: str, repeat: int) -> str:
    """'ngram k=3, Poisson 60 %, run 2'."""
    name, k = method
    return f"{f'{name} k={k}' if k else 'plain'}, {how}, run {repeat + 1}"


def situation(key: str) -> str:
    """The key without its repeat."""
    return key.rsplit(", run ", 1)[0]

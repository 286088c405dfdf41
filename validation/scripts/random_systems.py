"""Predictions and simulations of random deployments against what must hold: `--systems 50000`.

Each number names one deployment (`random_deployments`); what a server or specsim refuses is counted
and passed over. Findings go to a file, one line per number, and a run that was stopped goes on
where it was.

    python random_systems.py --systems 50000 --seed 0 --out /tmp/systems.jsonl
    python random_systems.py --simulate --systems 2000 --out /tmp/simulated.jsonl
"""

import argparse
import json
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import predict_properties
import random_deployments
import simulate_properties
from predict_properties import Miss

from specsim.errors import SpecSimError

Check = Callable[[int], list[Miss]]
Finding = dict[str, Any]


def predicted(number: int) -> list[Miss]:
    return predict_properties.misses(random_deployments.random_options(number), number)


def simulated(number: int) -> list[Miss]:
    return simulate_properties.misses(number)


def finding(number: int, check: Check) -> Finding:
    """What came of one number: refused, the misses, or a traceback (which is always a fault)."""
    try:
        missed = check(number)
    except SpecSimError as refusal:
        return {"number": number, "refused": str(refusal)[:80]}
    except Exception:
        return {"number": number, "traceback": traceback.format_exc(limit=-3)}
    return {"number": number, "misses": [[miss.rule, miss.by, miss.text] for miss in missed]}


def table(found: Iterable[Finding]) -> str:
    """How many were tried, and per property how many miss it, how far, and which does worst."""
    tried = refused = 0
    faults, rules = [], defaultdict(list)
    for line in found:
        refused += "refused" in line
        tried += "refused" not in line
        if "traceback" in line:
            faults.append(line["number"])
        for rule, by, text in line.get("misses", []):
            rules[rule].append((by, line["number"], text))
    lines = [f"{tried} systems, {refused} refused, {len(faults)} tracebacks {faults[:5] or ''}"]
    for rule, cases in sorted(rules.items()):
        by, number, text = max(cases)
        far = sum(case[0] > 0.01 for case in cases)
        lines.append(
            f"{rule}: {len(cases)} ({far} by more than 1%), worst {by:.2%} ({number}: {text})"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--systems", type=int, default=2000, help="that are not refused")
    parser.add_argument("--seed", type=int, default=0, help="first number")
    parser.add_argument("--out", type=Path, required=True, help="findings, gone on with")
    parser.add_argument("--simulate", action="store_true")
    given = parser.parse_args()
    check = simulated if given.simulate else predicted
    found: list[Finding] = []
    if given.out.exists():
        text = given.out.read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    tried = sum("refused" not in line for line in found)
    number = max((line["number"] for line in found), default=given.seed - 1)
    start, before = time.monotonic(), tried
    with given.out.open("a", encoding="utf-8") as out:
        while tried < given.systems:
            number += 1
            line = finding(number, check)
            found.append(line)
            out.write(json.dumps(line) + "\n")
            if "refused" not in line:
                tried += 1
                if tried % 100 == 0:
                    out.flush()
                    rate = (tried - before) / (time.monotonic() - start)
                    left = (given.systems - tried) / rate / 60
                    print(f"\r{tried} systems, {left:.0f} min left ", end="", file=sys.stderr)
    print("\n" + table(found))


if __name__ == "__main__":
    main()

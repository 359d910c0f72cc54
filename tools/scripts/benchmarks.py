#!/usr/bin/env python3
"""Writes docs/benchmarks.md from docs/benchmarks.json on stdout.

To record a figure: run its command, put the median or the range into its row with the date and the
machine, and run `tools/scripts/benchmarks.py docs/benchmarks.json >docs/benchmarks.md`.
"""

import json
import re
import sys

COLUMNS = ("what", "figure", "unit", "date", "machine", "command")
HEADER = """# Benchmarks

After this page you can compare this machine with measured speeds, and measure any of them again.

Figures are medians, or a range over several runs. The page is made from `benchmarks.json` by
`tools/scripts/benchmarks.py`. Predictions and measurements are stated at the speed that the machine
had when it was calibrated. Speeds on a GPU are in [GPUs](gpus.md), errors of predictions in
[accuracy](accuracy.md).

| machine | what it is |
| --- | --- |
"""


def fail(message):
    print(f"benchmarks: {message}", file=sys.stderr)
    sys.exit(3)


def check(place, row, machines):
    """Refuses a row that lacks a column, has another, or names an unknown machine."""
    if set(row) != set(COLUMNS):
        fail(f"{place}: has {sorted(row)}; expected {sorted(COLUMNS)}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]):
        fail(f"{place}.date: '{row['date']}'; expected YYYY-MM-DD")
    if row["machine"] not in machines:
        fail(f"{place}.machine: '{row['machine']}'; expected one of {', '.join(machines)}")


def main():
    if len(sys.argv) != 2:
        fail("usage: benchmarks.py docs/benchmarks.json")
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    lines = [f"| `{name}` | {text} |" for name, text in data["machines"].items()]
    for group, rows in data["groups"].items():
        lines += ["", f"## {group}", "", "| what | figure | unit | date | machine |",
                  "| --- | --: | --- | --- | --- |"]
        commands = {}
        for place, row in enumerate(rows):
            check(f"{group}[{place}]", row, data["machines"])
            number = commands.setdefault(row["command"], len(commands) + 1)
            lines.append(f"| [{number}] {row['what']} | {row['figure']} | {row['unit']} "
                         f"| {row['date']} | `{row['machine']}` |")
        lines += ["", "| | command |", "| --- | --- |"]
        lines += [f"| [{number}] | `{command}` |" for command, number in commands.items()]
    print(HEADER + "\n".join(lines))


if __name__ == "__main__":
    main()

"""The last screen of the quickstart: what was found, how sure that is, and what to do next.

Usage: quickstart_summary.py FOLDER, which is the quickstart's: report/, data, checkpoint/.
"""

import json
import os
import sys

# The search goes on for so many seconds when it has not settled.
MORE_SECONDS = 300


def interval(figure):
    """Returns "3400 tokens/s (3350 to 3460)"."""
    if figure["low"] is None:
        return f"{figure['tokens_per_s']:.0f} tokens/s"
    return f"{figure['tokens_per_s']:.0f} tokens/s ({figure['low']:.0f} to {figure['high']:.0f})"


def certainty(race):
    """Returns how sure the recommendation is, in a sentence."""
    if race["ended"] == "separated":
        return "ahead of every other layout"
    if race["ended"] == "tie":
        others = len(race["tied"]) - 1
        return f"tied with {others} more, within {race['indifference']:.0%}"
    if race["ended"] == "small_loss":
        return f"others may be as fast; expected loss {race['expected_loss']:.2%}"
    if race["ended"] == "not_run":
        return "nothing was measured: this is a prediction"
    loss = "" if race["expected_loss"] is None else f"; expected loss {race['expected_loss']:.1%}"
    return f"not settled: {len(race['unseparated'])} more may be as fast{loss}"


def shown(path):
    """Returns the path as it is typed here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def lines_of(report, folder):
    """Returns at most 15 lines."""
    best, race = report["recommended"], report["race"]
    lines = ["", f"Found     {best['layout']}", f"          {interval(best['figure'])}"]
    default = best["default"]
    if default and default["layout"] != best["layout"]:
        lines.append(f"Default   {default['layout']} at {default['tokens_per_s']:.0f} tokens/s "
                     f"({default['trust']}): the found one is {default['gain']:+.0%}")
    lines.append(f"How sure  {certainty(race)}")
    if report["machine"]:
        lines.append("Machine   " + report["machine"]["text"].removeprefix("this machine "))
    lines += [f"Report    {shown(folder + '/report/REPORT.html')}", "", "Next:"]
    more = f"TRIMTAB_SECONDS={MORE_SECONDS} tools/quickstart"
    settled = race["ended"] in ("separated", "tie", "small_loss")
    program = "bazel-bin/tools/trimtab"
    lines += [
        f"  {more:<46}  # {'measure on' if settled else 'settle the search'}",
        f"  {program} train --config {shown(folder + '/report/report.json')} \\",
        f"      --data {shown(folder + '/data')} --steps 1000 "
        f"--checkpoint {shown(folder + '/longer')}",
        f"  {program} search --model llama3-8b --cluster 8xh100 --gbs 128 --seq 8192 --prove 0",
    ]
    return lines


def main():
    folder = os.path.abspath(sys.argv[1])
    with open(f"{folder}/report/report.json", encoding="utf-8") as file:
        report = json.load(file)
    print("\n".join(lines_of(report, folder)))


if __name__ == "__main__":
    main()

"""The last lines of the quickstart: what was found, how sure that is, and what to try next.

Usage: quickstart_summary.py REPORT_FOLDER SEARCH_COMMAND
"""

import json
import sys


def interval(figure):
    """"3400 tokens/s (3350 to 3460)"."""
    if figure["low"] is None:
        return f"{figure['tokens_per_s']:.0f} tokens/s"
    return f"{figure['tokens_per_s']:.0f} tokens/s ({figure['low']:.0f} to {figure['high']:.0f})"


def certainty(report):
    """How sure the recommendation is, in a sentence."""
    race = report["race"]
    if race["ended"] == "separated":
        return "It is ahead of every other layout."
    if race["ended"] == "tie":
        return f"It shares first place with {len(race['tied']) - 1} more, within " \
               f"{race['indifference']:.0%}."
    if race["ended"] == "small_loss":
        return f"Others may be as fast; it is expected to be {race['expected_loss']:.2%} behind " \
               "the best."
    if race["ended"] == "not_run":
        return "Nothing was measured: this is a prediction."
    return f"Not settled yet: {len(race['unseparated'])} more may be as fast."


def main():
    folder, command = sys.argv[1:]
    with open(f"{folder}/report.json", encoding="utf-8") as file:
        report = json.load(file)
    best = report["recommended"]
    lines = ["", f"Found: {best['layout']} at {interval(best['figure'])}. {certainty(report)}"]
    default = best["default"]
    if default and default["layout"] != best["layout"]:
        lines.append(f"The plain default, {default['layout']}, runs at "
                     f"{default['tokens_per_s']:.0f} tokens/s ({default['trust']}).")
    if report["machine"]:
        text = report["machine"]["text"]
        lines.append(text[0].upper() + text[1:] + ".")
    lines.append(f"Report: {folder}/REPORT.html")
    lines.append(f"To measure further: {command}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

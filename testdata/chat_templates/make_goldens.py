#!/usr/bin/env python3
"""Writes jinja.json: what jinja2 makes of each template in snippets.py, or that it fails.

Needs Debian's python3-jinja2. Messages of faults are jinja2's own and are not compared, but those
of raise_exception.
"""

import copy
import json
import os

import reference
import snippets

HERE = os.path.dirname(os.path.abspath(__file__))


def snippet_list():
    """The snippets: a line each, but for those that a backslash goes on with."""
    joined = []
    for line in snippets.SNIPPETS:
        if joined and joined[-1].endswith("\\"):
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    return joined + snippets.BLOCKS


def main():
    cases = []
    for template in snippet_list():
        result = reference.render(template, copy.deepcopy(snippets.CONTEXT))
        if "generator object" in result.get("output", "") or " at 0x" in result.get("output", ""):
            raise SystemExit(f"prints an address: {template}")
        if "error" in result and "raise_exception" not in template:
            result["error"] = True
        cases.append({"template": template, **result})
    with open(os.path.join(HERE, "jinja.json"), "w", encoding="utf-8") as out:
        json.dump({"context": snippets.CONTEXT, "cases": cases}, out, ensure_ascii=False, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks texts: links, width and length of Markdown, and how comments begin.

usage: lint_words.py [FOLDER]      all of FOLDER; tools/lint calls it for the tracked files

The lists below name what does not keep to a limit yet. They only get shorter: an entry that is no
longer needed is a fault, too.
"""

import pathlib
import re
import sys
import unicodedata

MAX_COLUMNS = 100
MAX_README_LINES = 100

# The front page has a limit of its own.
LONGEST = {"README.md": 150}

# READMEs of folders that are longer.
LONG_READMES = {
    "search/serving/README.md",
}

# Pages with wider lines outside of tables and of code.
WIDE_PAGES = {
    "search/study/STUDY.md",
}

# Comments that begin with a word that hides the subject: "Whether it fits" for "True if it fits".
OPENING = re.compile(
    r"\s*///? (Of|Those|The same|What|Whether|Who|Whoever|Whose|Where|And that)\b")

# How many such comments each folder has at most.
OPENINGS = {
    "cost_model": 243,
    "engine": 580,
    "profiler": 79,
    "search": 146,
    "tests": 295,
    "tools": 85,
}

CPP = {".cc", ".cu", ".cuh", ".h"}


def prose_of(text):
    """Yields (number, line) of the lines outside of fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors_of(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    anchors = set()
    for _, line in prose_of(text):
        heading = re.match(r"#+ (.*)", line)
        if not heading:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
        kept = "".join(c for c in words
                       if c in "-_ " or unicodedata.category(c)[0] in "LN")
        anchor, copy = kept.replace(" ", "-"), 0
        while anchor in anchors:
            copy += 1
            anchor = f"{kept.replace(' ', '-')}-{copy}"
        anchors.add(anchor)
    return anchors


def links_of(text):
    """Yields (number, target) of the links and pictures of a page."""
    for number, line in prose_of(text):
        line = re.sub(r"`[^`]*`", "", line)
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            yield number, target
        defined = re.match(r"\[[^\]]+\]: (\S+)", line)
        if defined:
            yield number, defined[1]


def link_faults(root, path, text):
    for number, target in links_of(text):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (root / path.parent / place) if place else root / path
        if not file.exists():
            yield f"{path}:{number}: the link {target} leads nowhere"
        elif anchor and anchor not in anchors_of(file.read_text(encoding="utf-8")):
            yield f"{path}:{number}: {file.name} has no heading for #{anchor}"


def page_faults(root, path):
    text = (root / path).read_text(encoding="utf-8")
    yield from link_faults(root, path, text)
    name = path.as_posix()
    lines = len(text.splitlines())
    limit = LONGEST.get(name, MAX_README_LINES)
    if path.name == "README.md" and (lines > limit) != (name in LONG_READMES):
        yield (f"{path}: {lines} lines; take it out of LONG_READMES" if lines <= limit
               else f"{path}: {lines} lines, {limit} allowed")
    wide = [number for number, line in prose_of(text)
            if len(line) > MAX_COLUMNS and not line.startswith("|")]
    if name in WIDE_PAGES:
        if not wide:
            yield f"{path}: no line is too wide; take it out of WIDE_PAGES"
        return
    for number in wide:
        yield f"{path}:{number}: more than {MAX_COLUMNS} columns"


def openings_of(text):
    """Yields (number, word) of comments that begin with a word that hides the subject."""
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = OPENING.match(line)
        if match and not previous.lstrip().startswith("//"):
            yield number, match[1]
        previous = line


def comment_faults(root, paths):
    found = {}
    for path in paths:
        for number, word in openings_of((root / path).read_text(encoding="utf-8")):
            found.setdefault(path.parts[0], []).append(f"{path}:{number}: begins with '{word}'")
    for folder, places in sorted(found.items()):
        if len(places) > OPENINGS.get(folder, 0):
            yield (f"{folder}: {len(places)} comments begin with a word that hides the subject, "
                   f"{OPENINGS.get(folder, 0)} allowed; the last of them: {places[-1]}")


def word_faults(root, paths):
    """Returns the faults of `paths`, which are relative to `root`."""
    faults = []
    for path in paths:
        if path.suffix == ".md":
            faults += page_faults(root, path)
    return faults + list(comment_faults(root, [path for path in paths if path.suffix in CPP]))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    paths = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    faults = word_faults(root, paths)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Fills a folder with what a Debian system has when it holds a package's dependencies, and no more.

usage: clean_root.py PACKAGE.deb FOLDER

The files are this machine's: libraries of every package that PACKAGE depends on, directly or not,
and dpkg's record of those packages, so that dpkg can install PACKAGE there.
"""

import pathlib
import re
import shutil
import subprocess
import sys


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names_in(field):
    """Returns the first alternative of each dependency: "a (>= 1) | b, c" names a and c."""
    return re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]*)", field)


def closure_of(names):
    """Returns the named packages and what they depend on; all are installed here."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        field = run("dpkg-query", "-W", "-f", "${Depends},${Pre-Depends}\n", name).splitlines()[0]
        found.add(name)
        waiting += names_in(field.strip(","))
    return sorted(found)


def copy_libraries(package, root):
    for line in run("dpkg", "-L", package).splitlines():
        source = pathlib.Path(line)
        if ".so" not in source.name or source.is_dir():
            continue
        # Both names of a merged /usr lead to one place.
        target = root / str(source.parent.resolve()).lstrip("/") / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target, follow_symlinks=False)


def main():
    package, root = sys.argv[1], pathlib.Path(sys.argv[2])
    for name in ("lib", "lib64", "bin", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "tmp").mkdir()
    packages = closure_of(names_in(run("dpkg-deb", "-f", package, "Depends")))
    with open(root / "var/lib/dpkg/status", "w", encoding="utf-8") as status:
        for name in packages:
            copy_libraries(name, root)
            status.write(run("dpkg-query", "-s", name) + "\n")
    print(f"{len(packages)} packages")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Packs programs and the shared libraries they load into one archive.

usage: pack.py MANIFEST NAME ARCHIVE

MANIFEST has a line "kind<TAB>place<TAB>file" for everything that goes in; see build/bundle.bzl.
"""

import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# A cluster's nodes get it copied, and some ways of copying stop at 64 MiB.
MOST_BYTES = 60 << 20

# The programs share most of their code. A window that reaches from one into others finds that; the
# effort beside it gains little.
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]

# What every Linux has: the C library, in versions that the programs fit or do not.
C_LIBRARY = re.compile(
    r"^(linux-vdso|ld-linux|lib(c|m|mvec|pthread|dl|rt|resolv|util)\.)")
# What the nodes have in the version that fits their driver.
CUDA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvidia-\w+)\.")
# Newer ones are better, so these are used only where the node's own are too old.
COMPILER = re.compile(r"^lib(stdc\+\+|gcc_s)\.")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(program):
    """Names and paths of the shared libraries that the program loads, also indirectly."""
    for line in run("ldd", str(program)).splitlines():
        fields = line.split()
        name = pathlib.Path(fields[0]).name
        if "=>" not in fields or C_LIBRARY.match(name) or CUDA.match(name):
            continue
        if fields[2] == "not":
            sys.exit(f"pack: {program.name} needs {name}, which is not here")
        yield name, pathlib.Path(fields[2])


def needed_c_library(files):
    """The oldest version of glibc that has every function that is called."""
    versions = {(0,)}
    for file in files:
        found = re.findall(r"\(?GLIBC_([0-9.]+)\)?", run("objdump", "-T", str(file)))
        versions.update(tuple(int(part) for part in version.split(".")) for version in found)
    return ".".join(str(part) for part in max(versions))


def place(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def is_script(file):
    with open(file, "rb") as opened:
        return opened.read(2) == b"#!"


def fill(root, manifest):
    programs = []
    plugins = []
    for line in manifest.read_text().splitlines():
        kind, where, file = line.split("\t")
        runs = kind in ("program", "plugin") or kind == "script" and not pathlib.Path(where).suffix
        place(file, root / where, 0o755 if runs else 0o644)
        if kind == "program" and not is_script(root / where):
            programs.append(root / where)
        if kind == "plugin":
            plugins.append(root / where)
    libraries = {}
    for program in programs:
        libraries.update(libraries_of(program))
    for name, file in sorted(libraries.items()):
        place(file, root / ("lib/compiler" if COMPILER.match(name) else "lib") / name, 0o755)
    for program in programs + plugins:
        run("strip", str(program))
    used = programs + [file for file in (root / "lib").iterdir() if file.is_file()]
    (root / "README.txt").write_text(
        (root / "README.txt").read_text().replace("@GLIBC@", needed_c_library(used)))


def main():
    manifest, name, archive = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / name
        fill(root, manifest)

        def plain(entry):  # the same bytes from the same programs
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            return entry

        with lzma.open(archive, "wb", filters=COMPRESSION) as packed:
            with tarfile.open(fileobj=packed, mode="w") as tar:
                for path in sorted(root.rglob("*")):
                    tar.add(path, f"{name}/{path.relative_to(root)}", recursive=False, filter=plain)
    size = archive.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"pack: {archive.name} has {size >> 20} MiB, more than {MOST_BYTES >> 20}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the Debian package: the program, its backends, man pages and completion.

usage: pack_deb.py PACKAGE FILE ...

FILEs are trimtab, version.h, LICENSE, CHANGELOG.md and backends (libtrimtab_NAME.so), found by
their names. The same inputs make the same bytes.
"""

import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Of every file, so that the package does not depend on when it is made: 2026-01-01.
EPOCH = "1767225600"

CONTROL = """Package: trimtab
Version: {version}
Architecture: {architecture}
Maintainer: Trimtab developers <trimtab@localhost>
Installed-Size: {kibibytes}
Depends: {depends}
Recommends: openmpi-bin
Section: science
Priority: optional
Description: finds the fastest way to train or serve a language model
 Trimtab ranks layouts of a training run, or configurations of a service, for
 the machines that you have, proves the best with short runs of its own engine,
 and then trains or serves with it. Predictions need no GPU.
"""

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: Trimtab developers
License: Apache-2.0
 On Debian systems the text of the license is in
 /usr/share/common-licenses/Apache-2.0.
"""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def owner_of(library):
    """Returns the package that a shared library belongs to, under either name of /lib."""
    path = str(library)
    for name in (path, f"/usr{path}", path.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"pack_deb: {path} belongs to no package")


def depends_of(program):
    """Returns the packages of the libraries that the program itself names."""
    needed = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", str(program))))
    packages = set()
    for line in run("ldd", str(program)).splitlines():
        fields = line.split()
        if fields[0] not in needed or "=>" not in fields:
            continue
        if fields[2] == "not":
            sys.exit(f"pack_deb: {program.name} needs {fields[0]}, which is not here")
        packages.add(owner_of(pathlib.Path(fields[2])))
    return sorted(packages)


def write(path, data, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)


def fill(root, files):
    program = files["trimtab"]
    library = root / "usr/lib/trimtab"
    for file in [program, *(file for file in files.values() if file.suffix == ".so")]:
        write(library / file.name, file.read_bytes(), 0o755)
        run("strip", str(library / file.name))
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/trimtab").symlink_to("../lib/trimtab/trimtab")
    share = root / "usr/share"
    with tempfile.TemporaryDirectory() as pages:
        run(str(program), "manual", "--format", "man", "--out", pages)
        for page in sorted(pathlib.Path(pages).iterdir()):
            packed = gzip.compress(page.read_bytes(), mtime=0)
            write(share / "man/man1" / f"{page.name}.gz", packed)
    write(share / "bash-completion/completions/trimtab",
          run(str(program), "manual", "--format", "bash"))
    write(share / "zsh/vendor-completions/_trimtab", run(str(program), "manual", "--format", "zsh"))
    write(share / "doc/trimtab/copyright", COPYRIGHT)
    write(share / "doc/trimtab/LICENSE.gz", gzip.compress(files["LICENSE"].read_bytes(), mtime=0))
    write(share / "doc/trimtab/changelog.gz",
          gzip.compress(files["CHANGELOG.md"].read_bytes(), mtime=0))


def add_control(root, program, version):
    files = sorted(file for file in root.rglob("*") if file.is_file() and not file.is_symlink())
    sums = "".join(f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n"
                   for file in files)
    control = CONTROL.format(
        version=version,
        architecture=run("dpkg", "--print-architecture").strip(),
        kibibytes=sum(file.stat().st_size + 1023 >> 10 for file in files),
        depends=", ".join(depends_of(program)))
    write(root / "DEBIAN/control", control)
    write(root / "DEBIAN/md5sums", sums)
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (int(EPOCH), int(EPOCH)), follow_symlinks=False)


def main():
    package, *paths = map(pathlib.Path, sys.argv[1:])
    files = {path.name: path for path in paths}
    version = re.search(r'kVersion = "([^"]+)"', files["version.h"].read_text())[1]
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / "trimtab"
        root.mkdir()
        fill(root, files)
        add_control(root, files["trimtab"], version)
        os.environ["SOURCE_DATE_EPOCH"] = EPOCH
        # One thread: how many there are changes what xz writes.
        run("dpkg-deb", "-Zxz", "--threads-max=1", "--root-owner-group", "--build", str(root),
            str(scratch) + "/package.deb")
        shutil.copyfile(scratch + "/package.deb", package)


if __name__ == "__main__":
    main()

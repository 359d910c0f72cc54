#!/usr/bin/env python3
"""What each CUDA kernel takes, as ptxas said when it was compiled. Needs no GPU.

usage: kernel_report.py [--check] FILE...

FILE is what ptxas printed for a source (-v). Prints a table, a row for each function template and
architecture: the most that any of its instances takes. Threads: how many a multiprocessor can hold,
as far as registers go. With --check prints only the kernels that spill registers to memory, and
exits 1 if there is one that is not in ALLOWED.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

# Kernels that may spill, and why.
ALLOWED = {
    "ForwardKernel": "tensor cores forward: heads of 128 need more than all 255 registers",
    "KeyValueKernel": "tensor cores backward: the largest heads need more than all 255 registers",
    "QueryKernel": "attention for shapes that no other kernel takes; 32 bytes",
    "UnpermuteKernel": "8 bytes in the worst of its variants",
}

REGISTERS = 65536  # of a multiprocessor, on sm_80 to sm_100
MOST_THREADS = 2048
WARP = 32
GRANULE = 256  # registers that a warp is given at a time

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")

Kernel = collections.namedtuple("Kernel", "source name arch registers stack spills shared")


def demangled(names):
    found = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True,
                           text=True)
    return dict(zip(names, found.stdout.splitlines()))


def template_name(signature):
    """"void trimtab::(anonymous namespace)::MaxKernel<4, float>(...)" is "MaxKernel"."""
    plain = re.sub(r"\(anonymous namespace\)::|trimtab::", "", signature)
    return re.split(r"[<(]", plain.removeprefix("void "))[0].split("::")[-1]


def kernels_of(path):
    source = path.name.removesuffix(".ptxas")
    entry, stack, spills = None, 0, 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := ENTRY.search(line):
            entry, stack, spills = match.groups(), 0, 0
        elif (match := SPILLS.search(line)) and entry:
            stack, spills = int(match[1]), int(match[2]) + int(match[3])
        elif (match := USED.search(line)) and entry:
            shared = SHARED.search(line)
            yield Kernel(source, entry[0], entry[1], int(match[1]), stack, spills,
                         int(shared[1]) if shared else 0)
            entry = None


def resident_threads(registers):
    warp = -(-registers * WARP // GRANULE) * GRANULE
    return min(MOST_THREADS, REGISTERS // warp * WARP)


def rows_of(kernels):
    """By source, template and architecture: the most of each, and how many instances there are."""
    names = demangled([kernel.name for kernel in kernels])
    groups = collections.defaultdict(list)
    for kernel in kernels:
        groups[kernel.source, template_name(names[kernel.name]), kernel.arch].append(kernel)
    return [Kernel(*key, *(max(each[i] for each in group) for i in range(3, 7))) + (len(group),)
            for key, group in sorted(groups.items())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    kernels = [kernel for path in options.files for kernel in kernels_of(path)]
    if not kernels:
        sys.exit("kernel_report: no kernel in these files; expected what ptxas -v prints")
    rows = rows_of(kernels)
    if options.check:
        spilling = [row for row in rows if row[5] > 0]
        for source, name, arch, _, _, spills, *_ in spilling:
            reason = ALLOWED.get(name, "not allowed")
            print(f"{source}: {name} spills {spills} bytes on {arch}: {reason}")
        unused = ALLOWED.keys() & {row[1] for row in rows} - {row[1] for row in spilling}
        for name in sorted(unused):
            print(f"{name} spills nothing and need not be in ALLOWED")
        sys.exit(1 if unused or any(row[1] not in ALLOWED for row in spilling) else 0)
    print("| source | kernel | instances | GPU | registers | threads | stack | spills | shared |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for source, name, arch, registers, stack, spills, shared, count in rows:
        print(f"| `{source}` | {name} | {count} | {arch} | {registers} | "
              f"{resident_threads(registers)} | {stack} | {spills} | {shared} |")


if __name__ == "__main__":
    main()

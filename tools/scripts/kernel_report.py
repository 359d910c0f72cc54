#!/usr/bin/env python3
"""What each CUDA kernel takes, as its compiler said. Needs no GPU.

usage: kernel_report.py [--check] FILE...

FILE is what ptxas printed for a source (-v; .ptxas) or its PTX (.ptx). Prints a table, a row for
each function template: the most that any of its instances takes, for each architecture that it was
compiled for, or once where they all agree. Threads: how many a multiprocessor holds. Loads, and KiB
in flight: what a thread, and all of them, have on their way from memory at once (ptx_loops.py says
how that is counted), in the instance that has most.

By Little's law a multiprocessor needs latency times bandwidth in flight: 1 us, under load, of the
36 GB/s that each of an H200's 132 has of 4.8 TB/s. With --check prints only the kernels that spill
registers to memory and those with less in flight than ENOUGH, and exits 1 if there is one that is
not in SPILLING or LATENT, or one there that need not be.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

import ptx_loops

CHOSEN = "a few bytes, of ptxas's own choosing, for more blocks on a multiprocessor"
UNALIGNED = "rows of 16 bits that are not whole packs"
SIMPLE = "attention for shapes that no other kernel takes: bound by its arithmetic"
# Kernels that may spill, and why; with architectures, only there.
SPILLING = {
    ("adamw.cu", "AdamWKernel", "sm_80"): CHOSEN,
    ("attention_mma_forward.cu", "ForwardKernel"): "heads of 128 need more than all 255 registers",
    ("attention_mma_backward.cu", "KeyValueKernel"):
        "the largest heads need more than all 255 registers",
    ("attention_simple_forward.cu", "ForwardKernel", "sm_100"): SIMPLE,
    ("attention_simple_backward.cu", "KeyValueKernel", "sm_90a"): SIMPLE,
    ("attention_simple_backward.cu", "QueryKernel", "sm_100"): SIMPLE,
    ("cross_entropy.cu", "GradKernel", "sm_100"): UNALIGNED,
    ("cross_entropy.cu", "LossKernel", "sm_100"): UNALIGNED,
    ("embedding.cu", "PositionBackwardKernel", "sm_80", "sm_100"): CHOSEN,
    ("norm_backward_fp8.cu", "NormBackwardKernel", "sm_80"): "sm_80 has no fp8 products: never run",
    ("permute.cu", "UnpermuteKernel", "sm_90a"): CHOSEN,
    ("sequence_routing.cu", "SinkhornKernel", "sm_80"): CHOSEN,
}
A100 = "more than the 19 kB that an A100 needs for its 2.0 TB/s over 108 multiprocessors"
TENSOR_CORES = "waits for tensor cores; its tiles come through shared memory"
BESIDE_PRODUCTS = "a small part of an update, between products of whole matrices"
WHOLE_NORM = "norms of whole queries and keys, a small part of a layer that has them"
SMALL = "reads a few numbers of each token, expert or tensor"
ROWS = "a warp reads a row a pack at a time; several rows at once would have more on their way"
# Kernels that may have less than ENOUGH in flight, and why.
LATENT = {
    ("attention_mma_backward.cu", "QueryKernel"): TENSOR_CORES,
    ("attention_mma_forward.cu", "ForwardKernel"): TENSOR_CORES,
    ("attention_simple_backward.cu", "KeyValueKernel"): SIMPLE,
    ("attention_simple_backward.cu", "QueryKernel"): SIMPLE,
    ("attention_simple_backward.cu", "RowSumKernel", "sm_80"): A100,
    ("attention_simple_forward.cu", "ForwardKernel"): SIMPLE,
    ("attention_sink.cu", "SinkKernel"): SMALL,
    ("clip.cu", "ClipKernel", "sm_80", "sm_90a"): SMALL,
    ("embedding_backward.cu", "CountRows"): SMALL,
    ("embedding_backward.cu", "ListTokens"): SMALL,
    ("embedding_backward.cu", "PlaceFrequentRows"): SMALL,
    ("embedding_backward.cu", "PlaceRareRows"): SMALL,
    ("head_norm.cu", "ForwardKernel", "sm_80"): A100,
    ("head_norm.cu", "InputGradientKernel", "sm_80"): A100,
    ("newton_schulz.cu", "NormalizeKernel"): BESIDE_PRODUCTS,
    ("newton_schulz.cu", "QuinticKernel"): BESIDE_PRODUCTS,
    ("packed_gemm.cu", "PackedLookupKernel"): ROWS,
    ("paged_attention.cu", "StoreKvKernel", "sm_80", "sm_90a"): ROWS,
    ("permute.cu", "CountChunks"): SMALL,
    ("permute.cu", "PlaceArrivals"): SMALL,
    ("permute.cu", "PlaceChoices"): SMALL,
    ("permute.cu", "PlaceChunks", "sm_80", "sm_90a"): SMALL,
    ("quantize.cu", "Fp8ScalesKernel"): SMALL,
    ("router.cu", "ChooseInTurnKernel"): SMALL,
    ("router.cu", "CountKernel"): SMALL,
    ("router.cu", "ExpertBiasKernel", "sm_80", "sm_90a"): SMALL,
    ("router.cu", "WeightsBackwardKernel", "sm_80", "sm_90a"): SMALL,
    ("router.cu", "WeightsKernel", "sm_80", "sm_90a"): SMALL,
    ("sequence_routing.cu", "DropKernel"): SMALL,
    ("whole_norm.cu", "ForwardKernel"): WHOLE_NORM,
    ("whole_norm.cu", "SquaresKernel"): WHOLE_NORM,
}
ENOUGH = 40e3  # bytes of a multiprocessor

REGISTERS = 65536  # of a multiprocessor, on sm_80 to sm_100
MOST_THREADS = 2048
MOST_BLOCKS = 32
# Bytes of a multiprocessor, for the architectures that the tables above speak of.
SHARED_BYTES = {"sm_80": 164 * 1024, "sm_90a": 228 * 1024, "sm_100": 228 * 1024}
SHARED_OF_SYSTEM = 1024  # that each block takes besides its own
WARP = 32
GRANULE = 256  # registers that a warp is given at a time

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")

Kernel = collections.namedtuple(
    "Kernel", "source name arch registers stack spills shared loop threads")
Row = collections.namedtuple(
    "Row", ["source", "name", "arch", "instances", "registers", "threads", "stack", "spills",
            "shared", "loads", "in_flight", "per_byte"])


def demangled(names):
    found = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True,
                           text=True)
    return dict(zip(names, found.stdout.splitlines()))


def template_name(signature):
    """"void trimtab::(anonymous namespace)::MaxKernel<4, float>(...)" is "MaxKernel"."""
    plain = re.sub(r"\(anonymous namespace\)::|trimtab::", "", signature)
    return re.split(r"[<(]", plain.removeprefix("void "))[0].split("::")[-1]


def kernels_of(path, functions):
    """What a file of ptxas says; `functions` are those of the PTX, by name and architecture."""
    source = path.name.removesuffix(".ptxas")
    entry, stack, spills = None, 0, 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := ENTRY.search(line):
            entry, stack, spills = match.groups(), 0, 0
        elif (match := SPILLS.search(line)) and entry:
            stack, spills = int(match[1]), int(match[2]) + int(match[3])
        elif (match := USED.search(line)) and entry:
            shared = SHARED.search(line)
            if entry not in functions:
                sys.exit(f"kernel_report: {path}: {entry[0]} for {entry[1]} is in none of the "
                         ".ptx files")
            yield kernel(source, functions[entry], int(match[1]), stack, spills,
                         int(shared[1]) if shared else 0)
            entry = None


def kernel(source, function, registers, stack, spills, shared):
    if function.arch not in SHARED_BYTES:
        sys.exit(f"kernel_report: {source}: compiled for {function.arch}; known are "
                 + ", ".join(SHARED_BYTES))
    return Kernel(source, function.name, function.arch, registers, stack, spills, shared,
                  ptx_loops.main_loop(function.body),
                  resident_threads(function, registers, shared))


def resident_threads(function, registers, shared):
    # A kernel that does not say how large its blocks are has them of any size.
    block = function.block_threads or WARP
    most_blocks = MOST_BLOCKS if function.block_threads else MOST_THREADS // WARP
    warps = -(-block // WARP)
    of_registers = REGISTERS // (-(-registers * WARP // GRANULE) * GRANULE) // warps
    of_shared = SHARED_BYTES[function.arch] // (shared + SHARED_OF_SYSTEM)
    return block * min(of_registers, of_shared, MOST_THREADS // block, most_blocks)


def in_flight(kernel):
    return kernel.loop.bytes_in_flight * kernel.threads


def rows_of(kernels):
    """By source, template and architecture: the most of each, and how many instances there are."""
    names = demangled([kernel.name for kernel in kernels])
    groups = collections.defaultdict(list)
    for kernel in kernels:
        groups[kernel.source, template_name(names[kernel.name]), kernel.arch].append(kernel)
    for key, group in sorted(groups.items()):
        registers, stack, spills, shared = (
            max(getattr(each, field) for each in group)
            for field in ("registers", "stack", "spills", "shared"))
        best = max(group, key=in_flight)
        yield Row(*key, len(group), registers, best.threads, stack, spills, shared, best.loop.loads,
                  in_flight(best), best.loop.instructions / max(1, best.loop.bytes_moved))


def allowed(table, archs):
    """The reasons of a table by source, kernel and architecture."""
    return {(source, kernel, arch): reason for (source, kernel, *only), reason in table.items()
            for arch in only or archs}


def contradicts_tables(rows):
    """Prints what spills or has too little in flight; whether the tables say otherwise."""
    wrong = False
    compiled = {row[:3] for row in rows}
    for what, table, found in (
            ("spills", SPILLING, {row[:3]: f"{row.spills} bytes" for row in rows if row.spills}),
            ("has in flight", LATENT,
             {row[:3]: f"{row.in_flight / 1e3:.1f} kB of {ENOUGH / 1e3:.0f}"
              for row in rows if row.loads and row.in_flight < ENOUGH})):
        reasons = allowed(table, {row.arch for row in rows})
        for (source, name, arch), amount in found.items():
            reason = reasons.get((source, name, arch), "not allowed")
            print(f"{source}: {name} {what} {amount} on {arch}: {reason}")
            wrong |= reason == "not allowed"
        for source, name, arch in sorted(reasons.keys() & compiled - found.keys()):
            print(f"{source}: {name} need not be in the table of what {what} on {arch}")
            wrong = True
    return wrong


def print_table(rows):
    columns = ["source", "kernel", "instances", "registers", "threads", "stack", "spills", "shared",
               "loads", "KiB in flight", "instructions a byte"]
    print("| " + " | ".join(columns) + " |\n" + "| --- " * len(columns) + "|")
    kernels = collections.defaultdict(dict)
    for row in rows:
        kernels[row.source, row.name][row.arch] = [
            row.instances, row.registers, row.threads, row.stack, row.spills, row.shared, row.loads,
            f"{row.in_flight / 1024:.0f}", f"{row.per_byte:.1f}"]
    for (source, name), by_arch in kernels.items():
        known = [by_arch[arch] for arch in SHARED_BYTES if arch in by_arch]
        cells = [" / ".join(map(str, values if len(set(values)) > 1 else values[:1]))
                 for values in zip(*known)]
        print(f"| `{source}` | {name} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    functions = {(function.name, function.arch): function
                 for path in options.files if path.suffix == ".ptx"
                 for function in ptx_loops.functions_of(path.read_text(encoding="utf-8"))}
    kernels = [kernel for path in options.files if path.suffix == ".ptxas"
               for kernel in kernels_of(path, functions)]
    if not kernels:
        sys.exit("kernel_report: no kernel in these files; expected what ptxas -v prints, and PTX")
    rows = list(rows_of(kernels))
    if options.check:
        sys.exit(1 if contradicts_tables(rows) else 0)
    print_table(rows)


if __name__ == "__main__":
    main()

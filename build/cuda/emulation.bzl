"""CUDA sources compiled for the host over the emulation header, to be tested without a GPU."""

load("//build:copts.bzl", "TRIMTAB_COPTS")

def trimtab_emulated_library(name, srcs, host_srcs = [], hdrs = [], deps = [], **kwargs):
    """The same sources as a trimtab_cuda_library's, compiled by the host compiler. For tests only.

    `host_srcs` are ordinary C++, for what a GPU gets from NVIDIA's libraries.

    Needs no CUDA toolkit. Its symbols stay out of the dynamic table of programs: a CUDA backend
    that the same program loads has kernels of the same names.
    """
    copies = []
    for source in srcs:
        copy = source.rpartition(".")[0] + "_emulated.cc"
        native.genrule(
            name = name + "_" + copy,
            testonly = True,
            srcs = [source],
            outs = [copy],
            cmd = "(echo '#line 1 \"$(location " + source + ")\"'; cat $<) > $@",
        )
        copies.append(copy)
    native.cc_library(
        name = name,
        testonly = True,
        srcs = copies + host_srcs,
        hdrs = hdrs,
        copts = TRIMTAB_COPTS + [
            # Quick to compile; what runs is small.
            "-O1",
            "-Wno-unknown-pragmas",
            # Loads and uses that stand under equal conditions, apart.
            "-Wno-maybe-uninitialized",
            "-fvisibility=hidden",
        ],
        # Headers say what they mean under either compiler; those who include them must agree.
        defines = ["TRIMTAB_CUDA_EMULATION"],
        linkstatic = True,
        deps = deps + ["//engine/device/cuda/emulation"],
        **kwargs
    )

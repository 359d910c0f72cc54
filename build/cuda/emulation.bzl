"""CUDA sources compiled for the host over the emulation header, to be tested without a GPU."""

load("//build:copts.bzl", "TRIMTAB_COPTS")

def trimtab_emulated_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """The same sources as a trimtab_cuda_library's, compiled by the host compiler. For tests only.

    Needs no CUDA toolkit. Its symbols stay out of the dynamic table of programs: a CUDA backend that
    the same program loads has kernels of the same names.
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
        srcs = copies,
        hdrs = hdrs,
        copts = TRIMTAB_COPTS + [
            "-Wno-unknown-pragmas",
            "-fvisibility=hidden",
        ],
        # Headers say what they mean under either compiler; those who include them must agree.
        defines = ["TRIMTAB_CUDA_EMULATION"],
        linkstatic = True,
        deps = deps + ["//engine/device/cuda/emulation"],
        **kwargs
    )

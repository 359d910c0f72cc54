"""Every compiler flag of the project, in one place."""

# No -march: the binary must run on any x86-64 or arm64 machine. Kernels that gain from wider
# vectors choose at run time (target attributes); dense products go through oneDNN, which does too.
TRIMTAB_COPTS = [
    "-std=c++20",
    "-O3",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Werror",
]

# For what runs a few times per command and is mostly JSON or flags: a third less to compile.
RUNS_ONCE_COPTS = ["-O1"]

TRIMTAB_LINKOPTS = ["-pthread"]

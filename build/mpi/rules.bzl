"""Rules for what needs MPI. Where there is none their targets are skipped, not failed."""

load("@mpi//:defs.bzl", "MPI_FOUND")
load("//build:copts.bzl", "TRIMTAB_COPTS", "TRIMTAB_LINKOPTS")

_COMPATIBLE = [] if MPI_FOUND else ["//build/mpi:library_missing"]

def trimtab_mpi_backend(name, srcs, deps, **kwargs):
    """The shared object lib<name>.so, which programs load under mpirun."""
    native.cc_binary(
        name = "lib%s.so" % name,
        srcs = srcs,
        deps = deps + ["@mpi//:mpi"],
        copts = TRIMTAB_COPTS,
        linkshared = True,
        linkopts = TRIMTAB_LINKOPTS,
        target_compatible_with = _COMPATIBLE,
        **kwargs
    )

def if_mpi(labels):
    """The labels on a machine with MPI, nothing on another."""
    return labels if MPI_FOUND else []

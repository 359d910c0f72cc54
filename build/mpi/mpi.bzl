"""Finds the Open MPI of this machine, if it has one."""

def _folders(ctx, mpicxx, what):
    result = ctx.execute([mpicxx, "--showme:" + what])
    return result.stdout.strip().split(" ") if result.return_code == 0 else []

def _find(ctx):
    mpicxx = ctx.which("mpicxx")
    if not mpicxx:
        return None
    headers = [
        folder
        for folder in _folders(ctx, mpicxx, "incdirs")
        if ctx.path(folder + "/mpi.h").exists
    ]
    lib_dirs = _folders(ctx, mpicxx, "libdirs")
    return struct(include = headers[0], lib_dirs = lib_dirs) if headers else None

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = {linkopts},
)
"""

_NO_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(name = "mpi")
"""

def _mpi_impl(ctx):
    found = _find(ctx)
    if found:
        ctx.symlink(found.include, "include")
        linkopts = []
        for folder in found.lib_dirs:
            linkopts += ["-L" + folder, "-Wl,-rpath," + folder]
        ctx.file("BUILD", _BUILD.format(linkopts = linkopts + ["-lmpi"]))
    else:
        ctx.file("BUILD", _NO_BUILD)
    ctx.file("defs.bzl", "MPI_FOUND = %s\n" % (found != None))

mpi = repository_rule(
    implementation = _mpi_impl,
    doc = """A repository with a library :mpi, and a defs.bzl that says whether there is one: that
of the mpicxx on PATH, if it is Open MPI's and its headers are installed.""",
    environ = ["PATH"],
    local = True,
)

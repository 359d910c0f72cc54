"""The macros that every BUILD file of the project uses instead of the bare cc_* rules."""

load("//build:copts.bzl", "RUNS_ONCE_COPTS", "TRIMTAB_COPTS", "TRIMTAB_LINKOPTS")

def trimtab_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        copts = [],
        runs_once = False,
        **kwargs):
    """A C++ library. `alwayslink = True` is for sources that register themselves at start-up.

    `runs_once = True` is for code whose speed nobody notices: less to optimise, sooner compiled.
    """
    native.cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        copts = TRIMTAB_COPTS + (RUNS_ONCE_COPTS if runs_once else []) + copts,
        # Only the archive is of use: tests and binaries link statically.
        linkstatic = True,
        **kwargs
    )

# Tests and benchmarks are packed into the bundle; nobody else uses them.
BUNDLED = ["//tools:__pkg__"]

def trimtab_binary(
        name,
        srcs,
        deps = [],
        copts = [],
        linkopts = [],
        visibility = None,
        **kwargs):
    """A C++ program. With data = ["//engine:cuda_backend"] it can use GPUs."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        deps = deps,
        copts = TRIMTAB_COPTS + copts,
        # A backend loaded on demand must share the program's registries, so it sees its symbols.
        linkopts = TRIMTAB_LINKOPTS + ["-rdynamic"] + linkopts,
        visibility = visibility or (BUNDLED if kwargs.get("testonly") else None),
        **kwargs
    )

def trimtab_test(
        name,
        srcs,
        deps = [],
        data = [],
        size = "small",
        copts = [],
        linkopts = [],
        visibility = BUNDLED,
        **kwargs):
    """A GoogleTest program: gtest and its main() are linked in."""
    native.cc_test(
        name = name,
        srcs = srcs,
        deps = deps + ["//build/third_party:gtest_main"],
        data = data,
        size = size,
        copts = TRIMTAB_COPTS + copts,
        linkopts = TRIMTAB_LINKOPTS + ["-rdynamic"] + linkopts,
        # The same objects as the programs use: nothing is compiled twice.
        linkstatic = True,
        visibility = visibility,
        **kwargs
    )

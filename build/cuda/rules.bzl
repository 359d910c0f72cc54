"""Rules for CUDA sources. Where there is no toolkit their targets are skipped, not failed."""

load(
    "@cuda_toolkit//:defs.bzl",
    "CUDA_FOUND",
    "CUDA_LIB_DIR",
    "CUDA_ROOT",
    "CUDNN_FOUND",
    "NCCL_FOUND",
)
load("//build:copts.bzl", "TRIMTAB_COPTS", "TRIMTAB_LINKOPTS")
load("//build:rules.bzl", "BUNDLED")

_ARCHITECTURES = ["sm_80", "sm_90a", "sm_100"]

_ArchInfo = provider(fields = ["names"])

def _cuda_arch_flag_impl(ctx):
    names = ctx.build_setting_value.split(",")
    for name in names:
        if name not in _ARCHITECTURES:
            fail("unknown GPU architecture %s, known: %s" % (name, ", ".join(_ARCHITECTURES)))
    return _ArchInfo(names = names)

cuda_arch_flag = rule(
    implementation = _cuda_arch_flag_impl,
    build_setting = config.string(flag = True),
)

# REPORT LISTING NVCC...: what ptxas says goes to one file, the PTX of all architectures to another.
_COMPILE = """
report=$1 listing=$2; shift 2
kept=$(mktemp -d) && trap 'rm -rf "$kept"' EXIT
"$@" -keep -keep-dir "$kept" 2>"$report" || { cat "$report" >&2; exit 1; }
find "$kept" -name '*.ptx' -exec cat {} + >"$listing"
"""

def _cuda_objects_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    flags = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Werror=all-warnings"]
    names = ctx.attr._arch[_ArchInfo].names
    for name in names:
        flags.append("-gencode=arch=%s,code=%s" % (name.replace("sm_", "compute_"), name))
    if len(names) > 1:
        # For GPUs to come the driver compiles this. Never that of sm_90a, which is for it alone.
        virtual = names[-1].replace("sm_", "compute_")
        flags.append("-gencode=arch=%s,code=%s" % (virtual, virtual))

    # What each kernel takes goes to files beside the object: see //tools:kernel_report.
    flags.append("-Xptxas=-v")

    # The host compiler gets the project's flags, less the language standard: nvcc sets that.
    flags += ["-Xcompiler=" + flag for flag in TRIMTAB_COPTS if not flag.startswith("-std=")]
    flags += ["-Xcompiler=-fPIC", "-DNDEBUG", "-I."]

    # fmt takes nvcc for an older compiler than it is, and then contradicts itself under C++20.
    flags.append("-DFMT_USE_CONSTEXPR=1")
    flags += ["-D" + define for define in context.defines.to_list()]
    flags += ["-isystem=" + path for path in context.system_includes.to_list()]

    objects = []
    reports = []
    listings = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, source.basename))
        report = ctx.actions.declare_file("_objs/%s/%s.ptxas" % (ctx.label.name, source.basename))
        listing = ctx.actions.declare_file("_objs/%s/%s.ptx" % (ctx.label.name, source.basename))
        ctx.actions.run_shell(
            command = _COMPILE,
            arguments = [report.path, listing.path, CUDA_ROOT + "/bin/nvcc"] + flags +
                        ["-c", source.path, "-o", object.path],
            inputs = depset([source] + ctx.files.hdrs, transitive = [context.headers]),
            outputs = [object, report, listing],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
            use_default_shell_env = True,
        )
        objects.append(object)
        reports.append(report)
        listings.append(listing)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(kernels = depset(reports + listings)),
    ]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc", ".cu"]),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_arch": attr.label(default = "//build/cuda:arch"),
    },
)

_COMPATIBLE = [] if CUDA_FOUND else ["//build/cuda:toolkit_missing"]

def _linkopts(libraries):
    return TRIMTAB_LINKOPTS + [
        "-L" + CUDA_LIB_DIR,
        "-Wl,-rpath," + CUDA_LIB_DIR,
    ] + ["-l" + library for library in libraries]

def trimtab_cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A library whose sources, .cu and .cc, are compiled by nvcc. All of it is always linked in."""
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        target_compatible_with = _COMPATIBLE,
    )
    native.cc_library(
        name = name,
        srcs = [name + "_objects"],
        hdrs = hdrs,
        deps = deps,
        target_compatible_with = _COMPATIBLE,
        alwayslink = True,
        linkstatic = True,
        **kwargs
    )

    # The PTX of its kernels, and what ptxas said of them.
    native.filegroup(
        name = name + "_kernels",
        srcs = [name + "_objects"],
        output_group = "kernels",
    )

def trimtab_cuda_backend(name, deps, libraries, **kwargs):
    """The shared object lib<name>.so, which programs load on demand."""
    native.cc_binary(
        name = "lib%s.so" % name,
        deps = deps,
        linkshared = True,
        linkopts = _linkopts(libraries),
        target_compatible_with = _COMPATIBLE,
        **kwargs
    )

def trimtab_cuda_test(name, srcs, deps, libraries, size = "small", **kwargs):
    """A GoogleTest program that calls the CUDA libraries itself instead of loading the backend."""
    _cuda_objects(
        name = name + "_objects",
        testonly = True,
        srcs = srcs,
        deps = deps,
        target_compatible_with = _COMPATIBLE,
    )
    native.cc_test(
        name = name,
        srcs = [name + "_objects"],
        deps = deps + ["//build/third_party:gtest_main"],
        linkopts = _linkopts(libraries),
        linkstatic = True,
        visibility = BUNDLED,
        size = size,
        target_compatible_with = _COMPATIBLE,
        **kwargs
    )

def trimtab_cuda_binary(name, srcs, deps, libraries, testonly = False, **kwargs):
    """A program that calls the CUDA libraries itself instead of loading the backend."""
    _cuda_objects(
        name = name + "_objects",
        testonly = testonly,
        srcs = srcs,
        deps = deps,
        target_compatible_with = _COMPATIBLE,
    )
    native.cc_binary(
        name = name,
        testonly = testonly,
        srcs = [name + "_objects"],
        deps = deps,
        linkopts = _linkopts(libraries),
        linkstatic = True,
        visibility = BUNDLED,
        target_compatible_with = _COMPATIBLE,
        **kwargs
    )

def if_cuda(labels):
    """The labels on a machine with the toolkit, nothing on another."""
    return labels if CUDA_FOUND else []

def if_cudnn(values):
    """The values on a machine whose toolkit has cuDNN, nothing on another."""
    return values if CUDNN_FOUND else []

def if_nccl(values):
    """The values on a machine whose toolkit has NCCL, nothing on another."""
    return values if NCCL_FOUND else []

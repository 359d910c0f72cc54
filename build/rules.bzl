"""The macros that every BUILD file of the project uses instead of the bare cc_* rules."""

load("//build:copts.bzl", "RUNS_ONCE_COPTS", "TRIMTAB_COPTS", "TRIMTAB_LINKOPTS")

def _switch_impl(ctx):
    # Read by config_setting alone.
    return []

# A flag of the build, --//package:name=true or false.
switch = rule(
    implementation = _switch_impl,
    build_setting = config.bool(flag = True),
)

# Sources that are compiled as one: more of them, and a change to one would take long to compile.
_MOST_JOINED = 8

def _joined(name, srcs):
    """`srcs` in as few files as may be. Most of the time of a small source goes to its headers."""
    headers = [source for source in srcs if not source.endswith(".cc")]
    sources = [source for source in srcs if source.endswith(".cc")]
    count = (len(sources) + _MOST_JOINED - 1) // _MOST_JOINED
    joined = []
    for i in range(count):
        part = sources[i * len(sources) // count:(i + 1) * len(sources) // count]
        native.genrule(
            name = "%s_joined_%d" % (name, i),
            srcs = part,
            outs = ["%s_joined_%d.cc" % (name, i)],
            # Messages name the sources and their lines.
            cmd = "for s in $(SRCS); do echo \"#line 1 \\\"$$s\\\"\"; cat $$s; done > $@",
            visibility = ["//visibility:private"],
        )
        joined.append("%s_joined_%d.cc" % (name, i))
    return headers + joined

def trimtab_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        copts = [],
        runs_once = False,
        join = True,
        **kwargs):
    """A C++ library. `alwayslink = True` is for sources that register themselves at start-up.

    `runs_once = True` is for code whose speed nobody notices: less to optimise, sooner compiled.
    Sources are compiled several at a time, so names of their anonymous namespaces differ; with
    `join = False`, and in all libraries with --//build:join=false, one by one.
    """
    sources = [source for source in srcs if source.endswith(".cc")]
    if join and len(sources) > 1:
        srcs = select({
            "//build:joins": _joined(name, srcs),
            "//conditions:default": srcs,
        })

        # A type of an anonymous namespace may be a member: no other file can see the class either.
        copts = copts + select({
            "//build:joins": ["-Wno-subobject-linkage"],
            "//conditions:default": [],
        })
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

def trimtab_embedded_json(name, header, texts):
    """Source `name`.cc: JSON files inside the program, so that it runs from anywhere.

    Args:
      header: declares the functions, and EmbeddedJson.
      texts: the files that each function returns.
    """
    lines = ["echo '#include \"%s\"'" % header, "echo 'namespace trimtab {'"]
    for function, files in texts.items():
        lines += [
            "echo 'static constexpr EmbeddedJson k%s[] = {'" % function,
            "for file in %s; do" % " ".join(["$(location %s)" % file for file in files]),
            "  printf '{\"%s\", R\"json(' \"$$(basename \"$$file\" .json)\"",
            "  cat \"$$file\"",
            "  echo ')json\"},'",
            "done",
            "echo '};'",
            "echo 'std::span<const EmbeddedJson> %s() { return k%s; }'" % (function, function),
        ]
    native.genrule(
        name = name + "_source",
        srcs = [file for files in texts.values() for file in files],
        outs = [name + ".cc"],
        cmd = "\n".join(["{"] + lines + ["echo '}'", "} > $@"]),
        visibility = ["//visibility:private"],
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

def trimtab_sampled_test(
        name,
        exhaustive,
        size = "small",
        exhaustive_size = "enormous",
        shard_count = None,
        exhaustive_shards = None,
        **kwargs):
    """A test of a sample, and one of all or of many, called `exhaustive`: the same sources, under
    TRIMTAB_EXHAUSTIVE. The latter is for `tools/test --all`."""
    trimtab_test(name = name, size = size, shard_count = shard_count, **kwargs)
    trimtab_test(
        name = exhaustive,
        size = exhaustive_size,
        copts = ["-DTRIMTAB_EXHAUSTIVE"],
        shard_count = exhaustive_shards,
        tags = ["exhaustive"],
        **kwargs
    )

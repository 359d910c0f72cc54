"""The commit in the program: known in builds with --config=release, and empty in all others."""

def _commit_source_impl(ctx):
    source = ctx.actions.declare_file(ctx.attr.out)
    inputs = []
    commit = ""
    if ctx.attr.stamped:
        # build/workspace_status prints this file's lines. Nothing else depends on it.
        inputs = [ctx.info_file]
        commit = "$(sed -n 's/^STABLE_COMMIT //p' %s)" % ctx.info_file.path
    ctx.actions.run_shell(
        inputs = inputs,
        outputs = [source],
        command = "\n".join([
            "{",
            "echo '#include \"%s\"'" % ctx.attr.header,
            "echo \"const char* trimtab::BuildCommit() { return \\\"%s\\\"; }\"" % commit,
            "} > " + source.path,
        ]),
        mnemonic = "CommitSource",
    )
    return DefaultInfo(files = depset([source]))

_commit_source = rule(
    implementation = _commit_source_impl,
    attrs = {
        "header": attr.string(mandatory = True),
        "out": attr.string(mandatory = True),
        "stamped": attr.bool(mandatory = True),
    },
)

def commit_source(name, header):
    """Source `name`.cc, which defines BuildCommit() of `header`."""
    _commit_source(
        name = name,
        out = name + ".cc",
        header = header,
        stamped = select({
            "//build:stamps": True,
            "//conditions:default": False,
        }),
        visibility = ["//visibility:private"],
    )

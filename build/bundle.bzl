"""One archive that holds programs and all they need but the system's C library and CUDA."""

def _bundle_impl(ctx):
    lines = []
    inputs = []
    for kind, targets in [
        ("program", ctx.attr.programs),
        ("plugin", ctx.attr.plugins),
        ("data", ctx.attr.data),
    ]:
        for target, folder in targets.items():
            for file in target.files.to_list():
                # Data keeps its place in the tree, where tests look for it.
                name = file.short_path if kind == "data" else file.basename
                lines.append("\t".join([kind, folder + "/" + name, file.path]))
                inputs.append(file)
    for file in ctx.files.scripts:
        lines.append("\t".join(["script", file.basename, file.path]))
        inputs.append(file)
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "\n".join(lines) + "\n")
    archive = ctx.actions.declare_file(ctx.attr.archive + ".tar.xz")
    ctx.actions.run(
        executable = ctx.executable._packer,
        arguments = [manifest.path, ctx.attr.archive, archive.path],
        inputs = inputs + [manifest],
        outputs = [archive],
        mnemonic = "Bundle",
        progress_message = "Packing %s" % archive.short_path,
        use_default_shell_env = True,
    )
    return DefaultInfo(files = depset([archive]), runfiles = ctx.runfiles([archive]))

bundle = rule(
    implementation = _bundle_impl,
    doc = """Packs programs, stripped, with the shared libraries they load, into ARCHIVE.tar.xz,
which unpacks into a folder ARCHIVE. `programs` and `data` say which of its folders a target goes
to; `scripts` lie on top. Programs may be scripts too. `plugins` are shared
objects that use libraries of the node, such as its MPI.""",
    attrs = {
        "archive": attr.string(mandatory = True),
        "data": attr.label_keyed_string_dict(allow_files = True),
        "plugins": attr.label_keyed_string_dict(allow_files = True),
        "programs": attr.label_keyed_string_dict(allow_files = True),
        "scripts": attr.label_list(allow_files = True),
        "_packer": attr.label(
            default = "//tools/bundle:pack",
            executable = True,
            cfg = "exec",
        ),
    },
)

"""The static libraries that a program is linked of."""

def _archives_impl(ctx):
    archives = []
    for dep in ctx.attr.deps:
        for entry in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in entry.libraries:
                archive = library.pic_static_library or library.static_library
                if archive:
                    archives.append(archive)
    listing = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.write(listing, "".join([file.short_path + "\n" for file in archives]))
    files = depset([listing] + archives)
    return DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))

archives = rule(
    implementation = _archives_impl,
    doc = """The archives of `deps` and of all that they depend on, and NAME.txt, which lists where
a test that has this among its data finds them.""",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)

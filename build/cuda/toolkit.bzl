"""Finds the CUDA toolkit of this machine, if it has one."""

_LIB_DIRS = ["lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"]

def _candidates(ctx):
    chosen = ctx.os.environ.get("CUDA_HOME")
    if chosen:
        return [chosen]
    nvcc = ctx.which("nvcc")
    beside = [str(nvcc.realpath.dirname.dirname)] if nvcc else []
    return beside + ["/usr/local/cuda"]

def _find(ctx):
    for root in _candidates(ctx):
        tools = [root + "/bin/nvcc", root + "/include/cuda_runtime.h", root + "/include/cublasLt.h"]
        if not all([ctx.path(tool).exists for tool in tools]):
            continue
        for lib_dir in [root + "/" + name for name in _LIB_DIRS]:
            if ctx.path(lib_dir + "/libcublasLt.so").exists:
                return struct(root = root, lib_dir = lib_dir)
    return None

def _has(ctx, found, header, library):
    """Whether the toolkit found holds one of the libraries that come apart from it."""
    if not found:
        return False
    return (ctx.path(found.root + "/include/" + header).exists and
            ctx.path(found.lib_dir + "/lib%s.so" % library).exists)

def _visible_architecture(ctx):
    """That of this machine's first GPU, among those that the project compiles for."""
    smi = ctx.which("nvidia-smi")
    if not smi:
        return None
    asked = ctx.execute([smi, "--query-gpu=compute_cap", "--format=csv,noheader"], timeout = 20)
    capability = asked.stdout.split("\n")[0].strip() if asked.return_code == 0 else ""
    return {"8.0": "sm_80", "9.0": "sm_90a", "10.0": "sm_100"}.get(capability)

def _cuda_toolkit_impl(ctx):
    found = _find(ctx)
    ctx.file("BUILD", "")
    ctx.file("defs.bzl", "\n".join([
        "CUDA_FOUND = %s" % (found != None),
        "CUDA_ROOT = %r" % (found.root if found else ""),
        "CUDA_LIB_DIR = %r" % (found.lib_dir if found else ""),
        "CUDNN_FOUND = %s" % _has(ctx, found, "cudnn.h", "cudnn"),
        "ARCHITECTURE = %r" % (_visible_architecture(ctx) or "sm_90a"),
        "NCCL_FOUND = %s" % _has(ctx, found, "nccl.h", "nccl"),
        "",
    ]))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    doc = """A repository whose defs.bzl says whether and where the toolkit is: in $CUDA_HOME when
that is set (to build without CUDA, set it to a folder without a toolkit), else beside the nvcc on
PATH, else in /usr/local/cuda. It also says whether cuDNN and NCCL are installed in it,
and which GPU architecture to compile for: the visible GPU's, else sm_90a.""",
    environ = ["CUDA_HOME", "PATH"],
    local = True,
)

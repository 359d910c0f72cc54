# Sourced by the scripts beside it, with $here set to this folder: where the libraries are.
# A POSIX shell is all it needs.

# The node's CUDA libraries. $TRIMTAB_CUDA_LIBRARIES names the folder, or several with colons
# between; else the toolkit's usual places are taken, and those of Python's packages.
cuda_libraries="${TRIMTAB_CUDA_LIBRARIES:-}"
if [ -z "$cuda_libraries" ]; then
  for folder in \
    ${CUDA_HOME:+"$CUDA_HOME/lib64"} \
    /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 \
    ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia/*/lib} \
    /usr/local/lib/python3*/*-packages/nvidia/*/lib \
    /usr/lib/python3*/*-packages/nvidia/*/lib \
    /opt/*/lib/python3*/site-packages/nvidia/*/lib \
    /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib \
    /usr/local/nvidia/lib64; do
    [ -d "$folder" ] && cuda_libraries="$cuda_libraries:$folder"
  done
fi

# CUDA's compat packages hold a newer driver library for an older kernel module: taken where one is
# newer than the module, and only there.
module=$(cat "${TRIMTAB_DRIVER_VERSION_FILE:-/sys/module/nvidia/version}" 2>/dev/null)
compat=""
for file in ${CUDA_HOME:+"$CUDA_HOME"/compat/libcuda.so.*.*} \
  /usr/local/cuda/compat/libcuda.so.*.* /usr/local/cuda-*/compat/libcuda.so.*.*; do
  release=${file##*/libcuda.so.}
  [ -e "$file" ] && [ -z "$compat" ] || continue
  if [ "${module%%.*}" -lt "${release%%.*}" ] 2>/dev/null; then compat=":${file%/*}"; fi
done

caller_libraries="${LD_LIBRARY_PATH:-}"
export TRIMTAB_CALLER_LIBRARIES="$caller_libraries" # for programs that are not ours
export LD_LIBRARY_PATH="$here/lib$compat:$caller_libraries:$cuda_libraries"
export TRIMTAB_CUDA_BACKEND="${TRIMTAB_CUDA_BACKEND:-$here/bin/libtrimtab_cuda.so}"

# The node's own C++ library, if it is new enough: the CUDA libraries may need a newer one than
# ours.
"$here/bin/trimtab" --version >/dev/null 2>&1 ||
  export LD_LIBRARY_PATH="$here/lib:$here/lib/compiler$compat:$caller_libraries:$cuda_libraries"

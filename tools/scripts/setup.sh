# Sourced by tools/quickstart and tools/test: the packages, the build tool and how to report.

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)"
# The distribution's Bazel by its full path: a newer one on PATH may not know WORKSPACE mode.
BAZEL="${BAZEL:-/usr/bin/bazel}"

BUILD_PACKAGES=(
  bazel-bootstrap bazel-rules-java g++ python3
  libcli11-dev libcpp-httplib-dev libdnnl-dev libfmt-dev libgoogle-perftools-dev libgtest-dev
  libjs-vega libopenmpi-dev libpcre2-dev libsentencepiece-dev libspdlog-dev libsqlite3-dev
  libutf8proc-dev nlohmann-json3-dev openmpi-bin
)
# What only a test uses; where it is missing, that test is skipped.
SLURM_PACKAGES=(munge slurm-client slurm-wlm-basic-plugins slurmctld slurmd)
TEST_PACKAGES=(chromium curl xz-utils "${SLURM_PACKAGES[@]}")
# For tools/test --all alone: clang checks the locks.
LOCK_CHECK_PACKAGES=(clang-14)

say() { printf '== %s\n' "$*" >&2; }

# die CODE MESSAGE: the exit codes are those of the trimtab command.
die() {
  printf 'error: %s\n' "$2" >&2
  exit "$1"
}

# Whether this machine shows an NVIDIA GPU.
gpu_visible() {
  [[ -e /dev/nvidiactl ]] || nvidia-smi -L 2>/dev/null | grep -q '^GPU '
}

# Prints those of the named packages that are not installed.
missing_packages() {
  local installed
  installed="$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)"
  local package
  for package in "$@"; do
    grep -qx -- "$package installed" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Installs what is missing of the named packages. When all are there it does nothing, without a
# network.
install_packages() {
  command -v dpkg-query >/dev/null || die 6 "needs Debian 12 or a system with its packages: $*"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die 6 "not root, and no sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing from the distribution's archive: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq >&2 || die 6 "apt-get update failed"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >&2 || die 6 "could not install: ${missing[*]}"
}

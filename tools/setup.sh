#!/usr/bin/env bash
# Makes .venv/ with .venv/bin/nixwulf, and sees to it that the lab's programs are on this machine.
# With the argument 'tests' also what the tests need besides: a browser, what drives it, pkill, and other shells and another ping.
#
# System packages come through apt: as root or by sudo after saying which, else by a command that
# you run. No service is started or enabled: the lab needs the program sshd, and where it is missing
# its package is unpacked into the user's cache instead of installed, because installing it would
# open a port on this machine. So it is with nginx for the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/nixwulf"
purpose="${1:-}"

fail() {
  echo "setup: $1" >&2
  exit 2
}

has() {
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]
}

find_python() {
  for candidate in python3 python3.13 python3.12 python3.11; do
    if has "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "$candidate"
      return
    fi
  done
}

missing_packages() {
  has ip || echo iproute2
  has ping || echo iputils-ping
  has ssh || echo openssh-client
  has iperf3 || echo iperf3
  has sockperf || echo sockperf
  has xhpl || has hpcc || echo hpcc
  has mpirun || echo openmpi-bin
  has nsenter || echo util-linux
  if ! has llama-bench; then
    has cmake || echo cmake
    has c++ || echo g++
    has make || echo make
  fi
  if [ "$purpose" = tests ]; then
    has curl || echo curl
    has chromium || has chromium-browser || has google-chrome || echo chromium
    has pkill || echo procps
    has tcsh || echo tcsh
    has busybox || echo busybox
    has zsh || echo zsh
  fi
  local python
  python=$(find_python)
  [ -n "$python" ] || echo python3
  [ -n "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

install_packages() {
  [ $# -gt 0 ] || return 0
  echo "setup: these system packages are needed: $*"
  has apt-get || fail "this system has no apt-get; install what these packages of Debian hold: $*."
  local privileged=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! has sudo || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
      fail "run 'sudo apt-get install --no-install-recommends $*', then the same command again."
    fi
    privileged=(sudo)
  fi
  "${privileged[@]}" apt-get -qq update
  "${privileged[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# unpack PROGRAM FOLDER PACKAGE WHY
unpack() {
  if has "$1" || [ -x "$cache/$2/usr/sbin/$1" ] || [ -x "$cache/$2/usr/bin/$1" ]; then return; fi
  has apt-get || fail "$4 the program $1; install it."
  echo "setup: unpacking $1 into $cache/$2 (not installed, no service is enabled)"
  local folder
  folder=$(mktemp -d)
  # A machine that lacked no other package may not have the lists yet.
  (cd "$folder" && { apt-get -qq download "$3" || { apt-get -qq update && apt-get -qq download "$3"; }; } 2>/dev/null) ||
    fail "apt-get cannot download $3; run 'apt-get update' as root, then try again."
  mkdir -p "$cache"
  dpkg -x "$folder/$3"_*.deb "$folder/$2"
  rm -rf "${cache:?}/$2"
  mv "$folder/$2" "$cache/$2"
  rm -rf "$folder"
}

# The packages of the libraries that the unpacked sshd and, from Debian 13 on, its parts lack; they hold no service.
missing_libraries() {
  [ -x "$cache/openssh/usr/sbin/sshd" ] || return 0
  find "$cache/openssh/usr" -name 'sshd*' -type f -perm -u+x -exec ldd {} + | awk '/not found/ { print $1 }' | sort -u | while read -r library; do
    case "$library" in
    libwrap.so.0) echo libwrap0 ;;
    libwtmpdb.so.0) echo libwtmpdb0 ;;
    *) fail "the unpacked sshd needs the library $library; install the package that holds it." ;;
    esac
  done
}

# One that was made keeps its Python, whichever PATH has now: two in one environment import each other's modules. It is made
# anew where its Python has gone.
make_environment() {
  "$1/bin/python" -c 'import pip, ssl' 2>/dev/null || "$(find_python)" -m venv --clear "$1"
}

# Of what is locked only whole wheels with the hashes of the lock come in: nothing is built, and no newer version is taken.
make_venv() {
  local stamp=.venv/setup-done locks=(--requirement requirements.lock)
  if [ "$purpose" = tests ]; then
    stamp=.venv/setup-tests-done
    locks+=(--requirement requirements-browser.lock)
  fi
  if [ -x .venv/bin/nixwulf ] && [ -z "$(find driver/pyproject.toml ./*.lock -newer "$stamp" 2>&1)" ]; then return; fi
  echo "setup: making .venv"
  make_environment .venv
  # Python compiles what it imports: to compile all takes 14 s of CPU, and few of these modules are ever imported.
  local install=(.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile)
  "${install[@]}" --require-hashes --only-binary :all: "${locks[@]}"
  # By the setuptools of the lock: another one would be fetched for the build.
  "${install[@]}" --no-build-isolation -e driver
  touch .venv/setup-done "$stamp"
}

# A client that the lab's tests run; what it needs is not the driver's.
make_llama_benchy() {
  local stamp=.venv/llama-benchy/setup-done
  if [ "$purpose" != tests ] || { [ -e "$stamp" ] && [ ! requirements-benchy.lock -nt "$stamp" ]; }; then return; fi
  echo "setup: installing llama-benchy for the tests"
  make_environment .venv/llama-benchy
  .venv/llama-benchy/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --require-hashes --only-binary :all: --requirement requirements-benchy.lock
  touch "$stamp"
}

if [ "${BASH_SOURCE[0]}" != "$0" ]; then return; fi
case "$purpose" in
'' | tests) ;;
*) fail "'$purpose' is no purpose; give 'tests', or nothing." ;;
esac
mapfile -t packages < <(missing_packages)
install_packages "${packages[@]}"
unpack sshd openssh openssh-server "the lab needs"
if [ "$purpose" = tests ]; then
  unpack nginx nginx nginx "the tests of serve need"
  unpack promtool prometheus prometheus "the tests of serve need"
fi
mapfile -t libraries < <(missing_libraries)
install_packages "${libraries[@]}"
make_venv
make_llama_benchy

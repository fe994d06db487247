#!/usr/bin/env bash
# system_packages.sh [tests|docs]: installs the system packages that a build (and its C++ tests, or the reference) needs
# and that are missing, as root on Debian or Ubuntu; elsewhere it names them and fails. The README lists them too.
set -euo pipefail
python=${PYTHON:-python3}
missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
header='import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
"$python" -c "$header" 2>/dev/null || missing+=(python3-dev)
command -v g++ >/dev/null || command -v clang++ >/dev/null || missing+=(g++)
echo '#include <openssl/hmac.h>' | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1 || missing+=(libssl-dev)
if [[ ${1:-} == tests ]]; then
  echo '#include <gtest/gtest.h>' | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1 || missing+=(libgtest-dev)
fi
if [[ ${1:-} == docs ]]; then
  command -v doxygen >/dev/null || missing+=(doxygen)
fi
[[ ${#missing[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -qq -y "${missing[@]}" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y "${missing[@]}" >/dev/null; }
else
  echo "Missing system packages (names as in Debian): ${missing[*]}" >&2
  exit 1
fi

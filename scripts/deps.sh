#!/usr/bin/env bash
# Headers that come from Debian: doctest (C++ tests), xxhash (content ids), RapidJSON and zlib (traces).
# Root on Debian: what is missing is installed. Anyone else: it is named, and nothing is changed.
set -eu
compiler=${CXX:-g++}
if ! echo 'int main() {}' | $compiler -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
  echo "missing: a C++20 compiler ($compiler does not compile; on Debian: sudo apt-get install g++)" >&2
  exit 1
fi
need=()
have() { printf '#include <%s>\n' "$1" | $compiler -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }
have doctest/doctest.h || need+=(doctest-dev)
have xxhash.h || need+=(libxxhash-dev)
have rapidjson/reader.h || need+=(rapidjson-dev)
have zlib.h || need+=(zlib1g-dev)
[ ${#need[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo ">> installing from Debian: ${need[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${need[@]}" >/dev/null
else
  echo "missing: ${need[*]} (Debian names). Install them, for instance: sudo apt-get install ${need[*]}" >&2
  exit 1
fi

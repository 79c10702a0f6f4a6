#!/usr/bin/env bash
# usage: benchmarks/gpu/run.sh [--dry] [arguments of run.py]
# One GPU, under 8 minutes, no network: see README.md beside this file. --dry: a virtual GPU in its place.
set -u
begin=$SECONDS
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-}
if [ -z "$python" ]; then
  python=python3
  [ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
fi
site=$root/build/gpu/site # wheels are unpacked here: nothing of the machine is changed
fits() { "$python" -c 'import prismcore; from prismcore import _core' 2>/dev/null; }
unpack() { "$python" -m pip install -q --no-index --no-deps --target "$site" "$@" >&2; }

# This checkout's own code, where it is built; then what is installed, which may be older.
installed=${PYTHONPATH:-}
export PYTHONPATH=$root/python:$site:$installed
if ! fits; then
  export PYTHONPATH=$installed
  if ! fits; then
    wheel=$(ls -t "$root"/dist/prismcore-*.whl "$here"/prismcore-*.whl 2>/dev/null | head -1)
    if [ -n "$wheel" ]; then
      export PYTHONPATH=$site:$installed
      unpack "$wheel"
    elif command -v cmake >/dev/null; then
      export PYTHONPATH=$root/python:$site:$installed
      mkdir -p "$root/build"
      echo "building the core (about 2 minutes; a wheel in dist/ saves them)" >&2
      (cd "$root" && cmake --preset release -DPython_EXECUTABLE="$(command -v "$python")" &&
        cmake --build --preset release -j) >"$root/build/gpu.log" 2>&1 ||
        echo "the build failed: $root/build/gpu.log" >&2
    fi
  fi
fi
fits || { echo "prismcore cannot be loaded: put its wheel into dist/, or run make build first" >&2; exit 1; }
if ! "$python" -c 'import megatron.core' 2>/dev/null; then
  wheels=$(ls "$here"/wheels/megatron_core-*.whl 2>/dev/null)
  if [ -n "$wheels" ]; then
    export PYTHONPATH=$site:$PYTHONPATH
    unpack "$here"/wheels/*.whl
  fi
  "$python" -c 'import megatron.core' 2>/dev/null || export PRISM_GPU_OWN_GPT=1
fi
exec "$python" "$here/run.py" --seconds $((460 - (SECONDS - begin))) "$@"

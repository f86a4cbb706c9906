#!/usr/bin/env bash
# Makes .venv what this machine needs: the CPU or the GPU build of everything, and Longfold itself.
# Run again, it returns at once unless a requirement, the interpreter or the kind of machine changed.
# PYTHON=... names the interpreter, DEVICE=cpu|gpu the build; both are found if not given.
# DEV=0 leaves out what only tests, lint and types need.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly torch_cpu_index=https://download.pytorch.org/whl/cpu
readonly log=.venv/install.log stamp=.venv/installed

die() { echo "longfold: $*" >&2; exit 1; }

find_python() {
  local name
  for name in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3 python}; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      command -v "$name"; return
    fi
  done
  die "Python 3.11 to 3.14 is needed and ${PYTHON:-none} was found; install python3.11, or name one with PYTHON=..."
}

find_device() {
  if [ -n "${DEVICE:-}" ]; then echo "$DEVICE"
  elif nvidia-smi -L 2>/dev/null | grep -q GPU; then echo gpu
  else echo cpu; fi
}

require_disk() { # GB
  local free_gb=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1000000))
  [ "$free_gb" -ge "$1" ] || die "$1 GB of free disk are needed here and $free_gb GB are free; free some space."
}

step() { # what it is called, then the command; its output goes to the log
  local what=$1 start=$SECONDS; shift
  printf '%s ... ' "$what"
  if "$@" >>"$log" 2>&1; then echo "$((SECONDS - start)) s"; else echo failed; explain_failure "$what"; fi
}

explain_failure() {
  if grep -q ensurepip "$log"; then die "Python's venv module is missing; install it (on Debian and Ubuntu: python3-venv)."; fi
  if grep -q 'No space left' "$log"; then die "the disk filled up; free some space and run make again."; fi
  if grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|Connection (refused|reset|broken)|ReadTimeout' "$log"
  then die "the package index cannot be reached; connect to the network, or configure pip for an index that can be."; fi
  die "$1 failed: $(grep -m1 -E '^ERROR' "$log" || tail -n1 "$log") (all of it: $log)"
}

pip_install() { .venv/bin/python -m pip install --disable-pip-version-check --retries 2 "$@"; }

install_torch_cpu() { # the index that pip is configured with, then PyTorch's; "+cpu" never matches a CUDA build
  local torch; torch=$(grep '^torch==' deploy/cpu-requirements.lock)
  pip_install --no-deps "$torch" || pip_install --no-deps --index-url "$torch_cpu_index" "$torch"
}

python=$(find_python)
device=$(find_device)
case $device in
  cpu) requirements=deploy/cpu-requirements.lock disk_gb=6 ;;
  gpu) requirements=deploy/gpu-requirements.lock disk_gb=16 ;;
  *) die "DEVICE is cpu or gpu, not $device" ;;
esac
development=deploy/dev-requirements.lock
if [ "${DEV:-1}" = 0 ]; then development=; fi
key="$device $("$python" -V) $(cat "$requirements" $development pyproject.toml deploy/setup.sh | sha256sum | cut -c1-16)"
if [ -x .venv/bin/longfold ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then exit 0; fi

[ "$(uname -sm)" = "Linux x86_64" ] || die "Linux on x86-64 is needed and this is $(uname -sm); use a container or another machine."
# Another interpreter or another build needs another environment; newer packages only an update.
if [ "$(.venv/bin/python -V 2>&1)" != "$("$python" -V)" ] || [ "$(cut -d' ' -f1 "$stamp" 2>/dev/null || echo "$device")" != "$device" ]; then
  require_disk "$disk_gb"
  rm -rf .venv && mkdir .venv
  step "creating .venv with $("$python" -V)" "$python" -m venv .venv
fi
echo "$device incomplete" >"$stamp"
: >"$log"
if [ "$device" = cpu ]; then
  step "installing torch for the CPU" install_torch_cpu
  step "installing $(grep -c == "$requirements") packages (a minute or two)" pip_install --no-deps -r "$requirements"
else
  step "installing $(grep -c == "$requirements") packages for the GPU (several minutes)" pip_install --no-deps --require-hashes -r "$requirements"
fi
step "installing longfold" pip_install --no-deps --no-build-isolation -e .
if [ -n "$development" ]; then
  step "installing $(grep -c == "$development") packages for tests, lint and types" pip_install --no-deps -r "$development"
fi
echo "$key" >"$stamp"

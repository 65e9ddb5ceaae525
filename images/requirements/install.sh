#!/bin/sh
# install.sh packages|requirements: what runs in the image build of a runtime's packages or of a set of requirements. The build context is
# /mnt/context:
#
#   requirements.txt   lines to install; packages.txt (packages only): their versions, settled beforehand
#   lock.txt           what an earlier build chose for them, or empty: then it is resolved now and printed for the builder to keep
#   overrides.txt      the resolver's overrides, or empty; local/: packages from a server's own directory
#   projects.txt       pyproject.toml files in local/ whose dependencies their build backends compute, or empty
#   pyproject.toml     of a NeMo Gym checkout, whose dependencies are resolved with the lines; extras.txt: its extras
#
# NEMO_GYM_PYTHON, for NeMo Gym only, is the lowest Python that its wheel asks for. Debian's may be of the same minor version and a lower
# patch, on which the wheel runs: the resolver is told the higher number. A lower minor version is refused, a higher one needs no telling.
set -eu
umask 022
export HOME=/root UV_CACHE_DIR=/root/.cache/uv UV_LINK_MODE=copy UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=180
export CC=gcc CXX=g++ PYTHONDONTWRITEBYTECODE=1
if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca GIT_SSL_CAINFO=/run/secrets/ca; fi
. /mnt/index/settings
python=/opt/gym/bin/python
cd /mnt/context

order=same
if [ -n "${NEMO_GYM_PYTHON:-}" ]; then
  order=$(python3 -c 'import sys
has, wants = sys.version_info[:2], tuple(map(int, sys.argv[1].split(".")[:2]))
print("older" if has < wants else "newer" if has[: len(wants)] > wants else "same")' "$NEMO_GYM_PYTHON")
fi
if [ "$order" = newer ]; then NEMO_GYM_PYTHON=; fi

uv() { /opt/build/bin/uv --no-config "$@"; }
install() { uv pip install --python "$python" ${NEMO_GYM_PYTHON:+--python-version "$NEMO_GYM_PYTHON"} "$@"; }
installed() { uv pip freeze --python "$python" 2> /dev/null | LC_ALL=C sort; }

if [ "$1" = packages ]; then
  if [ "$order" = older ]; then
    has=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "gym-compose-python: NeMo Gym asks for Python $NEMO_GYM_PYTHON and the base image has $has" >&2
    exit 1
  fi
  uv venv --python "$(command -v python3)" /opt/gym
  echo /opt/gym/src > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gym_compose.pth"
fi

touch /tmp/before
installed > /tmp/had
grep -v '^ *\(#\|$\)' lock.txt > /tmp/lock || true
if [ -d local ]; then cp -r local /tmp/local; fi
if [ "$1" = packages ] && [ -s packages.txt ]; then
  install --no-deps -r packages.txt
elif [ -s /tmp/lock ]; then
  install --no-deps -r /tmp/lock
else
  # The ray and openai of all servers are one version (contract-servers 8, case 57).
  grep -E '^(ray|openai)==' /tmp/had > /tmp/pins || true
  cat overrides.txt > /tmp/overrides
  set -- "$1" -r requirements.txt
  if [ -s pyproject.toml ]; then
    set -- "$@" -r pyproject.toml
    while read -r extra; do set -- "$@" --extra "$extra"; done < extras.txt
  fi
  if [ -s projects.txt ]; then
    # Where [tool.uv.sources] would take a package from is not here; one that matters was refused before (NeMo Gym itself is).
    set -- "$@" --no-sources
    while read -r project; do set -- "$@" -r "$project"; done < projects.txt
  fi
  shift
  install "$@" --constraint /tmp/pins --override /tmp/overrides
fi
installed > /opt/gym/packages.txt
LC_ALL=C comm -13 /tmp/had /opt/gym/packages.txt > /opt/gym/lock.txt
sed 's/^/gym-compose-lock: /' /opt/gym/lock.txt
echo "gym-compose-locked: $(wc -l < /opt/gym/lock.txt)"

# Byte code of the "unchecked hash" kind: the root is read-only, so a first import could not write it, and file times do not matter. Only of
# what this step installed: a file that is written again is in the layer again. A file that does not compile fails when it is imported.
find /opt/gym/lib -name '*.py' -cnewer /tmp/before ! -path '*/tests/*' ! -path '*/test/*' > /tmp/sources
if [ -s /tmp/sources ]; then "$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -i /tmp/sources > /dev/null 2>&1 || true; fi
rm -rf /tmp/before /tmp/had /tmp/lock /tmp/local /tmp/pins /tmp/overrides /tmp/sources

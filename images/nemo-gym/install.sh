#!/bin/sh
# install.sh packages|requirements: what runs in the image build of the nemo-gym runtime. The build context is /mnt/context:
#
#   requirements.txt   lines to install; packages.txt (packages only): the lock, instead of resolving
#   overrides.txt      the resolver's overrides, or empty; local/: packages from a server's own directory
#   pyproject.toml     of a NeMo Gym checkout, whose dependencies are resolved with the lines; extras.txt: its extras
#   asked-by.txt       which servers asked, for the message of a failure
#
# NEMO_GYM_PYTHON is the lowest Python that NeMo Gym's wheel asks for. Debian's may be of the same minor version and a lower patch, on which
# the wheel runs: the resolver is told the higher number. Another minor version is refused.
set -eu
umask 022
export HOME=/root UV_CACHE_DIR=/root/.cache/uv UV_LINK_MODE=copy UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=180
export CC=gcc CXX=g++ PYTHONDONTWRITEBYTECODE=1
if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca GIT_SSL_CAINFO=/run/secrets/ca; fi
. /mnt/index/settings
python=/opt/gym/bin/python
cd /mnt/context

uv() { /opt/build/bin/uv --no-config "$@"; }
install() { uv pip install --python "$python" --python-version "$NEMO_GYM_PYTHON" "$@" || failed; }
failed() {
  echo "The packages above could not be installed. They are asked for by:" >&2
  cat asked-by.txt >&2
  exit 1
}

if [ "$1" = packages ]; then
  has=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  wants=${NEMO_GYM_PYTHON%.*}
  if [ "$has" != "$wants" ]; then
    echo "NeMo Gym asks for Python $NEMO_GYM_PYTHON and the base image has $has: name a base with $wants, as in GYM_COMPOSE_BASE_IMAGE=python:$wants-slim" >&2
    exit 1
  fi
  uv venv --python "$(command -v python3)" /opt/gym
  echo /opt/gym/src > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gym_compose.pth"
fi

touch /tmp/before
if [ -d local ]; then cp -r local /tmp/local; fi
if [ "$1" = packages ] && [ -s packages.txt ]; then
  install --no-deps -r packages.txt
else
  # The ray and openai of all servers are one version (contract-servers 8, case 57).
  uv pip freeze --python "$python" | grep -E '^(ray|openai)==' > /tmp/pins || true
  cat overrides.txt > /tmp/overrides
  set -- "$1" -r requirements.txt
  if [ -s pyproject.toml ]; then
    set -- "$@" -r pyproject.toml
    while read -r extra; do set -- "$@" --extra "$extra"; done < extras.txt
  fi
  shift
  install "$@" --constraint /tmp/pins --override /tmp/overrides
fi
uv pip freeze --python "$python" > /opt/gym/packages.txt

# Byte code of the "unchecked hash" kind: the root is read-only, so a first import could not write it, and file times do not matter. Only of
# what this step installed: a file that is written again is in the layer again. A file that does not compile fails when it is imported.
find /opt/gym/lib -name '*.py' -cnewer /tmp/before ! -path '*/tests/*' ! -path '*/test/*' > /tmp/sources
if [ -s /tmp/sources ]; then "$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -i /tmp/sources > /dev/null 2>&1 || true; fi
rm -rf /tmp/before /tmp/local /tmp/pins /tmp/overrides /tmp/sources

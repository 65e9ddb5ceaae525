#!/bin/sh
# The host's pip settings as uv's, to be read by install.sh. Nothing is printed where the host has none.
set -eu
setting() { if [ -n "$2" ]; then printf "export %s='%s'\n" "$1" "$2"; fi; }
setting UV_DEFAULT_INDEX "${PIP_INDEX_URL:-}"
setting UV_INDEX "${PIP_EXTRA_INDEX_URL:-}"
setting UV_INSECURE_HOST "${PIP_TRUSTED_HOST:-}"

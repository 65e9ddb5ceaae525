"""Where packages come from while images are built: as this host's own pip settings say, never a name of ours (design decision 11).

The values go to the builder in its environment; build.yaml names the arguments without a value. An index URL may hold a password, so it is
neither printed nor written.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gym_compose.engine.command import run_command
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

# pip's configuration key to the variable that means the same.
_KEYS: Mapping[str, str] = {
    "global.index-url": "PIP_INDEX_URL",
    "global.extra-index-url": "PIP_EXTRA_INDEX_URL",
    "global.trusted-host": "PIP_TRUSTED_HOST",
    "install.index-url": "PIP_INDEX_URL",
    "install.extra-index-url": "PIP_EXTRA_INDEX_URL",
    "install.trusted-host": "PIP_TRUSTED_HOST",
}


def index_settings(environ: Mapping[str, str], settings: Settings, deadline: Deadline, python: str = sys.executable) -> dict[str, str]:
    """PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_TRUSTED_HOST, as far as this host sets them: environment first, then pip's files.

    A host without pip has no pip settings either.
    """
    found = {name: environ[name] for name in sorted(set(_KEYS.values())) if environ.get(name)}
    if len(found) == len(set(_KEYS.values())):
        return found
    result = run_command(
        [python, "-m", "pip", "config", "list", "--disable-pip-version-check"],
        environ=environ,
        cwd=None,
        deadline=deadline.within(settings.docker_call_seconds, "pip's settings"),
        redactor=Redactor(),
    )
    return {**parse_pip_config(result.stdout), **found} if result.ok else found


def parse_pip_config(text: str) -> dict[str, str]:
    """The lines ``key='value'`` that `pip config list` prints; a list has escaped newlines in it and becomes words."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        name = _KEYS.get(key.strip())
        if not equals or name is None:
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name] = " ".join(value.replace("\\n", " ").split())
    return found

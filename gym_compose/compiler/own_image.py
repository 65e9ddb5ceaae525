"""Servers whose image says what runs: a Dockerfile of the server's own, or ``compose: servers: NAME: {image: …}``.

No launcher of ours is in between, so what it would have put into the process comes by environment and by file. The environment shows in
``docker inspect`` and holds at most 128 KiB in one string, so NEMO_GYM_CONFIG_DICT has the config with its secrets masked, and the whole of
it is the file that GYM_CONFIG_FILE names.
"""

from __future__ import annotations

from typing import Any

import orjson

from gym_compose.compiler import document as doc
from gym_compose.compiler.extension import ServerOptions
from gym_compose.wire.names import CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE, CONTAINER_CONFIG, CONTAINER_HOME, CONTAINER_SECRET
from gym_compose.wire.slice import PublicSlice, SecretSlice

LONGEST_VARIABLE = 131_071
"""Bytes of one ``NAME=value`` that can be executed with (MAX_ARG_STRLEN; field-notes 0.3)."""
BASE_ARGUMENT, NATIVE_ARGUMENT, NEMO_GYM_ARGUMENT = "GYM_BASE", "GYM_NATIVE", "GYM_NEMO_GYM"
"""Build arguments that a Dockerfile may declare to start from an image of ours."""


def has_own_command(runtime: str, options: ServerOptions) -> bool:
    """``runtime`` is the slice's."""
    return options.image is not None or runtime == "dockerfile"


def own_environment(public: PublicSlice, host: str, port: int) -> dict[str, str]:
    """The variables of the container: the slice's own, where to listen, and the config (contract-servers 1.1)."""
    config = orjson.dumps(public.config).decode()
    fits = len(f"{CONFIG_DICT_VARIABLE}={config}".encode()) < LONGEST_VARIABLE
    return {
        "HOME": CONTAINER_HOME,
        "PYTHONUNBUFFERED": "1",
        **public.environment,
        CONFIG_PATH_VARIABLE: public.instance,
        **({CONFIG_DICT_VARIABLE: config} if fits else {}),
        "GYM_CONFIG_FILE": CONTAINER_CONFIG,
        "GYM_HOST": host,
        "GYM_PORT": str(port),
    }


def whole_config(public: PublicSlice, secret: SecretSlice) -> dict[str, Any]:
    """The config with its secret values in place: what the peer has in NEMO_GYM_CONFIG_DICT."""
    config: dict[str, Any] = doc.plain(public.config)
    for value in secret.values:
        doc.put(config, value.path, value.value)
    return config


def own_notes(secret: SecretSlice, environment: dict[str, str]) -> tuple[str, ...]:
    """What the plan says of it."""
    notes = ["its image's own command runs; it has to listen on $GYM_HOST:$GYM_PORT (0.0.0.0 will do)"]
    if CONFIG_DICT_VARIABLE not in environment:
        notes.append(f"its config is too long for a variable: it is in {CONTAINER_CONFIG} only")
    elif secret.values:
        notes.append(f"{CONFIG_DICT_VARIABLE} has its secrets masked; {CONTAINER_CONFIG} has them")
    if secret.environment:
        names = ", ".join(sorted(secret.environment))
        notes.append(f"secret variables are not in its environment, where anybody could read them: {names} ({CONTAINER_SECRET} has them)")
    return tuple(notes)

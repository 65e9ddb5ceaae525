"""Names that several packages and the outside share: keys of the field, labels, paths inside a container."""

from __future__ import annotations

from typing import Final, Literal, get_args

ServerType = Literal["responses_api_models", "resources_servers", "responses_api_agents", "environment_servers"]
SERVER_TYPES: Final[tuple[ServerType, ...]] = get_args(ServerType)

Domain = Literal[
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
]
"""What a resources server is about (contract-config 1.1)."""

EngineName = Literal["docker", "process"]

# Environment of a server process (contract-config 4.2).
CONFIG_DICT_VARIABLE: Final = "NEMO_GYM_CONFIG_DICT"
CONFIG_PATH_VARIABLE: Final = "NEMO_GYM_CONFIG_PATH"
EXTRA_ROOTS_VARIABLE: Final = "NEMO_GYM_EXTRA_ROOTS"
# Ours, in the processes of a server of the nemo-gym runtime: where its children find the two halves of its slice.
SLICE_VARIABLE: Final = "GYM_COMPOSE_SLICE"
SECRET_VARIABLE: Final = "GYM_COMPOSE_SECRET"

# The top-level config key that is ours and that NeMo Gym ignores (design.md, extension key).
EXTENSION_KEY: Final = "compose"

# Labels: the only state in Docker.
LABEL_PREFIX: Final = "gym-compose."
LABEL_PROJECT: Final = "gym-compose.project"
LABEL_INSTANCE: Final = "gym-compose.instance"
LABEL_ROLE: Final = "gym-compose.role"  # server | head | driver | relay | ray
LABEL_SLICE: Final = "gym-compose.slice-sha256"
LABEL_VERSION: Final = "gym-compose.version"
LABEL_DIRECTORY: Final = "gym-compose.directory"  # absolute path of .gym/<project>
LABEL_RUN: Final = "gym-compose.run"
LABEL_OUTPUT: Final = "gym-compose.output"
LABEL_IMAGE_KEY: Final = "gym-compose.image-key"
LABEL_LOCK: Final = "gym-compose.lock-sha256"  # of an image whose requirements were installed from a lock

Role = Literal["server", "head", "driver", "relay", "ray"]

HEAD_SERVICE: Final = "head"
DRIVER_SERVICE: Final = "driver"
RELAY_SERVICE: Final = "host-relay"
RAY_SERVICE: Final = "ray"
RAY_CLIENT_PORT: Final = 10001
HEAD_ALIAS: Final = "head.gym"
HEAD_PORT_INSIDE: Final = 11000
HEAD_PORT_PUBLISHED: Final = 11001
SERVER_PORT: Final = 8000
ALIAS_SUFFIX: Final = ".gym"

# Paths inside a container.
CONTAINER_SLICE: Final = "/run/gym/slice.json"
CONTAINER_SECRET: Final = "/run/secrets/slice"
CONTAINER_CONFIG: Final = "/run/secrets/config"  # both halves as one JSON document, for an image that runs its own command
CONTAINER_HEAD: Final = "/run/gym/head.json"
CONTAINER_HEAD_SECRET: Final = "/run/secrets/head"
CONTAINER_PUBLISHED: Final = "/run/gym/published/addresses.json"
CONTAINER_SERVERS: Final = "/srv/gym"  # /srv/gym/<server type>/<implementation>
CONTAINER_FILES: Final = "/run/gym/files"  # /run/gym/files/<n>/<name>: host files that a config names
CONTAINER_PYTHON: Final = "/opt/gym/bin/python"
CONTAINER_HOME: Final = "/home/gym"
CONTAINER_RUN: Final = "/io/run"  # a run's request and journal directory, mounted into the driver
CONTAINER_INPUT: Final = "/io/input"
CONTAINER_OUTPUT: Final = "/io/output"

DEFAULT_UID: Final = 10001


def driver_container(project: str, run_id: str) -> str:
    """The name of the container in which a run's driver works."""
    return f"{project}-driver-{run_id}"

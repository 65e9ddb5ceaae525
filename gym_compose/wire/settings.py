"""All times and sizes that are not in the contract's own configuration, in one place.

Each can be set by an environment variable ``GYM_COMPOSE_<NAME IN UPPER CASE>``; what a config says (``server_spinup_timeout_seconds``
and the like) is not here. Seconds unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from gym_compose.wire.errors import InvalidInputError

PREFIX = "GYM_COMPOSE_"


@dataclass(frozen=True)
class Settings:
    """Defaults in the fields; ``from_environ`` overlays the environment."""

    # Engine
    docker_call_seconds: float = 60.0  # one API call or short CLI verb
    compose_create_seconds: float = 600.0  # creation of all containers of a project (inspect_ai allows 600 s too)
    build_seconds: float = 3600.0  # one image
    base_image_seconds: float = 1800.0  # debootstrap and import
    stop_grace_seconds: float = 10.0  # per service, between the stop signal and the kill
    down_seconds: float = 120.0
    event_settle_seconds: float = 0.5  # how long a death is given to be followed by its OOM flag
    log_tail_lines: int = 50
    build_tail_lines: int = 30

    # Readiness
    probe_interval_seconds: float = 1.0
    probe_timeout_seconds: float = 5.0
    head_start_seconds: float = 60.0  # until the head itself answers anything

    # HTTP
    connect_retry_seconds: float = 0.5  # pause before a connection that was refused is tried again
    control_seconds: float = 5.0  # one request to the head server
    control_pool: int = 20

    # Driver
    progress_interval_seconds: float = 1.0
    driver_stop_seconds: float = 20.0  # between SIGINT to a driver and its kill
    aggregate_seconds: float = 600.0

    # Images
    base_image: str = "auto"  # auto | pull | debootstrap | any image reference
    build_parallel: int = 2

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """The defaults overlaid with ``GYM_COMPOSE_*`` variables.

        Raises InvalidInputError naming the variable when its value is not of the setting's type.
        """
        changes: dict[str, object] = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            text = environ.get(name)
            if text is None or text == "":
                continue
            kind = type(field.default)
            try:
                changes[field.name] = kind(text)
            except ValueError:
                raise InvalidInputError(
                    f"{text!r} is not a {kind.__name__}", where=f"environment variable {name}", hint=f"The default is {field.default}."
                ) from None
        return replace(cls(), **changes)  # type: ignore[arg-type]

"""All times and sizes that are not in the contract's own configuration, in one place.

Each can be set by an environment variable ``GYM_COMPOSE_<NAME IN UPPER CASE>``; what a config says (``server_spinup_timeout_seconds``
and the like) is not here. Seconds unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    removal_seconds: float = 5.0  # for what compose left behind: an interrupted command's network is still being made for a moment
    event_settle_seconds: float = 0.5  # how long a death is given to be followed by its OOM flag
    event_reconnect_seconds: float = 0.5  # pause before the event or log stream is opened again after the engine closed it
    event_poll_seconds: float = 0.1  # how soon a reader of events or logs sees that it is to stop
    log_merge_seconds: float = 0.2  # followed lines of several services are put in order of time within this window
    log_idle_seconds: float = 5.0  # followed logs end when nothing of the project has run for so long (a recreation takes less)
    process_poll_seconds: float = 0.1  # between two looks at processes that are not our children
    docker_check_seconds: float = 5.0  # for the engine to say that it is there
    docker_parallel: int = 8  # calls to the Docker engine at a time (field-notes A9.8)
    command_attempt_seconds: float = 60.0  # one attempt of a CLI verb that may be repeated
    command_retries: int = 2  # for such verbs: the compose CLI hangs at about 1 in 1,000 (field-notes A9.9)
    kill_grace_seconds: float = 2.0  # between SIGTERM and SIGKILL to a command, and after a SIGKILL
    requirements_seconds: float = 1800.0  # installing one requirement set (process engine)
    log_tail_lines: int = 50
    build_tail_lines: int = 30

    # Readiness
    probe_interval_seconds: float = 1.0
    probe_timeout_seconds: float = 5.0
    liveness_timeout_seconds: float = 1.5  # a probe once ready: with the interval of 1 s a silent server is marked within 3 s
    probe_parallel: int = 32
    head_start_seconds: float = 60.0  # until the head itself answers anything
    ready_poll_seconds: float = 0.2  # between two questions to the head while `up` waits
    project_lock_seconds: float = 10.0  # until another command on the same project is given up on

    # HTTP
    connect_retry_seconds: float = 0.5  # pause before a connection that was refused is tried again
    endpoint_retry_seconds: float = 0.5  # pause before a model endpoint is asked again (contract-servers 4.2)
    stream_keep_alive_seconds: float = 15.0  # between two signs of life while a model computes a streamed answer (contract-servers 4.1)
    control_seconds: float = 5.0  # one request to the head server
    control_pool: int = 20
    status_probe_seconds: float = 2.0  # one server's answer to `gym env status` (contract-config 3.4)
    server_keep_alive_seconds: float = 30.0  # an idle connection at the server; the client's below is shorter, so the client closes first
    client_keep_alive_seconds: float = 4.0  # uvicorn, and so vLLM, closes idle connections after 5: a request that crosses that is lost
    tcp_keepalive_idle_seconds: int = 60
    tcp_keepalive_interval_seconds: int = 10
    tcp_keepalive_probes: int = 3
    graceful_stop_seconds: float = 0.5  # what a server gives its open requests when it is told to stop
    open_files: int = 65535  # soft RLIMIT_NOFILE that a server raises itself to
    closed_sessions_kept: int = 100_000  # ids of closed resources sessions that a late seed is checked against

    # Driver
    progress_interval_seconds: float = 1.0
    driver_stop_seconds: float = 20.0  # between SIGINT to a driver and its kill
    aggregate_seconds: float = 600.0
    run_silence_seconds: float = 60.0  # how long an environment server may not answer at all before the run ends
    run_death_seconds: float = (
        5.0  # how long an environment server may refuse connections before it counts as dead (a restart takes 2 to 3)
    )
    run_death_wait_seconds: float = 600.0  # how long a run with --on-server-death wait pauses for one
    run_retries: int = 2  # of one row, where a replay is safe
    run_retry_seconds: float = 1.0  # pause before the first of them; doubled each time
    run_retry_share: float = 0.1  # of the rows sent so far: so many retries (and 10) a run makes altogether
    run_head_seconds: float = 10.0  # until the head server has answered a driver
    journal_fsync: str = "interval"  # always: before each request leaves | interval | never
    journal_fsync_seconds: float = 1.0

    # Data
    row_check_seconds: float = 3600.0  # a server's task_data.py and dataset_metrics.py on one file of rows
    prepare_seconds: float = 7200.0  # one prepare script, its requirements included
    download_seconds: float = 3600.0  # one dataset

    # Command line
    watch_seconds: float = 0.5  # how soon a foreground command sees Ctrl+C and a dead server
    plain_progress_seconds: float = 5.0  # between two progress lines of a run off a terminal

    # Doctor
    doctor_registry_seconds: float = 10.0  # for the engine to have an answer of a registry
    doctor_trial_seconds: float = 60.0  # a build of one file, to see that the builder works
    doctor_import_seconds: float = 180.0  # a server's module to be imported in its image (the peer's with a cold cache: 30 s)
    doctor_root_seconds: float = 600.0  # all roots to answer, where the config sets no server_spinup_timeout_seconds
    doctor_parallel: int = 4  # servers that are imported at a time

    # Images
    base_image: str = "auto"  # auto | pull | debootstrap | any image reference
    build_parallel: int = 2
    build_progress_seconds: float = 30.0  # between two lines about builds that go on

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
            kind: Callable[[str], object] = type(field.default)
            try:
                changes[field.name] = kind(text)
            except ValueError:
                raise InvalidInputError(
                    f"{text!r} is not a {type(field.default).__name__}",
                    where=f"environment variable {name}",
                    hint=f"The default is {field.default}.",
                ) from None
        return replace(cls(), **changes)  # type: ignore[arg-type]

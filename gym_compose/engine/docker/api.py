"""Facts from the Docker engine: the only module that touches the Docker SDK.

The SDK takes 0.1 to 0.3 s to import, so it is loaded at the first call; ``ping`` needs none, which keeps ``Engine.check`` fast.
Streams (events, followed logs) have clients of their own: followed logs once ate a pool of connections and froze all control calls
(field-notes A9.10).
"""

from __future__ import annotations

import http.client
import importlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gym_compose.engine.docker import failure
from gym_compose.engine.docker.endpoint import Endpoint
from gym_compose.engine.errors import CommandTimeoutError, DockerUnavailableError, EngineError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

T = TypeVar("T")
Json = dict[str, Any]

MINIMUM_API = (1, 41)  # Engine 20.10: the oldest that is tested
COMPOSE_PROJECT = "com.docker.compose.project"
COMPOSE_SERVICE = "com.docker.compose.service"
COMPOSE_ONEOFF = "com.docker.compose.oneoff"


class NotFoundInDockerError(EngineError):
    """A container, image or network that was asked for does not exist (any more). Caught by callers, for whom that is an answer."""


class DockerApi:
    """Calls to one engine. Safe to use from several threads; each call is bounded by its deadline and by ``docker_call_seconds``."""

    def __init__(self, endpoint: Endpoint, settings: Settings, redactor: Redactor) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self.redactor = redactor
        self._lock = threading.Lock()
        self._client: Any = None
        self._seconds = threading.local()

    # Plumbing

    def ping(self, deadline: Deadline) -> tuple[int, int]:
        """The API version of the engine, without the SDK. Raises DockerUnavailableError with the reason and its fix."""
        seconds = deadline.within(self.settings.docker_check_seconds).remaining()
        path = self.endpoint.socket
        host, port = ("localhost", 0) if path is not None else self.endpoint.address
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        try:
            if path is not None:
                connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.sock.settimeout(seconds)
                connection.sock.connect(path)
            connection.request("GET", "/_ping")
            answer = connection.getresponse()
            answer.read()
        except PermissionError as error:
            raise failure.no_permission(path) from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise failure.not_running(path or self.endpoint.url) from error
        except TimeoutError as error:
            raise DockerUnavailableError(
                f"the Docker engine did not answer within {self.settings.docker_check_seconds:g} s",
                where=path or self.endpoint.url,
                hint="Is it starting, or stuck? `docker version` should answer at once.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise DockerUnavailableError(f"the Docker engine does not answer: {error}", where=path or self.endpoint.url) from error
        finally:
            connection.close()
        return self._checked_version(answer.getheader("Api-Version"), answer.status)

    def _checked_version(self, text: str | None, status: int) -> tuple[int, int]:
        where = self.endpoint.socket or self.endpoint.url
        try:
            major, minor = (int(part) for part in (text or "").split("."))
        except ValueError as error:
            raise DockerUnavailableError(f"this is no Docker engine (status {status})", where=where) from error
        if (major, minor) < MINIMUM_API:
            raise DockerUnavailableError(
                f"the Docker engine is too old (API {major}.{minor})", where=where, hint="Engine 20.10 (API 1.41) or newer is needed."
            )
        return major, minor

    def call(self, function: Callable[[Any], T], what: str, deadline: Deadline) -> T:
        """``function(client)`` within the deadline; the SDK's exceptions become ours.

        Raises NotFoundInDockerError, CommandTimeoutError, what ``failure`` recognises, and EngineError for the rest. ``what`` completes
        "cannot …".
        """
        bounded = deadline.within(self.settings.docker_call_seconds)
        seconds = bounded.remaining()
        if seconds is not None and seconds <= 0:
            raise CommandTimeoutError(f"cannot {what}: no time is left", hint=deadline.purpose or None)
        client = self._connected(bounded)
        self._seconds.value = seconds
        try:
            return self._mapped(function, client, what)
        finally:
            self._seconds.value = None

    def _mapped(self, function: Callable[[Any], T], client: Any, what: str) -> T:
        errors = importlib.import_module("docker.errors")
        requests = importlib.import_module("requests.exceptions")
        try:
            return function(client)
        except errors.NotFound as error:
            raise NotFoundInDockerError(self.redactor.text(f"cannot {what}: {error.explanation or error}")) from error
        except errors.APIError as error:
            text = str(error.explanation or error)
            raise failure.recognise(text, self.redactor) or EngineError(self.redactor.text(f"cannot {what}: {text}")) from error
        except requests.Timeout as error:
            raise CommandTimeoutError(f"cannot {what}: the Docker engine did not answer in time") from error
        except (requests.ConnectionError, OSError) as error:
            # requests reports a read that timed out on a Unix socket as a ConnectionError.
            if "timed out" in str(error).lower():
                raise CommandTimeoutError(f"cannot {what}: the Docker engine did not answer in time") from error
            raise failure.recognise(str(error), self.redactor) or failure.not_running(self.endpoint.socket or self.endpoint.url) from error
        except errors.DockerException as error:
            raise EngineError(self.redactor.text(f"cannot {what}: {error}")) from error

    def _connected(self, deadline: Deadline) -> Any:
        with self._lock:
            if self._client is None:
                self.ping(deadline)
                seconds = self._seconds

                def timeout() -> float:
                    value = getattr(seconds, "value", None)
                    return self.settings.docker_call_seconds if value is None else float(value)

                self._client = _new_client(self.endpoint, timeout, self.settings.docker_parallel * 2)
            return self._client

    def stream_client(self, deadline: Deadline) -> Any:
        """A new SDK client whose reads never time out, for one stream. Whoever asks closes it."""
        self.ping(deadline)
        return self._mapped(lambda _: _new_client(self.endpoint, lambda: None, 1), None, "open a stream from the Docker engine")

    def mapped(self, function: Callable[[], T], what: str) -> T:
        """``function()`` on a stream's client, with the SDK's exceptions as ours."""
        return self._mapped(lambda _: function(), None, what)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    # Containers

    def containers(self, labels: Sequence[str], deadline: Deadline) -> list[Json]:
        """All containers, dead ones too, that bear every label (``name`` or ``name=value``)."""
        filters = {"label": list(labels)}
        return self.call(lambda client: list(client.containers(all=True, filters=filters)), "list containers", deadline)

    def inspect(self, container: str, deadline: Deadline) -> Json:
        return self.call(lambda client: dict(client.inspect_container(container)), f"inspect container {container}", deadline)

    def memory(self, container: str, deadline: Deadline) -> int | None:
        """Bytes in use without the page cache that can be dropped, as `docker stats` counts; None when it does not run."""
        stats = self.call(lambda client: client.stats(container, stream=False, one_shot=True), f"read memory of {container}", deadline)
        memory: Mapping[str, Any] = stats.get("memory_stats") or {}
        usage = memory.get("usage")
        if usage is None:
            return None
        detail: Mapping[str, int] = memory.get("stats") or {}
        # cgroup v1 says total_inactive_file, v2 inactive_file.
        cache = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return int(usage) - int(cache) if cache < usage else int(usage)

    def stop(self, container: str, seconds: int, deadline: Deadline) -> None:
        """Send the stop signal, wait ``seconds``, kill. The call itself may take that much longer than another call."""

        def stop(client: Any) -> None:
            client.stop(container, timeout=seconds)

        self.call(stop, f"stop container {container}", deadline)

    def kill(self, container: str, signal: str, deadline: Deadline) -> None:
        self.call(lambda client: client.kill(container, signal=signal), f"signal container {container}", deadline)

    def wait(self, container: str, deadline: Deadline) -> int:
        """Block until the container ends; its exit code. Raises CommandTimeoutError when it does not within the deadline."""
        while True:
            try:
                # One call is bounded by docker_call_seconds, the wait as a whole by the deadline alone.
                answer = self.call(
                    lambda client: client.wait(container, timeout=client.timeout), f"wait for container {container}", deadline
                )
                return int(answer["StatusCode"])
            except CommandTimeoutError:
                if deadline.expired:
                    raise

    def remove(self, container: str, deadline: Deadline) -> bool:
        """Remove it, running or not, with its anonymous volumes; False when it was gone or is being removed by somebody else."""
        try:
            self.call(lambda client: client.remove_container(container, force=True, v=True), f"remove container {container}", deadline)
        except NotFoundInDockerError:
            return False
        except EngineError as error:
            if "is already in progress" in error.message:
                return False
            raise
        return True

    def log(self, container: str, deadline: Deadline, *, tail: int | None, stdout: bool = True, stderr: bool = True) -> Iterator[bytes]:
        """What it wrote so far, one message a frame, each with its time in front."""
        frames = self.call(
            lambda client: list(
                client.logs(
                    container,
                    stdout=stdout,
                    stderr=stderr,
                    stream=True,
                    follow=False,
                    timestamps=True,
                    tail="all" if tail is None else tail,
                )
            ),
            f"read the log of container {container}",
            deadline,
        )
        return iter(frames)

    # Images

    def image(self, name: str, deadline: Deadline) -> Json | None:
        """The image's facts, or None when it is not there."""
        try:
            return self.call(lambda client: dict(client.inspect_image(name)), f"inspect image {name}", deadline)
        except NotFoundInDockerError:
            return None

    def remove_image(self, name: str, deadline: Deadline) -> bool:
        """Remove the tag and what only it holds; False when it was not there. One that a container uses stays, as an EngineError."""
        try:
            self.call(lambda client: client.remove_image(name), f"remove image {name}", deadline)
        except NotFoundInDockerError:
            return False
        return True

    def distribution(self, reference: str, deadline: Deadline) -> Json:
        """What the registry of ``reference`` says of it: the engine itself asks, so this is the way that a pull would take."""
        return self.call(lambda client: dict(client.inspect_distribution(reference)), f"ask the registry for {reference}", deadline)

    def info(self, deadline: Deadline) -> Json:
        """`docker info`."""
        return self.call(lambda client: dict(client.info()), "ask the engine about itself", deadline)

    def tag(self, name: str, target: str, deadline: Deadline) -> None:
        repository, _, tag = target.rpartition(":")
        self.call(lambda client: client.tag(name, repository, tag), f"tag {name} as {target}", deadline)

    # Networks and volumes

    def networks(self, labels: Sequence[str], deadline: Deadline) -> list[Json]:
        return self.call(lambda client: list(client.networks(filters={"label": list(labels)})), "list networks", deadline)

    def remove_network(self, network: str, deadline: Deadline) -> bool:
        try:
            self.call(lambda client: client.remove_network(network), f"remove network {network}", deadline)
        except NotFoundInDockerError:
            return False
        return True

    def volumes(self, labels: Sequence[str], deadline: Deadline) -> list[Json]:
        return self.call(lambda client: list(client.volumes(filters={"label": list(labels)})["Volumes"] or []), "list volumes", deadline)

    def remove_volume(self, volume: str, deadline: Deadline) -> bool:
        try:
            self.call(lambda client: client.remove_volume(volume, force=True), f"remove volume {volume}", deadline)
        except NotFoundInDockerError:
            return False
        return True


def _new_client(endpoint: Endpoint, timeout: Callable[[], float | None], pool: int) -> Any:
    """An SDK client that asks ``timeout`` anew for each request: the SDK has one number for all threads, we have a deadline per call."""
    base = importlib.import_module("docker").APIClient

    class Client(base):  # type: ignore[misc, valid-type]
        @property
        def timeout(self) -> float | None:
            return timeout()

        @timeout.setter
        def timeout(self, value: float | None) -> None:
            """The SDK sets its default here; the deadline decides instead."""

    return Client(base_url=endpoint.url, version="auto", timeout=None, max_pool_size=max(1, pool))

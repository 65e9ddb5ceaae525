"""Environment servers: the entry point of an episode, one method to write (contract-servers 2.4, contract-data 2.4)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import BaseModel

from gym_compose.serving.client import Reference
from gym_compose.serving.config import EnvironmentServerConfig
from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.episode import Episode, EpisodeCounts, HandledEpisodeError
from gym_compose.serving.participants import AgentParticipant, ResourcesSession, captures_tokens
from gym_compose.serving.prefix import rollout_path
from gym_compose.serving.server import Server
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.episodes import AggregateRequest, EpisodeFailure, EpisodeRequest
from gym_compose.wire.failures import cut_reason

_log = logging.getLogger(__name__)


class EnvironmentServer(Server):
    """Base of environment servers. Override ``run`` and set ``task_input``; limits, deadline, cleanup and failures are the base's.

    ``resources_session`` and ``agent_session`` make the participants of an episode (``participants``). ``metrics_server`` names who
    aggregates: the ``resources_server`` of the config, or else its ``agent_server``, unless it is overridden.
    """

    sessions: ClassVar[bool] = False
    one_process = True
    """An episode waits for its participants; the limits hold for this one process, whatever ``num_workers`` says."""
    task_input: ClassVar[Any] = dict[str, Any]
    """Type of ``task.task_input``: a pydantic model, validated with the body (422)."""

    config: EnvironmentServerConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._slots: asyncio.Semaphore | None = None
        self.counts = EpisodeCounts()
        self._captures: dict[str, bool] = {}
        super().__init__(*args, **kwargs)
        if self.config.max_concurrent_episodes is not None:
            self._slots = asyncio.Semaphore(self.config.max_concurrent_episodes)

    # What subclasses override.

    async def run(self, episode: Episode[Any]) -> dict[str, Any] | BaseModel:
        """One episode; returns its result. Raise HandledEpisodeError for a failure that the caller shall see as such; anything else that
        is raised becomes a terminal failure."""
        raise NotImplementedError

    def metrics_server(self) -> Reference:
        """The server that ``/aggregate_metrics`` is forwarded to."""
        for field in ("resources_server", "agent_server"):
            server: Reference | None = getattr(self.config, field, None)
            if server is not None:
                return server
        raise NotImplementedError(f"{type(self).__name__} has neither resources_server nor agent_server; override metrics_server")

    # What subclasses use.

    def resources_session(self, episode: Episode[Any], server: Reference) -> ResourcesSession:
        """The session of this episode at a resources server; ``open`` begins it."""
        prefix = rollout_path(episode.id.capture_key, "") if self.merged.get("observability_enabled") else ""
        return ResourcesSession(self.client, episode, server, prefix=prefix)

    def agent_session(
        self,
        episode: Episode[Any],
        agent: Reference,
        *,
        alias: str = "",
        resources: ResourcesSession | None = None,
        token_capture: bool | None = None,
        cookie_required: bool = False,
    ) -> AgentParticipant:
        """A session of this episode at an agent; ``open`` begins it. One call for each agent, also when two fields name the same one:
        ``alias`` tells them apart. ``token_capture`` None: as the merged config says for that agent; the rest as in
        ``AgentParticipant``."""
        if token_capture is None:
            token_capture = self._captures.get(agent.name)
            if token_capture is None:
                token_capture = self._captures[agent.name] = captures_tokens(self.merged, agent.name)
        return AgentParticipant(
            self.client,
            episode,
            agent,
            alias=alias,
            resources=resources,
            token_capture=token_capture,
            cookie_required=cookie_required,
        )

    # Routes.

    def endpoints(self) -> list[Endpoint]:
        return [
            self._run_endpoint(),
            Endpoint("POST", "/aggregate_metrics", self._aggregate_route),
            Endpoint("GET", "/episodes", self._episodes_route),
        ]

    async def _episodes_route(self) -> dict[str, int]:
        return asdict(self.counts)

    def _run_endpoint(self) -> Endpoint:
        async def run_route(body: EpisodeRequest[Any]) -> dict[str, Any]:
            return await self.answer(body)

        run_route.__annotations__ = {"body": EpisodeRequest[self.task_input], "return": dict[str, Any]}  # type: ignore[name-defined]
        return Endpoint("POST", "/run", run_route)

    async def _aggregate_route(self, body: AggregateRequest) -> bytes:
        reply = await self.client.post(self.metrics_server(), "/aggregate_metrics", json=body)
        return reply.raise_for_status().body

    async def answer(self, request: EpisodeRequest[Any]) -> dict[str, Any]:
        """One episode from admission to cleanup: ``{episode_id, task_id, result, failure}`` with exactly one of the last two set."""
        result, failure = await self.conduct(request)
        return {
            "episode_id": request.episode_id.model_dump(),
            "task_id": request.task.task_id.model_dump(),
            "result": result,
            "failure": None if failure is None else failure.model_dump(mode="json"),
        }

    async def conduct(self, request: EpisodeRequest[Any]) -> tuple[dict[str, Any] | None, EpisodeFailure | None]:
        """The same as ``(result, failure)``, exactly one of them set."""
        if not await self._admitted():
            self.counts.not_admitted += 1
            return None, EpisodeFailure(failure_reason="Episode admission timed out", terminal=False, stage="admission")
        self.counts.running += 1
        try:
            return await self._run_episode(request)
        except asyncio.CancelledError:
            self.counts.cancelled += 1
            raise
        finally:
            self.counts.running -= 1
            if self._slots is not None:
                self._slots.release()

    async def _admitted(self) -> bool:
        if self._slots is None:
            return True
        self.counts.waiting += 1
        try:
            async with asyncio.timeout(self.config.queue_timeout_seconds):
                await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self.counts.waiting -= 1
        return True

    async def _run_episode(self, request: EpisodeRequest[Any]) -> tuple[dict[str, Any] | None, EpisodeFailure | None]:
        seconds = self.config.default_episode_timeout_seconds
        episode = Episode(
            id=request.episode_id,
            task_id=request.task.task_id,
            task_input=request.task.task_input,
            deadline=Deadline.after(seconds, f"episode {request.episode_id.capture_key}"),
            cleanup_seconds=self.config.cleanup_timeout_seconds,
            counts=self.counts,
        )
        bound = asyncio.timeout(seconds)
        result: dict[str, Any] | None = None
        failure: EpisodeFailure | None = None
        try:
            async with bound:
                result = _as_result(await self.run(episode))
        except HandledEpisodeError as error:
            failure = error.failure
        except Exception as error:  # noqa: BLE001 - one episode's fault is its own failure, not the server's
            if not bound.expired():
                failure = self._unhandled(episode, error)
        finally:
            given_up = list(episode.given_up)
            await _shielded(episode)
        if bound.expired():
            self._note_timeout(episode, given_up, late=len(given_up) or int(result is not None))
            return None, EpisodeFailure(failure_reason="Episode timed out", terminal=False)
        if failure is None:
            self.counts.results += 1
        else:
            self.counts.failures += 1
        return result, failure

    def _note_timeout(self, episode: Episode[Any], given_up: list[str], late: int) -> None:
        self.counts.timed_out += 1
        self.counts.late_answers += late
        _log.warning(
            "episode %s timed out after %g s%s; late answers dropped so far: %d",
            episode.id.capture_key,
            self.config.default_episode_timeout_seconds,
            "".join(f"; no longer waiting for {call}" for call in given_up),
            self.counts.late_answers,
        )

    @staticmethod
    def _unhandled(episode: Episode[Any], error: Exception) -> EpisodeFailure:
        _log.error("episode %s failed", episode.id.capture_key, exc_info=error)
        return EpisodeFailure(failure_reason=cut_reason(f"{type(error).__name__}: {error}"), terminal=True)


def _as_result(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if not isinstance(value, dict):
        raise TypeError(f"the result of an episode must be an object, not {type(value).__name__}")
    return value


async def _shielded(episode: Episode[Any]) -> None:
    """Clean up to the end even when the request is cancelled meanwhile (again); the cancellation goes on afterwards."""
    task = asyncio.create_task(episode.clean_up())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled

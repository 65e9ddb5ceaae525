"""Environment servers: the entry point of an episode, one method to write (contract-servers 2.4, contract-data 2.4)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from pydantic import BaseModel

from gym_compose.serving.client import Reference
from gym_compose.serving.config import EnvironmentServerConfig
from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.episode import Episode, HandledEpisodeError
from gym_compose.serving.server import Server
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.episodes import AggregateRequest, EpisodeFailure, EpisodeRequest
from gym_compose.wire.failures import cut_reason

_log = logging.getLogger(__name__)


class EnvironmentServer(Server):
    """Base of environment servers. Override ``run`` and set ``task_input``; limits, deadline, cleanup and failures are the base's.

    ``metrics_server`` names who aggregates (a resources server, or the agent behind a relay).
    """

    sessions: ClassVar[bool] = False
    task_input: ClassVar[Any] = dict[str, Any]
    """Type of ``task.task_input``: a pydantic model, validated with the body (422)."""

    config: EnvironmentServerConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._slots: asyncio.Semaphore | None = None
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
        raise NotImplementedError

    # Routes.

    def endpoints(self) -> list[Endpoint]:
        return [self._run_endpoint(), Endpoint("POST", "/aggregate_metrics", self._aggregate_route)]

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
        result: dict[str, Any] | None = None
        failure: EpisodeFailure | None = None
        if await self._admitted():
            try:
                result, failure = await self._conduct(request)
            finally:
                if self._slots is not None:
                    self._slots.release()
        else:
            failure = EpisodeFailure(failure_reason="Episode admission timed out", terminal=False, stage="admission")
        return {
            "episode_id": request.episode_id.model_dump(),
            "task_id": request.task.task_id.model_dump(),
            "result": result,
            "failure": None if failure is None else failure.model_dump(mode="json"),
        }

    async def _admitted(self) -> bool:
        if self._slots is None:
            return True
        try:
            async with asyncio.timeout(self.config.queue_timeout_seconds):
                await self._slots.acquire()
        except TimeoutError:
            return False
        return True

    async def _conduct(self, request: EpisodeRequest[Any]) -> tuple[dict[str, Any] | None, EpisodeFailure | None]:
        episode = Episode(
            id=request.episode_id,
            task_id=request.task.task_id,
            task_input=request.task.task_input,
            deadline=Deadline.after(self.config.default_episode_timeout_seconds, f"episode {request.episode_id.capture_key}"),
            cleanup_seconds=self.config.cleanup_timeout_seconds,
        )
        bound = asyncio.timeout(self.config.default_episode_timeout_seconds)
        try:
            async with bound:
                return _as_result(await self.run(episode)), None
        except HandledEpisodeError as error:
            return None, error.failure
        except TimeoutError as error:
            if bound.expired():
                return None, EpisodeFailure(failure_reason="Episode timed out", terminal=False)
            return None, self._unhandled(episode, error)
        except Exception as error:  # noqa: BLE001 - one episode's fault is its own failure, not the server's
            return None, self._unhandled(episode, error)
        finally:
            await _shielded(episode)

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

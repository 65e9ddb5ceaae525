"""Resources servers: state of an episode, tools, the verdict (contract-servers 2.1, contract-data 2.9)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from gym_compose.serving.call import Call
from gym_compose.serving.config import ResourcesServerConfig
from gym_compose.serving.endpoint import Endpoint, Handler, InvalidBody, declared_tools
from gym_compose.serving.errors import JudgeError
from gym_compose.serving.server import Server
from gym_compose.wire.aggregation import AggregateHooks, aggregate_metrics
from gym_compose.wire.episodes import (
    AggregateRequest,
    ResourcesCloseRequest,
    ResourcesCloseResponse,
    ResourcesSeedRequest,
    ResourcesSeedResponse,
    SandboxAccess,
)
from gym_compose.wire.failures import JUDGE_FAILED, check_failure_kind, cut_reason
from gym_compose.wire.ids import EpisodeId, TaskId
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject
from gym_compose.wire.run_body import FAILURE_CLASS

ReverifyMode = Literal["stateless", "unsupported", "unknown"]

# A body with both keys is meant as the typed form, whatever else is wrong with it.
_TYPED_KEYS = ("resources_session_id", "episode_id")
_ANY_OBJECT = TypeAdapter(dict[str, Any])


class VerifyRequest(BaseModel):
    """Body of ``/verify``: the row's fields flat beside params and answer. A subclass declares the row fields that its server reads; what
    is not declared is dropped and does not come back, unless the subclass allows extras."""

    model_config = ConfigDict(extra="ignore")

    responses_create_params: ResponsesCreateParams
    response: ResponsesObject

    def row_fields(self) -> dict[str, Any]:
        """Declared (and allowed extra) fields beside the two of this class, as JSON values."""
        names = set(type(self).model_fields) - _BASE_FIELDS
        fields = self.model_dump(mode="json", include=names) if names else {}
        if self.model_extra:
            fields.update(self.model_extra)
        return fields


_BASE_FIELDS = frozenset(VerifyRequest.model_fields)


@dataclass(frozen=True)
class Verdict:
    """What a verifier found. ``mask_sample``: the reward is no valid measurement (a lost session, a judge that failed) and stays out of
    the means. ``details`` are further top-level fields of the answer; numbers among them are aggregated."""

    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Bound:
    """A typed session: who may use it, and its answer for a seed that is asked again. ``seeded`` is set when the first seed is through."""

    episode_id: EpisodeId
    task_id: TaskId
    answer: ResourcesSeedResponse
    seeded: asyncio.Event = field(default_factory=asyncio.Event)


class ResourcesServer(Server):
    """Base of resources servers. Override ``verify``; ``seed`` and ``release`` where state is kept; mark tools with ``@tool``.

    State is keyed by ``call.session_id`` in ``seed``, tools and ``verify`` alike: for a typed seed the base makes that id the caller's
    ``resources_session_id``, so that ``release`` is called with the same id on close.
    """

    prefix_paths: ClassVar[frozenset[str] | None] = None
    verify_model: ClassVar[type[VerifyRequest]] = VerifyRequest
    seed_model: ClassVar[type[BaseModel] | None] = None
    """Validates what ``seed`` gets; None passes the mapping."""
    reverify_mode: ClassVar[ReverifyMode] = "unknown"

    config: ResourcesServerConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._bound: dict[str, _Bound] = {}
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._tools: list[Endpoint] = []
        super().__init__(*args, **kwargs)

    # What subclasses override.

    async def seed(self, task: Any, call: Call) -> SandboxAccess | None:  # noqa: ARG002 - for subclasses
        """Begin a session. ``task`` is the row (legacy form) or its ``task_data`` (typed form), validated by ``seed_model`` if there is
        one. The default keeps no state."""
        return None

    async def release(self, session_id: str) -> None:
        """End a session that ``seed`` began; raise when it cannot be released, the caller then asks again."""

    async def verify(self, body: Any, call: Call) -> Verdict:
        """Judge one answer; ``body`` is a ``verify_model``. Raise JudgeError when a judge could not be asked."""
        raise NotImplementedError

    def metric_hooks(self) -> AggregateHooks:
        """Metrics of this benchmark beside the generic ones."""
        return AggregateHooks()

    def add_tool(self, name: str, handler: Handler) -> None:
        """Serve ``handler`` as ``POST /<name>``; for names that are known only at start. Call it in ``setup``."""
        self._tools.append(Endpoint("POST", f"/{name}", handler))

    # Routes.

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/seed_session", self._seed_route),
            Endpoint("POST", "/close_session", self._close_route),
            self._verify_endpoint(),
            Endpoint("POST", "/aggregate_metrics", self.aggregate),
            Endpoint("GET", "/reverify_mode", self._reverify_route),
            *self._tools,
            *declared_tools(self),
        ]

    def _verify_endpoint(self) -> Endpoint:
        async def verify_route(body: VerifyRequest, call: Call) -> dict[str, Any]:
            return await self._verify_route(body, call)

        verify_route.__annotations__ = {"body": self.verify_model, "call": Call, "return": dict[str, Any]}
        return Endpoint("POST", "/verify", verify_route)

    def _task(self, value: dict[str, Any]) -> Any:
        if self.seed_model is None:
            return value
        try:
            return self.seed_model.model_validate(value)
        except ValidationError as error:
            raise InvalidBody(error) from None

    async def _seed_route(self, body: dict[str, Any], call: Call) -> ResourcesSeedResponse | dict[str, Any]:
        """Begin a session: the typed form of the episode protocol, or a legacy row.

        A malformed typed body is a 422 here. The peer takes it for a legacy row, answers ``{}`` and lets the environment server stumble
        over that (contract-servers 8.20); the text of a 422 says what is wrong.
        """
        if not all(key in body for key in _TYPED_KEYS):
            await self.seed(self._task(body), call)
            return {}
        try:
            request = ResourcesSeedRequest.model_validate(body)
        except ValidationError as error:
            raise InvalidBody(error) from None
        return await self._seed_typed(request, call)

    async def _seed_typed(self, request: ResourcesSeedRequest, call: Call) -> ResourcesSeedResponse:
        session_id = request.resources_session_id
        while True:
            if session_id in self._closed:
                raise ValueError(f"resources session {session_id!r} is closed already")
            bound = self._bound.get(session_id)
            if bound is None:
                break
            if (bound.episode_id, bound.task_id) != (request.episode_id, request.task_id):
                raise ValueError(f"resources session {session_id!r} belongs to another episode")
            if bound.seeded.is_set():
                call.session.id = session_id
                return bound.answer
            await bound.seeded.wait()  # a repeated seed, while the first is still at it; when that fails this one takes its place
        call.session.id = session_id
        bound = self._bound[session_id] = _Bound(
            request.episode_id, request.task_id, ResourcesSeedResponse(resources_session_id=session_id)
        )
        try:
            bound.answer.sandbox_access = await self.seed(self._task(request.task_data), call)
        except BaseException:
            self._bound.pop(session_id, None)
            raise
        finally:
            bound.seeded.set()
        if session_id in self._closed:
            # The close overtook the seed: it found nothing to release yet.
            await self.release(session_id)
            raise ValueError(f"resources session {session_id!r} was closed while it was seeded")
        return bound.answer

    async def _close_route(self, body: ResourcesCloseRequest) -> ResourcesCloseResponse:
        """End a session. Succeeds for one that was never seeded or is closed already, and stops a seed that arrives later."""
        session_id = body.resources_session_id
        bound = self._bound.get(session_id)
        if bound is not None:
            if bound.episode_id != body.episode_id:
                raise ValueError(f"resources session {session_id!r} belongs to another episode")
            await self.release(session_id)
            self._bound.pop(session_id, None)
        self._closed[session_id] = None
        while len(self._closed) > self.settings.closed_sessions_kept:
            self._closed.popitem(last=False)
        return ResourcesCloseResponse(resources_session_id=session_id)

    async def _verify_route(self, body: VerifyRequest, call: Call) -> dict[str, Any]:
        answer: dict[str, Any] = {"responses_create_params": body.responses_create_params.full(), "response": body.response.full()}
        try:
            verdict = await self.verify(body, call)
        except JudgeError as error:
            return self._judge_failed(body, answer, str(error))
        answer["reward"] = float(verdict.reward)
        answer["mask_sample"] = verdict.mask_sample
        answer["failure_kind"] = check_failure_kind(verdict.failure_kind)
        answer["failure_reason"] = verdict.failure_reason
        answer.update(body.row_fields())
        answer.update(verdict.details)
        return answer

    @staticmethod
    def _judge_failed(body: VerifyRequest, answer: dict[str, Any], reason: str) -> dict[str, Any]:
        fields = body.row_fields()
        instance = fields.pop("instance_config", None)
        reason = cut_reason(reason)
        return {
            **answer,
            **fields,
            "reward": 0.0,
            "mask_sample": True,
            "failure_kind": JUDGE_FAILED,
            "failure_reason": reason,
            "instance_config": {**(instance if isinstance(instance, dict) else {}), "mask_sample": True},
            FAILURE_CLASS: JUDGE_FAILED,
            "_ng_failure_judge_error": reason,
        }

    async def aggregate(self, body: AggregateRequest) -> dict[str, Any]:
        """Metrics over verify answers (contract-data 4.3)."""
        return aggregate_metrics(body.verify_responses, self.metric_hooks())

    async def _reverify_route(self) -> bytes:
        return orjson.dumps(self.reverify_mode)

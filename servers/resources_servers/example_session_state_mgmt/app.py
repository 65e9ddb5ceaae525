"""A counter for each session (contract-servers 3.4)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from pydantic import BaseModel

from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest, tool


class SeedTask(BaseModel):
    """What a seed must hold; the rest of the row is ignored."""

    initial_count: int


class IncrementCounterRequest(BaseModel):
    count: int


class IncrementCounterResponse(BaseModel):
    success: bool


class GetCounterValueResponse(BaseModel):
    count: int


class StatefulCounterVerifyRequest(VerifyRequest):
    expected_count: int

    def row_fields(self) -> dict[str, Any]:
        """Nothing of the row comes back, as with the peer."""
        return {}


class StatefulCounterResourcesServer(ResourcesServer):
    """Counters by session id. A legacy rollout never says that it is over, so only the ``closed_sessions_kept`` counters that were used
    last are kept."""

    config: ResourcesServerConfig
    seed_model = SeedTask
    verify_model = StatefulCounterVerifyRequest

    def setup(self) -> None:
        self._counters: OrderedDict[str, int] = OrderedDict()

    def _set(self, session_id: str, value: int) -> None:
        self._counters[session_id] = value
        self._counters.move_to_end(session_id)
        while len(self._counters) > self.settings.closed_sessions_kept:
            self._counters.popitem(last=False)

    async def seed(self, task: SeedTask, call: Call) -> None:
        self._set(call.session_id, self._counters.get(call.session_id, task.initial_count))

    async def release(self, session_id: str) -> None:
        self._counters.pop(session_id, None)

    @tool
    async def increment_counter(self, body: IncrementCounterRequest, call: Call) -> IncrementCounterResponse:
        """Add to the counter of this session."""
        self._set(call.session_id, self._counters.get(call.session_id, 0) + body.count)
        return IncrementCounterResponse(success=True)

    @tool
    async def get_counter_value(self, call: Call) -> GetCounterValueResponse:
        """The counter of this session; the request's body is not looked at."""
        value = self._counters.get(call.session_id, 0)
        self._set(call.session_id, value)
        return GetCounterValueResponse(count=value)

    async def verify(self, body: StatefulCounterVerifyRequest, call: Call) -> Verdict:
        return Verdict(reward=float(self._counters.get(call.session_id) == body.expected_count))


if __name__ == "__main__":
    StatefulCounterResourcesServer.run_webserver()

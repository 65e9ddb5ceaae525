"""Whether the environment servers of a run are there: a dead one ends the run with its name or halts it, and is never waited for unasked.

Dead is one to which no connection can be made: for ``run_death_seconds``, or as soon as the head server says the same. One that takes
connections is busy, however late it answers, until it has given no answer at all for ``run_silence_seconds``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gym_compose.driver.errors import ServerDeadError, ServerSilentError
from gym_compose.driver.policy import OnServerDeath
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.serving.client import HttpClient, LocalResourceError, PeerDropped, PeerError, PeerUnreachable
from gym_compose.wire.deadline import Clock, Deadline
from gym_compose.wire.settings import Settings

Tell = Callable[[str], None]
_HINT = "Look at its log; the rows that got no answer are counted as unresolved, and --resume goes on with them."
_LEAST_SECONDS = 0.1


@dataclass
class ServerState:
    """One server as the watch sees it. ``admits`` is set while rows may go to it, ``suspected`` when a row could not reach it."""

    server: EnvironmentServer
    admits: asyncio.Event = field(default_factory=asyncio.Event)
    suspected: asyncio.Event = field(default_factory=asyncio.Event)
    unreachable_since: float | None = None
    silent_since: float | None = None
    halted_at: float | None = None

    def __post_init__(self) -> None:
        self.admits.set()


class ServerWatch:
    """Watches the servers of one run by their root URL; ``run`` goes on until it is cancelled.

    ``fail``: a dead server raises ServerDeadError, a silent one ServerSilentError. ``wait``: rows for it are held back (``admit``) until it
    answers, for ``run_death_wait_seconds`` at most; ``tell`` gets a line when it begins and ends. ``strict``: nothing ever ends, as with
    NeMo Gym (contract-data 6, case 65).

    The probes have connections of their own, since those of the rows may be bounded and all be taken for hours.
    """

    def __init__(
        self,
        servers: Sequence[EnvironmentServer],
        head_url: str,
        settings: Settings,
        clock: Clock,
        *,
        on_death: OnServerDeath = "fail",
        strict: bool = False,
        tell: Tell = lambda _: None,
    ) -> None:
        self._states = {server.name: ServerState(server) for server in servers}
        self._head_url = head_url.rstrip("/")
        self._settings = settings
        self._clock = clock
        self._on_death = on_death
        self._strict = strict
        self._tell = tell
        self._added = asyncio.Event()

    def add(self, server: EnvironmentServer) -> None:
        """Watch a further server, if it is not watched yet: one to which a row of a stream goes first."""
        if server.name not in self._states:
            self._states[server.name] = ServerState(server)
            self._added.set()

    def state(self, server: EnvironmentServer) -> ServerState:
        return self._states[server.name]

    def suspect(self, server: EnvironmentServer) -> None:
        """A connection of a row was refused: look at the server now."""
        self._states[server.name].suspected.set()

    async def run(self) -> None:
        """Watch until cancelled. Raises ServerDeadError and ServerSilentError."""
        if self._strict:
            await asyncio.Event().wait()
        watched: set[str] = set()
        async with HttpClient() as http, asyncio.TaskGroup() as group:
            while True:
                self._added.clear()
                for name, state in self._states.items():
                    if name not in watched:
                        watched.add(name)
                        group.create_task(self._watch(http, state))
                await self._added.wait()

    async def _watch(self, http: HttpClient, state: ServerState) -> None:
        while True:
            state.suspected.clear()
            await self._look(http, state)
            if state.unreachable_since is None:
                try:
                    async with asyncio.timeout(self._settings.probe_interval_seconds):
                        await state.suspected.wait()
                except TimeoutError:
                    pass
            else:
                await asyncio.sleep(self._settings.probe_interval_seconds)

    async def _look(self, http: HttpClient, state: ServerState) -> None:
        begun, settings = self._clock(), self._settings
        silent = 0.0 if state.silent_since is None else begun - state.silent_since
        bound = Deadline.after(max(settings.run_silence_seconds - silent, _LEAST_SECONDS), "asking whether it is alive", self._clock)
        try:
            await http.request("GET", f"{state.server.url}/", deadline=bound, retry_refused=False)
        except LocalResourceError:
            return  # says nothing of the server
        except (PeerUnreachable, PeerDropped) as error:
            if state.unreachable_since is None:
                state.unreachable_since = begun
            gone = self._clock() - state.unreachable_since
            if gone >= settings.run_death_seconds or await self._head_agrees(http, state.server.name):
                text = f"environment server {state.server.name!r} takes no connections any more: {error}"
                self._dead(state, ServerDeadError(text, where=state.server.url, hint=_HINT))
        except PeerError as error:
            state.unreachable_since = None
            if state.silent_since is None:
                state.silent_since = begun
            if self._clock() - state.silent_since >= settings.run_silence_seconds:
                text = f"environment server {state.server.name!r} has not answered for {settings.run_silence_seconds:g} s: {error}"
                self._dead(state, ServerSilentError(text, where=state.server.url, hint=_HINT))
        else:
            self._alive(state)

    def _dead(self, state: ServerState, error: ServerDeadError | ServerSilentError) -> None:
        now, most = self._clock(), self._settings.run_death_wait_seconds
        if self._on_death == "fail":
            raise error
        if state.halted_at is None:
            state.halted_at = now
            state.admits.clear()
            self._tell(f"{error.message}; its rows wait until it answers, at most {most:g} s")
        elif now - state.halted_at >= most:
            error.message += f"; its rows have waited for {most:g} s"
            raise error

    def _alive(self, state: ServerState) -> None:
        state.unreachable_since = state.silent_since = None
        if state.halted_at is not None:
            self._tell(f"environment server {state.server.name!r} answers again after {self._clock() - state.halted_at:.0f} s")
            state.halted_at = None
            state.admits.set()

    async def _head_agrees(self, http: HttpClient, name: str) -> bool:
        """Whether the head server calls it unreachable. NeMo Gym's own head never does."""
        deadline = Deadline.after(self._settings.control_seconds, "asking the head server", self._clock)
        try:
            reply = await http.request("GET", f"{self._head_url}/server_instances", deadline=deadline, retry_refused=False)
            instances = reply.json()
        except (PeerError, ValueError):
            return False
        if reply.status != 200 or not isinstance(instances, list):
            return False
        return any(
            isinstance(item, dict) and item.get("process_name") == name and item.get("status") == "unreachable" for item in instances
        )

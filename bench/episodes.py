"""Environment servers alone, with stubs behind them that count: CPU of an episode, and a crowd of episodes under admission limits.

``python -m bench.episodes`` measures these figures alone. Nothing here needs Docker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.chain import cpu_seconds
from bench.figure import Figure, report
from bench.stub_participants import Counts
from gym_compose import __version__
from gym_compose.project.assets import root
from gym_compose.project.ports import free_port
from gym_compose.serving.client import HttpClient
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import NotReadyError
from gym_compose.wire.slice import PublicSlice

EPISODES = 5_000
CONCURRENCY = 64
CROWD = 1_000
LIMIT = 64
QUEUE_SECONDS = 60.0
TURN_SECONDS = 0.05
START_SECONDS = 60.0
RESOURCES, AGENT = "resources", "agent"


@dataclass
class Stack:
    """One environment server as a process, a stub for its resources server and one for its agent."""

    directory: Path
    implementation: str
    limits: dict[str, Any] = field(default_factory=dict)
    turn_seconds: float = 0.0
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in (RESOURCES, AGENT, "environment")})
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Stack:
        try:
            for name in (RESOURCES, AGENT):
                self.start_stub(name)
            self._start_environment()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self._processes):
            self.kill(name)

    def start_stub(self, name: str) -> None:
        """Start the resources server's or the agent's; again after ``kill``: at the same address, without what it knew."""
        command = [sys.executable, "-m", "bench.stub_participants", str(self.ports[name]), str(self.turn_seconds)]
        process = subprocess.Popen(command, cwd=root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._processes[name] = process
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise NotReadyError("the stub of the participants did not start", where=name)

    def kill(self, name: str) -> None:
        """End a stub, or the environment server, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _start_environment(self) -> None:
        kinds = {RESOURCES: "resources_servers", AGENT: "responses_api_agents"}
        references = {f"{name}_server": {"type": kind, "name": name} for name, kind in kinds.items()}
        if self.implementation == "legacy_agent":
            del references["resources_server"]
        block = {"entrypoint": "app.py", **references, "cleanup_timeout_seconds": 30.0, **self.limits}
        config: dict[str, Any] = {
            name: {kind: {"stub": {"host": "127.0.0.1", "port": self.ports[name], "entrypoint": "app.py"}}} for name, kind in kinds.items()
        }
        block |= {"host": "127.0.0.1", "port": self.ports["environment"]}
        config["environment"] = {"environment_servers": {self.implementation: block}}
        config |= {"head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False}
        public = PublicSlice(
            gym_compose=__version__,
            instance="environment",
            server_type="environment_servers",
            implementation=self.implementation,
            entrypoint="app.py",
            server_dir=str(root() / "servers" / "environment_servers" / self.implementation),
            runtime="native",
            config=config,
        )
        path = self.directory / f"{self.implementation}.json"
        path.write_text(public.model_dump_json(), encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": str(root())}
        log = (self.directory / f"{self.implementation}.log").open("wb")
        with log:
            command = [sys.executable, "-m", "gym_compose.serving.launch", "--slice", str(path)]
            self._processes["environment"] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        deadline = Deadline.after(START_SECONDS, "the environment server")
        while not self._answers():
            if deadline.expired or self._processes["environment"].poll() is not None:
                lines = Path(log.name).read_text("utf-8", "replace").splitlines()[-5:]
                raise NotReadyError("the environment server did not start", where=self.implementation, details=tuple(lines))
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url("environment"), timeout=5):
            return True
        return False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def cpu(self) -> float:
        """Seconds of the environment server's process."""
        return cpu_seconds(self._processes["environment"].pid)

    def counts(self, name: str) -> Counts:
        return Counts(**_get(self.url(name) + "/counts"))

    def episodes(self) -> dict[str, int]:
        """What the environment server says itself."""
        found: dict[str, int] = _get(self.url("environment") + "/episodes")
        return found


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return orjson.loads(reply.read())


@dataclass(frozen=True)
class Sent:
    """What came of a crowd: answers by rollout id (None: no answer at all), and when each was sent, on the monotonic clock."""

    answers: dict[str, Any]
    sent_at: dict[str, float]

    @property
    def outcomes(self) -> Counter[str]:
        """``result``, the stage of a failure, ``failure`` without one, or ``lost``."""
        return Counter(_outcome(answer) for answer in self.answers.values())


def _outcome(answer: Any) -> str:
    if not isinstance(answer, dict):
        return "lost"
    if answer.get("failure") is not None:
        return str(answer["failure"].get("stage") or "failure")
    result = answer.get("result", answer)
    return "result" if isinstance(result, dict) and result.get("reward") == 1.0 else "lost"


def body_of(rollout: str) -> dict[str, Any]:
    task = {"task_id": {"taskset": "bench", "task_id": rollout}, "task_input": {"responses_create_params": {"input": "x"}, "task_data": {}}}
    return {"episode_id": {"rollout_id": rollout, "attempt": 0}, "task": task}


async def send(url: str, episodes: int, concurrency: int) -> Sent:
    """``POST url/run`` that many episodes, ``concurrency`` at a time, none of them twice."""
    numbers = iter(range(episodes))
    answers: dict[str, Any] = {}
    sent_at: dict[str, float] = {}
    async with HttpClient() as http:

        async def work() -> None:
            for number in numbers:
                rollout = f"bench-{number}"
                sent_at[rollout] = time.monotonic()
                reply = await http.request("POST", url + "/run", json=body_of(rollout), retry_refused=False)
                answers[rollout] = reply.json() if reply.status == 200 else None

        await asyncio.gather(*(work() for _ in range(min(concurrency, episodes))))
    return Sent(answers, sent_at)


def crowd(stack: Stack, episodes: int) -> tuple[Sent, list[float]]:
    """All episodes at once; the seconds that each waited until its resources session was asked for, sorted."""
    sent = asyncio.run(send(stack.url("environment"), episodes, episodes))
    seeded = stack.counts(RESOURCES).seeded
    return sent, sorted(seeded[rollout] - sent.sent_at[rollout] for rollout in seeded)


def crowd_without_agent(stack: Stack, episodes: int, *, turns: int, away: float) -> Sent:
    """The same, and the agent dies when it has begun that many turns, and comes back ``away`` seconds later, without its sessions."""

    async def both() -> Sent:
        sending = asyncio.create_task(send(stack.url("environment"), episodes, episodes))
        while (await asyncio.to_thread(stack.counts, AGENT)).turns < turns:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(stack.kill, AGENT)
        await asyncio.sleep(away)
        await asyncio.to_thread(stack.start_stub, AGENT)
        return await sending

    return asyncio.run(both())


def figures(directory: Path) -> Iterator[Figure]:
    """CPU of both environment servers, then the crowd, then the crowd whose agent dies."""
    directory.mkdir(parents=True, exist_ok=True)
    yield from _cpu(directory)
    yield from _crowd(directory)
    yield from _death(directory)


def _cpu(directory: Path) -> Iterator[Figure]:
    for implementation, most in (("legacy_agent", 1.5), ("single_agent_turn", 6.0)):
        with Stack(directory, implementation) as stack:
            asyncio.run(send(stack.url("environment"), CONCURRENCY, CONCURRENCY))  # its imports and first connections
            before, began = stack.cpu, time.monotonic()
            sent = asyncio.run(send(stack.url("environment"), EPISODES, CONCURRENCY))
            used, seconds = stack.cpu - before, time.monotonic() - began
        note = f"stubs behind it, {CONCURRENCY} at once, {EPISODES / seconds:.0f}/s; {sent.outcomes['result']:,} results"
        yield Figure(f"CPU of {implementation} for an episode, over {EPISODES:,}", used / EPISODES * 1000, "ms", most, note=note)


def _crowd(directory: Path) -> Iterator[Figure]:
    limits = {"max_concurrent_episodes": LIMIT, "queue_timeout_seconds": QUEUE_SECONDS, "default_episode_timeout_seconds": 120.0}
    name = f"{CROWD:,} episodes at once, {LIMIT} admitted at a time"
    with Stack(directory, "single_agent_turn", limits, TURN_SECONDS) as stack:
        sent, waited = crowd(stack, CROWD)
        agents, resources = stack.counts(AGENT), stack.counts(RESOURCES)
        said = stack.episodes()
    yield Figure(f"{name}: lost", CROWD - sent.outcomes["result"], "", 0.0, note=str(dict(sent.outcomes)))
    yield Figure(f"{name}: most at once, counted by the agent", agents.most_agents_open, "", LIMIT, note=f"turns: {agents.most_turns}")
    p99 = statistics.quantiles(waited, n=100)[98]
    yield Figure(f"{name}: p99 of waiting", p99, "s", QUEUE_SECONDS, note=f"median {statistics.median(waited):.2f} s")
    opened = resources.resources_opened + agents.agents_opened
    left = opened - resources.resources_closed - agents.agents_closed
    note = f"{opened:,} opened; of {said['cleanups_registered']:,} cleanups {said['cleanups_done']:,} done"
    yield Figure(f"{name}: sessions left open, counted by the stubs", left, "", 0.0, note=note)


def _death(directory: Path) -> Iterator[Figure]:
    limits = {"max_concurrent_episodes": LIMIT, "queue_timeout_seconds": QUEUE_SECONDS, "default_episode_timeout_seconds": 120.0}
    name = f"{CROWD:,} episodes, the agent dies in the middle"
    with Stack(directory, "single_agent_turn", limits, 0.2) as stack:
        sent = crowd_without_agent(stack, CROWD, turns=CROWD // 4, away=1.0)
        resources = stack.counts(RESOURCES)
        said = stack.episodes()
    answered = sum(count for outcome, count in sent.outcomes.items() if outcome != "lost")
    yield Figure(f"{name}: without an answer", CROWD - answered, "", 0.0, note=str(dict(sent.outcomes)))
    yield Figure(f"{name}: failed by it", sent.outcomes["agent"] + sent.outcomes["cleanup"], "", at_least=1.0)
    left = resources.resources_opened - resources.resources_closed
    yield Figure(f"{name}: resources sessions left open", left, "", 0.0, note=f"{resources.resources_opened:,} opened")
    untried = said["cleanups_left_open"] + said["running"]
    note = f"{said['cleanups_failed']} of {said['cleanups_registered']:,} met a dead agent"
    yield Figure(f"{name}: cleanups not tried", untried, "", 0.0, note=note)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gym-compose-bench-") as directory:
        return report(figures(Path(directory)))


if __name__ == "__main__":
    sys.exit(main())

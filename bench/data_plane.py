"""The data plane: rollouts a second of our servers and driver beside the floor's and NeMo Gym's own, all in one run on the same cores.

The shape is the four-server example with one tool: two model calls, one tool call, one verdict. All sides ask the same endpoint
(``mock_openai.py``, with and without a delay), take turns (A B C A B C) and are counted from the first completion to the last. The floor
(``../shared/tools/floor``) makes the same hops with no validation, no sessions and no bookkeeping; NeMo Gym runs by its own command in one
container, with its own driver. What cannot be measured here is listed with the reason, and misses its target.

``python -m bench.data_plane [--no-docker | --no-peer]`` measures these figures alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import orjson

from bench.chain import FLOOR_URL, Grower, Growth, PartError, children, cpu_seconds, endpoint, floor
from bench.figure import Figure, report
from bench.gym import COMMAND_SECONDS, Gym
from bench.load import Load
from bench.peer_chain import AGENT, IMAGE, PeerChain, image, peer_chain
from bench.peer_runtime import shared_tools
from gym_compose.engine.command import run_command
from gym_compose.project.assets import root
from gym_compose.project.ports import free_port
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import NotReadyError
from gym_compose.wire.names import LABEL_IMAGE_KEY, LABEL_PROJECT, SERVER_PORT
from gym_compose.wire.redaction import Redactor

CONCURRENCY = 64
DELAYS = (0.0, 0.05)
ROUNDS = 2
ROLLOUTS = 600
PEER_ROLLOUTS = 300
FEW = 20
MANY = 2000
REPLY_SECONDS = 120.0
EPISODES = 1000
PROCESS, DOCKER = "bench-dp-process", "bench-dp-docker"
LEGACY = "example_single_tool_call_environment_server"
CHAIN = (LEGACY, AGENT, "example_single_tool_call", "policy_model")
TURN = "example_single_tool_call_turn"
ROWS = root() / "servers" / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
_SELECTION = ("--resources-server", "example_single_tool_call", "--model-type", "openai_model", "--model-api-key", "x", "--model", "mock")
_ROUTE = ("++environment_routing_mode=legacy", f"++environment_server_name={LEGACY}")  # the other one fronts the same agent
_TURN_CONFIG = f"""{TURN}:
  environment_servers:
    single_agent_turn:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: example_single_tool_call}}
      agent_server: {{type: responses_api_agents, name: {AGENT}}}
      resources_tool_transports: [direct_http]
      default_episode_timeout_seconds: 600
      cleanup_timeout_seconds: 60
"""


@dataclass
class Rates:
    """Rollouts a second by side, one for each round."""

    of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, side: str) -> float:
        return statistics.median(self.of[side])

    def ratio(self, side: str, other: str) -> float:
        """Median of the rounds' ratios: what the machine did meanwhile touches both sides of a round."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.of[side], self.of[other], strict=True))


def figures(gym: Gym, *, with_docker: bool, with_peer: bool = True) -> Iterator[Figure]:
    """All of them, in the order of issue 6. Everything that was started is gone afterwards. Without the peer its targets are missed."""
    tools = shared_tools()
    if tools is None or not (tools / "floor" / "server.py").is_file():
        why = "no tools/floor and tools/mock_openai.py beside this repository (GYM_COMPOSE_SHARED)"
        yield Figure.missing("data plane, all figures", "", why, at_least=1.0)
        return
    client = docker.from_env() if with_docker else None
    try:
        yield from _Bench(gym, tools, client, with_peer).figures()
    finally:
        if client is not None:
            client.close()


class _Bench:
    def __init__(self, gym: Gym, tools: Path, client: Any, with_peer: bool) -> None:
        self._gym = gym
        self._tools = tools
        self._client = client
        self._io = gym.cwd / "data-plane"
        self._io.mkdir()
        self._rows = self._io / "rows.jsonl"
        self._rows.write_bytes(ROWS.read_bytes())
        (self._io / "turn.yaml").write_text(_TURN_CONFIG, encoding="utf-8")
        self._runs = 0
        self._floor: tuple[int, ...] = ()
        self._with_peer = with_peer
        self._no_peer_because = (
            "--no-peer" if not with_peer else f"no {IMAGE} image here: gym compose build of a config with runtime nemo-gym makes one"
        )
        self._cpu: dict[str, list[float]] = defaultdict(list)

    def figures(self) -> Iterator[Figure]:
        tag = image(self._client) if self._client is not None and self._with_peer else None
        with contextlib.ExitStack() as stack:
            peer: PeerChain | None = None
            with endpoint(self._tools, DELAYS[0]) as url:
                self._floor = stack.enter_context(floor(self._tools))
                stack.enter_context(self._deployed(PROCESS, "process", url))
                if self._client is not None:
                    stack.enter_context(self._deployed(DOCKER, "docker", url))
                if tag is not None:
                    print("starting NeMo Gym's own servers by its own command", file=sys.stderr, flush=True)
                    try:
                        peer = stack.enter_context(peer_chain(self._client, tag, url, self._io))
                    except NotReadyError as error:
                        self._no_peer_because = f"NeMo Gym's own start failed: {error.details[-1] if error.details else error}"
                yield from self._at(DELAYS[0], peer)
                yield from self._drivers(peer)
                yield from self._cpu_figures()
                yield from self._many()
            with endpoint(self._tools, DELAYS[1]):
                yield from self._at(DELAYS[1], peer, rounds=1)

    # Sides

    @contextlib.contextmanager
    def _deployed(self, project: str, engine: str, url: str) -> Iterator[None]:
        selection = [*_SELECTION, "--model-url", url, "--config", str(self._io / "turn.yaml"), f"++head_server.port={free_port()}"]
        self._gym.run("compose", "up", "-d", "--engine", engine, "-p", project, *selection)  # takes back what it began when it fails
        try:
            yield
        finally:
            self._gym.run("compose", "down", "-p", project)

    def _loaded(self, command: Sequence[str], url: str, rollouts: int, *more: str) -> Load:
        """``bench.load`` by ``command``, which ends before its arguments."""
        result = run_command(
            [*command, url, str(self._rows), str(rollouts), *more],
            environ=os.environ,
            cwd=root(),
            deadline=Deadline.after(COMMAND_SECONDS, "a load"),
            redactor=Redactor(()),
        )
        if not result.ok:
            raise result.error("the load failed")
        return Load(**orjson.loads(result.stdout))

    def _bare(self, url: str, rollouts: int = ROLLOUTS, *more: str) -> Load:
        load = self._loaded([sys.executable, "-m", "bench.load"], url, rollouts, *(more or (str(CONCURRENCY),)))
        if load.succeeded != load.sent and not more:
            raise PartError(f"{load.sent - load.succeeded} of {load.sent} rollouts failed", where=url, details=(load.first_failure,))
        return load

    def _on_the_floor(self) -> float:
        before = cpu_seconds(*self._floor)
        load = self._bare(FLOOR_URL)
        self._cpu["floor"].append((cpu_seconds(*self._floor) - before) / load.sent)
        return load.rate

    def _on_processes(self) -> float:
        relay, chain = self._pid(LEGACY), [self._pid(instance) for instance in CHAIN]
        before = cpu_seconds(relay), cpu_seconds(*chain)
        load = self._bare(self._url(LEGACY) + "/run")
        self._cpu["relay"].append((cpu_seconds(relay) - before[0]) / load.sent)
        self._cpu["chain"].append((cpu_seconds(*chain) - before[1]) / load.sent)
        return load.rate

    def _in_containers(self) -> float:
        """The same loop, from inside the project's network: an environment server is not published."""
        native = self._client.containers.list(filters={"label": [f"{LABEL_PROJECT}={DOCKER}", LABEL_IMAGE_KEY]})
        command = ["docker", "run", "--rm", "--network", f"{DOCKER}_servers", "-v", f"{root()}/bench/load.py:/load.py:ro"]
        command += ["-v", f"{self._rows}:{self._rows}:ro", native[0].image.tags[0], "/opt/gym/bin/python", "/load.py"]
        host = f"{LEGACY.replace('_', '-')}.gym"
        load = self._loaded(command, f"http://{host}:{SERVER_PORT}/run", ROLLOUTS, str(CONCURRENCY))
        if load.succeeded != load.sent:
            raise PartError(f"{load.sent - load.succeeded} of {load.sent} rollouts failed", where=host, details=(load.first_failure,))
        return load.rate

    def _by_our_driver(self, *where: str, rollouts: int = ROLLOUTS) -> Growth:
        self._runs += 1
        output = self._io / f"ours-{self._runs}.jsonl"
        repeats = rollouts // sum(1 for line in self._rows.open("rb") if line.strip())
        arguments = ["eval", "run", "--no-serve", "--agent", AGENT, "--input", str(self._rows), "--num-repeats", str(repeats)]
        with Grower(output) as grower:
            self._gym.run(*arguments, "--concurrency", str(CONCURRENCY), "--output", str(output), "--disable-aggregation", *where)
        return grower.growth()

    def _by_peers_driver(self, peer: PeerChain, rollouts: int = PEER_ROLLOUTS) -> Growth:
        self._runs += 1
        return peer.drive(self._rows, rollouts, CONCURRENCY, f"peer-{self._runs}")

    # Figures

    def _at(self, delay: float, peer: PeerChain | None, rounds: int = ROUNDS) -> Iterator[Figure]:
        shape = f"{delay * 1000:g} ms endpoint, {CONCURRENCY} at once"
        sides: dict[str, Callable[[], float]] = {
            "the floor": self._on_the_floor,
            "our servers, processes": self._on_processes,
            "gym eval run, our servers as processes": lambda: self._by_our_driver("-p", PROCESS, *_ROUTE).rate,
        }
        if self._client is not None:
            sides["our servers, containers"] = self._in_containers
        if peer is not None:
            sides["NeMo Gym, its servers and its driver"] = lambda: self._by_peers_driver(peer).rate
        rates = Rates()
        for _ in range(rounds):
            for side, measure in sides.items():
                rates.of[side].append(measure())
        for side in sides:
            yield Figure(f"{side}, {shape}", rates.median(side), "rollouts/s", note=f"median of {rounds}")
        yield Figure(f"our servers as processes / floor, {shape}", rates.ratio("our servers, processes", "the floor"), "", at_least=0.7)
        name = f"our servers in containers / floor, {shape}"
        if self._client is None:
            yield Figure.missing(name, "", "--no-docker")
        else:
            yield Figure(name, rates.ratio("our servers, containers", "the floor"), "", at_least=0.6)
        name = f"gym eval run / NeMo Gym's, {shape}"
        if peer is None:
            yield self._no_peer(name, at_least=3.0)
        else:
            ratio = rates.ratio("gym eval run, our servers as processes", "NeMo Gym, its servers and its driver")
            yield Figure(name, ratio, "", at_least=3.0)

    def _no_peer(self, name: str, unit: str = "", *, at_least: float | None = None, at_most: float | None = None) -> Figure:
        if self._client is None:
            return Figure.missing(name, unit, "--no-docker")
        return Figure.missing(name, unit, self._no_peer_because, at_least=at_least, at_most=at_most)

    def _drivers(self, peer: PeerChain | None) -> Iterator[Figure]:
        """Our driver on the peer's servers beside the peer's own."""
        name, start = "our driver on NeMo Gym's servers / its own", "our driver's start to the first completion there"
        if peer is None:
            yield self._no_peer(name, at_least=1.0)
            yield self._no_peer(start, "s", at_most=2.0)
            return
        head = ("++head_server.host=127.0.0.1", f"++head_server.port={peer.head_port}")
        rates = Rates()
        for _ in range(ROUNDS - 1):
            rates.of["ours"].append(self._by_our_driver(*head, rollouts=PEER_ROLLOUTS).rate)
            rates.of["theirs"].append(self._by_peers_driver(peer).rate)
        note = f"{rates.median('ours'):.0f} and {rates.median('theirs'):.0f} rollouts/s"
        yield Figure(name, rates.ratio("ours", "theirs"), "", at_least=1.0, note=note)
        few, theirs = self._by_our_driver(*head, rollouts=FEW), self._by_peers_driver(peer, FEW)
        yield Figure(start, few.first, "s", 2.0, theirs.first, f"{FEW} rollouts in {few.seconds:.1f} s and {theirs.seconds:.1f} s")

    def _cpu_figures(self) -> Iterator[Figure]:
        """CPU of servers for one rollout, whatever else the machine does; of the environment server's process (issue 7)."""
        ours, least = (statistics.median(self._cpu[side]) * 1000 for side in ("chain", "floor"))
        yield Figure("CPU of our four servers for a rollout", ours, "ms", note=f"the floor's: {least:.1f} ms, 0 ms endpoint")
        yield Figure("the same / the floor's", ours / least, "", 1 / 0.7)
        relay = statistics.median(self._cpu["relay"]) * 1000
        yield Figure("CPU of legacy_agent for an episode", relay, "ms", 1.5, note=f"{ROUNDS} x {ROLLOUTS} episodes")
        pid = self._pid(TURN)
        before = cpu_seconds(pid)
        load = self._bare(self._url(TURN) + "/run", EPISODES, str(CONCURRENCY), str(REPLY_SECONDS), "episodes")
        if load.succeeded != load.sent:
            raise PartError(f"{load.sent - load.succeeded} of {load.sent} episodes failed", where=TURN, details=(load.first_failure,))
        used = (cpu_seconds(pid) - before) / load.sent
        yield Figure("CPU of single_agent_turn for an episode", used * 1000, "ms", 6.0, note=f"{EPISODES} episodes, {load.rate:.0f}/s")

    def _many(self) -> Iterator[Figure]:
        load = self._bare(self._url(LEGACY) + "/run", MANY, str(MANY), str(REPLY_SECONDS))
        name = f"{MANY:,} rollouts at once, no retries: succeeded"
        note = load.first_failure or f"reply timeout {REPLY_SECONDS:g} s, {load.rate:.0f} rollouts/s"
        yield Figure(name, load.succeeded / load.sent, "", at_least=1.0, note=note)
        yield Figure(f"{MANY:,} at once, p50", load.p50, "s")
        yield Figure(f"{MANY:,} at once, p99", load.p99, "s", REPLY_SECONDS)

    # The deployment of processes

    def _record(self, instance: str) -> dict[str, Any]:
        document = orjson.loads((self._gym.cwd / ".gym" / PROCESS / "processes.json").read_bytes())
        found: dict[str, Any] = next(record for record in document["processes"] if record["instance"] == instance)
        return found

    def _url(self, instance: str) -> str:
        return f"http://127.0.0.1:{self._record(instance)['port']}"

    def _pid(self, instance: str) -> int:
        """The Python process: what is recorded is the shell that notes its exit code."""
        return children(self._record(instance)["pid"])[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.data_plane", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-docker", action="store_true", help="leave out what needs a Docker engine")
    parser.add_argument("--no-peer", action="store_true", help="do not start NeMo Gym's own servers; their targets are missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gym-compose-bench-") as directory:
        return report(figures(Gym(Path(directory)), with_docker=not arguments.no_docker, with_peer=not arguments.no_peer))


if __name__ == "__main__":
    sys.exit(main())

"""NeMo Gym's own four-server example, started by its own command in one container, and its own driver in the same container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.chain import Grower, Growth, PartError
from bench.peer_runtime import FILES, policy
from bench.peer_start import started
from gym_compose.project.ports import free_port

IMAGE = "gym-compose/nemo-gym"
AGENT = "example_single_tool_call_simple_agent"


def image(client: Any) -> str | None:
    """The newest image of the nemo-gym runtime; None when there is none (the bench of images builds one, in minutes)."""
    images = sorted(client.images.list(name=IMAGE), key=lambda found: str(found.attrs["Created"]))
    return str(images[-1].tags[0]) if images else None


def drive(container: Any, head_port: int, rows: Path, output: Path, asked: Sequence[str]) -> None:
    """``gym eval run --no-serve`` of the peer in the container of its servers, which sees both files under the same paths. Raises
    PartError with its last lines."""
    command = [
        *("gym", "eval", "run", "--no-serve", *asked, "--input", str(rows), "--output", str(output)),
        *("++head_server.host=127.0.0.1", f"++head_server.port={head_port}"),
    ]
    code, said = container.exec_run(command, workdir="/tmp/work")
    if code != 0:
        last = tuple(said.decode(errors="replace").splitlines()[-10:])
        raise PartError(f"ended with {code}", where="NeMo Gym's driver", details=last)


@dataclass(frozen=True)
class PeerChain:
    """A running one. ``io`` is a directory that the container sees under the same path."""

    container: Any
    head_port: int
    io: Path

    def drive(self, rows: Path, rollouts: int, concurrency: int, name: str) -> Growth:
        """``gym eval run --no-serve`` of the peer; ``rollouts`` is a multiple of the rows. Raises PartError with its last lines."""
        output = self.io / f"{name}.jsonl"
        lines = sum(1 for line in rows.open("rb") if line.strip())
        asked = ["--agent", AGENT, "--num-repeats", str(rollouts // lines), "--concurrency", str(concurrency)]
        with Grower(output) as grower:
            drive(self.container, self.head_port, rows, output, asked)
        return grower.growth()


@contextlib.contextmanager
def peer_chain(client: Any, tag: str, url: str, io: Path) -> Iterator[PeerChain]:
    """``url`` is the model endpoint on this host. Raises NotReadyError with the last lines of its log."""
    head = free_port()
    overrides = [f"+config_paths=[{','.join(FILES)}]", *policy(url), f"++head_server.port={head}"]
    with started(client, tag, overrides, {str(io): {"bind": str(io), "mode": "rw"}}) as (container, _):
        yield PeerChain(container, head, io)

"""``python -m bench [--no-docker]``: prints all figures; exit 1 when a target is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import chain
from pathlib import Path

from bench import aggregation, collation, command_line, config, data_plane, driver_rows, episodes, peer_runtime, quickstart, scripted
from bench.figure import report
from bench.gym import Gym
from gym_compose.project.assets import root


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--no-docker", action="store_true", help="leave out what needs a Docker engine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gym-compose-bench-") as directory:
        gym = Gym(Path(directory))
        sources = [
            command_line.figures(gym),
            config.figures(gym),
            scripted.figures(gym, root()),
            aggregation.figures(),
            collation.figures(),
        ]
        sources.append(driver_rows.figures(Path(directory) / "driver"))
        sources.append(episodes.figures(Path(directory) / "episodes"))
        if not arguments.no_docker:
            servers = quickstart.copy_servers(root() / "servers", Path(directory) / "trees")
            sources.append(quickstart.figures(gym, servers))
            sources.append(peer_runtime.figures(gym))
        sources.append(data_plane.figures(gym, with_docker=not arguments.no_docker))  # after the images that it takes the peer from
        return report(chain.from_iterable(sources))


if __name__ == "__main__":
    sys.exit(main())

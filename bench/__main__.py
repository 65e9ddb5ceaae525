"""``python -m bench [--no-docker]``: prints all figures; exit 1 when a target is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import aggregation, collation, command_line, config, data_plane, driver_rows, episodes, peer_runtime, quickstart, scripted
from bench.figure import Figure, print_table
from bench.gym import Gym
from gym_compose.project.assets import root
from gym_compose.wire.errors import GymComposeError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--no-docker", action="store_true", help="leave out what needs a Docker engine")
    arguments = parser.parse_args()
    figures: list[Figure] = []
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
        try:
            for source in sources:
                for figure in source:
                    figures.append(figure)
                    print(f"{figure.name}: {figure.said}", file=sys.stderr, flush=True)
        except GymComposeError as error:
            print(f"Error: {error}", *error.details, sep="\n  ", file=sys.stderr)
            return error.exit_code
    print_table(figures, Console(width=170))
    missed = [figure.name for figure in figures if not figure.met]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""``gym env init``: a new server of any type; environments and benchmarks with a manifest are left to NeMo Gym (contract-config 2.2)."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from gym_compose.cli.command import Command, Handed, Native, Tokens, entrypoint_tokens
from gym_compose.cli.console import Console
from gym_compose.cli.flags import Special, Value
from gym_compose.wire.errors import UsageError

if TYPE_CHECKING:
    from gym_compose.cli.translate import Invocation

_SCAFFOLD = Handed("only --resources-server and --server are done here: a server, without a manifest.")
_PROFILES = ("custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver")


def _value(tokens: Tokens, key: str) -> str | None:
    """The value of the last override of ``key``."""
    found = [token.partition("=")[2] for token in tokens if token.lstrip("+").partition("=")[0] == key]
    return found[-1] if found else None


def _target(args: argparse.Namespace, tokens: Tokens) -> str:
    if args.server and args.resources_server:
        raise UsageError("give --server or --resources-server, not both.")
    scaffold = bool(args.scaffold_environment or args.scaffold_benchmark or _value(tokens, "scaffold_kind"))
    if scaffold and _value(tokens, "entrypoint") is not None:
        raise UsageError("a server and a workload cannot be made in one call.")
    given = any(_value(tokens, key) is not None for key in ("profile", "reuse_verifier", "reward_range", "higher_is_better"))
    if not scaffold and given:
        raise UsageError("--profile, --reuse-verifier and the reward flags need --environment or --benchmark.")
    return "init_environment" if scaffold else "init_resources_server"


def _declare_target(parser: argparse._ActionsContainer) -> None:
    group = parser.add_mutually_exclusive_group()  # type: ignore[union-attr,unused-ignore]
    group.add_argument("--resources-server", metavar="X", help="a resources server")
    group.add_argument("--environment", dest="scaffold_environment", metavar="X", help="an environment with a manifest")
    group.add_argument("--benchmark", dest="scaffold_benchmark", metavar="X", help="a benchmark with a manifest")


def _target_tokens(args: argparse.Namespace) -> list[str]:
    for kind in ("environment", "benchmark"):
        name = getattr(args, f"scaffold_{kind}")
        if name:
            return [f"+scaffold_kind={kind}", f"+scaffold_name={json.dumps(name)}"]
    return entrypoint_tokens(args)


def _declare_server(parser: argparse._ActionsContainer) -> None:
    # Outside the group: argparse does not break the usage line of one.
    parser.add_argument("--server", metavar="TYPE/X", help="a server of any type: environment_servers/X, responses_api_agents/X, …")


def _server_tokens(args: argparse.Namespace) -> list[str]:
    return [f"+entrypoint={args.server}"] if args.server else []


def _declare_range(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--reward-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="declared reward range, ends included")


def _range_tokens(args: argparse.Namespace) -> list[str]:
    return [f"+reward_range=[{args.reward_range[0]},{args.reward_range[1]}]"] if args.reward_range else []


def _declare_direction(parser: argparse._ActionsContainer) -> None:
    group = parser.add_mutually_exclusive_group()  # type: ignore[union-attr,unused-ignore]
    for name, value in (("higher", True), ("lower", False)):
        group.add_argument(
            f"--{name}-is-better", dest="higher_is_better", action="store_const", const=value, help=f"{name} rewards are better"
        )


def _direction_tokens(args: argparse.Namespace) -> list[str]:
    return [] if args.higher_is_better is None else [f"+higher_is_better={str(args.higher_is_better).lower()}"]


INIT = Command(
    "make a new server that works, with its config and test",
    Native("init:run", "`--environment` and `--benchmark` are handed to the peer where it is installed, else refused"),
    _target,
    (
        Special("target", "", declare_with=_declare_target, tokens=_target_tokens),
        Special("server", "", declare_with=_declare_server, tokens=_server_tokens),
        Value("profile", ", ".join(_PROFILES[:-1]) + f" or {_PROFILES[-1]}", metavar="PROFILE", key="profile", choices=_PROFILES),
        Value("reuse-verifier", "verifier to use again", key="reuse_verifier", quoted=True),
        Special("reward-range", "", declare_with=_declare_range, tokens=_range_tokens),
        Special("direction", "", declare_with=_declare_direction, tokens=_direction_tokens),
    ),
    examples=("gym env init --resources-server my_task", "gym env init --server environment_servers/my_episode"),
)


def run(call: Invocation, console: Console) -> int:
    """Make the server below the working directory. A directory that exists is left as it is: a message, exit 0 (contract-config 2.2).

    Raises UsageError when nothing is to be made, InvalidInputError for a name that cannot be one.
    """
    if call.target == "init_environment":
        from gym_compose.cli.peer import hand_over

        return hand_over(call.name, _SCAFFOLD, call.argv, console)
    from gym_compose.config.roots import installed_root, last_roots
    from gym_compose.project.new_server import NewServer, ServerExistsError

    entrypoint = _value(call.overrides, "entrypoint")
    if entrypoint is None:
        raise UsageError("there is nothing to make.", hint="Give --resources-server NAME or --server TYPE/NAME.")
    server = NewServer.parse(entrypoint)
    try:
        files = server.write(call.cwd)
    except ServerExistsError as error:
        console.err(str(error))
        return 0
    console.out(f"Made {server.directory}:")
    for file in files:
        console.out(f"  {file.relative_to(call.cwd)}")
    for root in last_roots(installed_root()):
        if (root / server.directory).is_dir():
            console.err(f"Note: in this directory it now stands for {root / server.directory}, also in configs that mean that one.")
    console.out("Next:")
    console.out(f"  pytest {server.directory}/tests")
    console.out(f"  gym compose plan --config {server.demo_config}")
    return 0

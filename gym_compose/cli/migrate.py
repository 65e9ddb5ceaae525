"""``gym migrate environment-servers``: the migration script with the search roots of the command line."""

from __future__ import annotations

from pathlib import Path

from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import InvalidInputError


def environment_servers(call: Invocation, console: Console) -> int:
    """Exit status: 2 when a file cannot be read or has to be edited by hand, 1 with ``--check`` and something to add, else 0.

    Raises InvalidInputError when there is nothing to look at.
    """
    from gym_compose.cli.listing import component_roots
    from gym_compose.tasks import add_legacy_agent_environment_servers as script

    paths = [call.cwd / Path(path).expanduser() for path in call.args.paths] or script.components(call.cwd)
    if not paths:
        raise InvalidInputError(
            "there is no component directory to migrate.",
            where=str(call.cwd),
            hint=f"Give files or directories, or run it where one of {', '.join(script.COMPONENTS)} is.",
        )
    report = script.migrate(paths, component_roots(call), check=call.args.check)
    if call.json:
        console.json(report.document())
    else:
        report.print()
    return report.exit_code

"""Whether an instance may run in several processes: ``num_workers`` above 1 (contract-config 4.4; contract-servers 8, 9 and 10)."""

from __future__ import annotations

from collections.abc import Mapping

from gym_compose.compiler.errors import SourceError
from gym_compose.compiler.extension import ServerOptions
from gym_compose.config.model import ClassFlags, GymConfig, ServerInstance, ServerSource

PATIENCE_KEY = "uvicorn_timeout_worker_healthcheck"


def worker_count(instance: ServerInstance) -> int:
    """Processes that the server is to run in. The config's text ``'2'`` counts, as the peer's own validation reads it."""
    given = instance.block.get("num_workers")
    if (isinstance(given, str) and given.strip().isdecimal()) or (isinstance(given, float) and given.is_integer()):
        given = int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) else 1


def one_process_serves(instance: ServerInstance, source: ServerSource) -> bool:
    """Whether ``num_workers`` is met by one process: a native model server waits for its endpoint, an environment server for its agents,
    and both do little else."""
    return source.runtime == "native" and instance.server_type in ("responses_api_models", "environment_servers")


def check_workers(instance: ServerInstance, config: GymConfig, flags: Mapping[str, ClassFlags], options: ServerOptions) -> None:
    """``flags`` are those of all instances, by name; an instance without source has none.

    Raises SourceError naming the instance and why one process is all that it can have: no ``app`` for workers to import, a resources server
    that keeps sessions in its process, an agent whose environment server opens sessions with it.
    """
    workers = worker_count(instance)
    if workers <= 1:
        return
    own = flags.get(instance.name, ClassFlags())
    where = f"{instance.server_type}/{instance.implementation}/{instance.entrypoint}"
    one = f"Set num_workers of {instance.name} to 1"
    if not own.multi_worker:
        raise SourceError(
            instance.name,
            f"num_workers is {workers}, but {where} exposes no app to worker processes",
            f"{one}, or add the `elif is_nemo_gym_fastapi_entrypoint(__file__):` branch to it.",
        )
    if instance.server_type == "resources_servers" and own.keeps_sessions and not options.stateless:
        raise SourceError(
            instance.name,
            f"num_workers is {workers}, but {where} keeps sessions in its process: a session's next request may reach another worker",
            f"{one}; where its requests need no earlier one, say compose: {{servers: {{{instance.name}: {{stateless: true}}}}}}.",
        )
    if instance.server_type == "responses_api_agents":
        opener = _opener(instance.name, config, flags)
        if opener is not None:
            raise SourceError(
                instance.name,
                f"num_workers is {workers}, but {opener} opens agent sessions with it, which an agent of several workers refuses",
                f"{one}, or put an environment server before it that does not, such as legacy_agent.",
            )


def _opener(agent: str, config: GymConfig, flags: Mapping[str, ClassFlags]) -> str | None:
    callers = (reference.source for reference in config.references if reference.target == agent)
    return next((caller for caller in callers if flags.get(caller, ClassFlags()).opens_agent_sessions), None)

"""Old names that still work (contract-config 1.13): config paths and the agents of the reasoning_gym environments."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from gym_compose.config.interpolation import Tree

ENVIRONMENT_ALIASES: Final = {
    "reasoning_gym_claude_code": "claude_code_reasoning_gym",
    "reasoning_gym_hermes": "hermes_reasoning_gym",
    "reasoning_gym_orchestrator": "langgraph_orchestrator_reasoning_gym",
    "reasoning_gym_parallel_thinking": "langgraph_parallel_thinking_reasoning_gym",
    "reasoning_gym_reflection": "langgraph_reflection_reasoning_gym",
    "reasoning_gym_rewoo": "langgraph_rewoo_reasoning_gym",
}
AGENT_ALIASES: Final = {f"{old}_agent": f"{new}_agent" for old, new in ENVIRONMENT_ALIASES.items()}
_AGENTS = "responses_api_agents"
CONFIG_PATH_ALIASES: Final = {
    **{f"environments/{old}/config.yaml": f"environments/{new}/config.yaml" for old, new in ENVIRONMENT_ALIASES.items()},
    f"{_AGENTS}/stirrup_agent/configs/stirrup_gdpval.yaml": f"{_AGENTS}/stirrup_agent/configs/stirrup_agent.yaml",
    f"{_AGENTS}/tau2/configs/tau2_agent.yaml": f"{_AGENTS}/tau2/configs/tau2.yaml",
    f"{_AGENTS}/verifiers_agent/configs/acereason-math.yaml": f"{_AGENTS}/verifiers_agent/configs/verifiers_agent.yaml",
}


def config_path_alias(entry: str) -> str | None:
    """The path that stands for an old relative one; None for any other."""
    path = PurePosixPath(entry)
    return None if path.is_absolute() else CONFIG_PATH_ALIASES.get(path.as_posix())


def route_old_agents(tree: Tree, warnings: list[str]) -> None:
    """Let routing keys name the old agents: ``agent_name``, ``agent_map`` and ``fan_out`` follow, ``agent_map`` learns the old names.

    An alias is in force when the old instance does not exist and the new one (or what ``agent_map`` makes of it) does.
    """
    if not any(name in tree.data for name in AGENT_ALIASES.values()) and "agent_map" not in tree.data:
        return
    routes: dict[Any, Any] = {key: place.value for key, place in tree.fields(("agent_map",))}
    active: dict[str, Any] = {}
    for old, new in AGENT_ALIASES.items():
        destination = routes.get(new, new)
        if old not in tree.data and isinstance(destination, str) and destination in tree.data:
            active[old] = destination
    if not active:
        return
    used: set[str] = set()
    selected = tree.value(("agent_name",))
    if isinstance(selected, str) and selected in active:
        used.add(selected)
        tree.data["agent_name"] = active[selected]
    for key, destination in list(routes.items()):
        if isinstance(destination, str) and destination in active:
            used.add(destination)
            routes[key] = active[destination]
    for old, destination in active.items():
        routes.setdefault(old, destination)
    tree.data["agent_map"] = routes
    fan_out = tree.value(("fan_out",))
    if isinstance(fan_out, dict):
        for key, agents in fan_out.items():
            if isinstance(agents, list):
                used.update(agent for agent in agents if isinstance(agent, str) and agent in active)
                fan_out[key] = [active.get(agent, agent) if isinstance(agent, str) else agent for agent in agents]
    tree.changed()
    if used:
        changes = ", ".join(f"'{old}' -> '{active[old]}'" for old in sorted(used))
        warnings.append(f"Old agent names are deprecated; write the new ones: {changes}.")

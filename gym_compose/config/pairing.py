"""What a resources server allows to be put together with it: agent types and model types (contract-config 1.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_compose.config.agents import AgentInstance, agent_instances, bound_reference
from gym_compose.config.errors import ConfigError, UnsupportedAgentPairingError, UnsupportedModelPairingError
from gym_compose.config.interpolation import Tree

ALLOW_KEY = "allow_unsupported_pairing"
ALLOW_VARIABLE = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"
_RESOURCES = "resources_servers"
_MODELS = "responses_api_models"
_WAIVE = f"--allow-unsupported-pairing or {ALLOW_VARIABLE}=1 lets it pass."


def pairing_waived(tree: Tree, environ: Mapping[str, str]) -> bool:
    """Whether the config or the environment takes both guards out of force."""
    return bool(tree.value((ALLOW_KEY,))) or environ.get(ALLOW_VARIABLE, "").lower() not in ("", "0", "false")


def check_agent_pairing(tree: Tree, source: AgentInstance, targets: list[AgentInstance]) -> None:
    """Raise UnsupportedAgentPairingError when a resources server of the targets does not list the agent type of ``source``."""
    accepted: list[set[str]] = []
    rejected: list[str] = []
    for target in targets:
        reference = bound_reference(tree, target, "resources_server")
        server = None if reference is None else reference.get("name")
        allowed = _declared(tree, server, "allowed_agents", "agent types")
        if allowed is None:
            continue
        accepted.append(set(allowed))
        if source.agent_type not in allowed:
            rejected.append(f"{target.name} is bound to {server}, which accepts: {', '.join(allowed)}")
    if not rejected:
        return
    common = sorted(set.intersection(*accepted))
    choice = f"Choose one of: {', '.join(common)}." if common else "No agent type is accepted by all of them."
    raise UnsupportedAgentPairingError(
        f"the agent type '{source.agent_type}' is not among those that {len(rejected)} of the resources servers accept, "
        "so its rollouts could not be scored.",
        where=source.name,
        hint=f"{choice} {_WAIVE}",
        details=tuple(rejected),
    )


def check_model_pairings(tree: Tree) -> None:
    """Raise UnsupportedModelPairingError when an agent joins a resources server with a model type that this one does not list."""
    accepted: list[list[str]] = []
    rejected: list[str] = []
    for agent in agent_instances(tree):
        resources = bound_reference(tree, agent, "resources_server")
        if resources is None or resources.get("type") != _RESOURCES:
            continue
        server = resources.get("name")
        allowed = _declared(tree, server, "allowed_model_types", "model types")
        if allowed is None:
            continue
        model = bound_reference(tree, agent, "model_server")
        if model is None or model.get("type") != _MODELS:
            continue
        model_type = _model_type(tree, model.get("name"))
        # dummy_model is the stand-in of commands that only need the data; it never runs.
        if model_type is None or model_type == "dummy_model":
            continue
        accepted.append(allowed)
        if model_type not in allowed:
            rejected.append(
                f"agent '{agent.name}': model server '{model.get('name')}' has the type '{model_type}', "
                f"but '{server}' accepts only: {', '.join(allowed)}"
            )
    if not rejected:
        return
    common = [name for name in accepted[0] if all(name in other for other in accepted[1:])]
    choice = f"Use --model-type {common[0]} (accepted: {', '.join(common)})." if common else "No model type is accepted by all of them."
    raise UnsupportedModelPairingError(
        "; ".join(rejected) + ".", where="model_server", hint=f"{choice} {_WAIVE}", details=tuple(rejected) if len(rejected) > 1 else ()
    )


def _declared(tree: Tree, server: Any, field: str, kind: str) -> list[str] | None:
    """The list that a resources server declares; None when it declares nothing or does not exist. A bare string is a list of one."""
    implementations = tree.at((server, _RESOURCES)) if isinstance(server, str) and server else None
    if implementations is None or implementations.path is None:
        return None
    if not isinstance(implementations.value, dict) or len(implementations.value) != 1:
        return None
    [implementation] = implementations.value
    declared = tree.value((*implementations.path, implementation, field))
    if not declared:
        return None
    if isinstance(declared, str):
        return [declared]
    if not isinstance(declared, list):
        raise ConfigError(
            f"it has to be a list of {kind}, not {type(declared).__name__}.", where=f"{server}.{_RESOURCES}.{implementation}.{field}"
        )
    return [str(name) for name in declared]


def _model_type(tree: Tree, server: Any) -> str | None:
    implementations = tree.value((server, _MODELS)) if isinstance(server, str) and server else None
    if not isinstance(implementations, dict) or len(implementations) != 1:
        return None
    return str(next(iter(implementations)))

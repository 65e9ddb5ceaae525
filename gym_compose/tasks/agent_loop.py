"""Which integration profile an agent's code speaks for, read from its syntax tree (contract-data 3.9). Nothing is imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from gym_compose.config import syntax

Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Inferred:
    """``profile`` is ``unknown`` where the code does not tell; ``evidence`` is what it was told from."""

    profile: str
    evidence: str


def infer_profile(implementation: str, entrypoint: Path | None, *, driver: str | None) -> Inferred:
    """The profile of a composition: its rollout driver decides, else the agent and what its ``responses`` method does.

    ``entrypoint`` is the agent's file, None when it was not found.
    """
    if driver:
        return Inferred("external-rollout-driver", "rollout_collection_driver is set")
    if implementation == "simple_agent":
        return Inferred("custom-gym-verifier", "the agent is simple_agent")
    if entrypoint is None:
        return Inferred("unknown", "the agent's entry point is not on disk")
    try:
        code = syntax.parse(entrypoint.read_bytes(), str(entrypoint))
    except (OSError, ValueError, SyntaxError):
        return Inferred("unknown", f"the agent's entry point cannot be read: {entrypoint}")
    server = _server_class(code)
    if server is None:
        return Inferred("unknown", "the agent's server class is not told by its entry point")
    method = next((node for node in server.body if isinstance(node, Method) and node.name == "responses"), None)
    if method is not None:
        return _of_method(method)
    if any(isinstance(base, ast.Name | ast.Attribute) and _name(base) == "SimpleAgent" for base in server.bases):
        return Inferred("custom-gym-verifier", "the agent inherits responses() from SimpleAgent")
    return Inferred("unknown", "the agent's class has no responses() of its own")


def _of_method(method: Method) -> Inferred:
    statements = method.body[1:] if ast.get_docstring(method) is not None else method.body
    only = statements[0] if len(statements) == 1 else None
    if isinstance(only, ast.Return) and _calls_super(only.value, method.name):
        return Inferred("unknown", "the agent's responses() hands on to its base class")
    if isinstance(only, ast.Raise) and _not_implemented(only):
        return Inferred("external-agent-loop", "the agent's responses() raises NotImplementedError")
    if any(isinstance(node, ast.Raise) and _not_implemented(node) for node in ast.walk(method)):
        return Inferred("unknown", "the agent's responses() is implemented for some configs only")
    return Inferred("custom-gym-agent-loop", "the agent has a responses() of its own")


def _server_class(code: ast.Module) -> ast.ClassDef | None:
    """The class of this file whose web server is run; None when there is not exactly one."""
    started = {
        node.func.value.id
        for node in ast.walk(code)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run_webserver"
        and isinstance(node.func.value, ast.Name)
    }
    found = [node for node in code.body if isinstance(node, ast.ClassDef) and node.name in started]
    return found[0] if len(found) == 1 else None


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _not_implemented(node: ast.Raise) -> bool:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _calls_super(value: ast.expr | None, method: str) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != method:
        return False
    holder = call.func.value
    return isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id == "super"

"""What an entry point says of its server class, read from its syntax tree: user code is never imported (contract-config 4.4, 4.5)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gym_compose.config import syntax
from gym_compose.config.model import ClassFlags
from gym_compose.wire.errors import InvalidInputError

_START = "run_webserver"
_WORKER_CHECK = "is_nemo_gym_fastapi_entrypoint"
_SESSION_METHODS = frozenset({"seed_session", "close_session"})
_SESSION_NAMES = frozenset({"SESSION_ID_KEY", "GymnasiumServer"})
"""The key of a session's id in the cookie, and the peer's base class that holds a state for each."""
_AGENT_SESSION_NAMES = frozenset({"AgentSeedSessionRequest", "SingleAgentTurn"})
"""What an environment server opens an agent's session with: NeMo Gym's request, and ours."""


class EntrypointError(InvalidInputError):
    """An entry point that is not there or is not Python."""


class Entrypoint:
    """A parsed entry point. Raises EntrypointError when the file cannot be read or parsed."""

    def __init__(self, file: Path) -> None:
        try:
            self._tree = syntax.parse(file.read_bytes(), str(file))
        except (OSError, ValueError) as error:
            raise EntrypointError(f"cannot be read: {error}.", where=str(file)) from error
        except SyntaxError as error:
            place = f"{file}:{error.lineno}" if error.lineno else str(file)
            raise EntrypointError(f"is not valid Python: {error.msg}.", where=place) from error

    @property
    def flags(self) -> ClassFlags:
        """Flags of the class that the ``__main__`` branch runs: ``Cls.run_webserver()``.

        ``class_name`` is the name under which the class was defined (cookie names are made of it), ``ray_enabled`` None where neither
        it nor a base class of the same file declares it, ``multi_worker`` True when uvicorn workers find an ``app`` to import.
        Sessions are read off the whole file: a class that overrides ``seed_session``, or uses a session's id, keeps some.
        """
        local = next(self._started(), None)
        names = self._names()
        return ClassFlags(
            class_name=None if local is None else self._imported_name(local) or local,
            ray_enabled=None if local is None else self._ray_enabled(local),
            multi_worker=self._multi_worker,
            keeps_sessions=bool(names & _SESSION_NAMES) or self._defines(_SESSION_METHODS),
            opens_agent_sessions=bool(names & _AGENT_SESSION_NAMES),
        )

    def imports(self, package: str) -> bool:
        """Whether the file imports the package or something of it, anywhere."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == package for alias in node.names):
                return True
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == package:
                return True
        return False

    def _names(self) -> frozenset[str]:
        """Every name that the file loads or imports."""
        nodes = list(ast.walk(self._tree))
        loaded = {node.id for node in nodes if isinstance(node, ast.Name)}
        return frozenset(loaded | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names})

    def _defines(self, methods: frozenset[str]) -> bool:
        classes = [node for node in ast.walk(self._tree) if isinstance(node, ast.ClassDef)]
        return any(
            isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name in methods for node in classes for item in node.body
        )

    def _started(self) -> Iterator[str]:
        """Names of the classes whose web server is run, those of the ``__main__`` branch first."""
        branches = [node for node in self._tree.body if isinstance(node, ast.If)]
        branches.sort(key=lambda node: "__main__" not in ast.unparse(node.test))
        for root in (*branches, self._tree):
            for node in ast.walk(root):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == _START
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id not in ("self", "cls")
                ):
                    yield node.func.value.id

    def _imported_name(self, local: str) -> str | None:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == local:
                        return alias.name
        return None

    def _ray_enabled(self, name: str, seen: frozenset[str] = frozenset()) -> bool | None:
        definition = next((node for node in self._tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
        if definition is None or name in seen:
            return None
        for node in definition.body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            if any(isinstance(target, ast.Name) and target.id == "ray_enabled" for target in targets):
                value = getattr(node, "value", None)
                if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                    return value.value
        for base in definition.bases:
            if isinstance(base, ast.Name):
                inherited = self._ray_enabled(base.id, seen | {name})
                if inherited is not None:
                    return inherited
        return None

    @property
    def _multi_worker(self) -> bool:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                function = node.func
                name = function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else None
                if name == _WORKER_CHECK:
                    return True
        assigned = [target for node in self._tree.body if isinstance(node, ast.Assign) for target in node.targets]
        return any(isinstance(target, ast.Name) and target.id == "app" for target in assigned)

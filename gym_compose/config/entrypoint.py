"""What an entry point says of its server class, read from its syntax tree: user code is never imported (contract-config 4.4, 4.5)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from gym_compose.config import syntax
from gym_compose.config.model import ClassFlags
from gym_compose.wire.errors import InvalidInputError

_START = "run_webserver"
_WORKER_CHECK = "is_nemo_gym_fastapi_entrypoint"
_SESSION_METHODS = frozenset({"seed_session", "close_session"})
_SESSION_NAMES = frozenset({"SESSION_ID_KEY", "GymnasiumServer"})
"""The key of a session's id in the cookie, and the peer's base class that holds a state for each."""
_AGENT_SESSION_NAMES = frozenset({"AgentSeedSessionRequest", "SingleAgentTurn", "AgentParticipant"})
"""What an environment server opens an agent's session with: NeMo Gym's request, and ours."""
_ENVIRONMENT_BASE, _AGENT_SESSION_METHOD = "EnvironmentServer", "agent_session"
"""Our base class, and its method that does so."""

_RUNTIMES = ("nemo_gym", "gym_compose")
_RENAMINGS = 8
"""Assignments of one name to the next that are followed."""


class EntrypointError(InvalidInputError):
    """An entry point that is not there or is not Python."""


class Entrypoint:
    """A parsed entry point. ``roots`` are the directories, besides the file's own, from which it may import base classes.

    Raises EntrypointError when the file cannot be read or parsed.
    """

    def __init__(self, file: Path, roots: Sequence[Path] = ()) -> None:
        self._file = file
        self._roots = tuple(roots)
        try:
            self._tree = syntax.parse(file.read_bytes(), str(file))
        except (RecursionError, MemoryError) as error:  # how the parser gives up on nested expressions
            raise EntrypointError("is nested too deeply to be read.", where=str(file)) from error
        except (OSError, ValueError) as error:
            raise EntrypointError(f"cannot be read: {error}.", where=str(file)) from error
        except SyntaxError as error:
            place = f"{file}:{error.lineno}" if error.lineno else str(file)
            raise EntrypointError(f"is not valid Python: {error.msg}.", where=place) from error

    @property
    def flags(self) -> ClassFlags:
        """Flags of the class that the ``__main__`` branch runs: ``Cls.run_webserver()``.

        ``class_name`` is the name under which the class was defined (cookie names are made of it), ``ray_enabled`` None where neither
        it nor a base class declares it, in this file or in one that is imported from ``roots``; ``multi_worker`` True when uvicorn workers
        find an ``app`` to import.
        Sessions are read off the whole file: a class that overrides ``seed_session``, or uses a session's id, keeps some.
        """
        local = next(self._started(), None)
        names = self._names()
        return ClassFlags(
            class_name=None if local is None else self._defined_name(local),
            ray_enabled=None if local is None else self._ray_enabled(local),
            multi_worker=self._multi_worker,
            keeps_sessions=bool(names & _SESSION_NAMES) or self._defines(_SESSION_METHODS),
            opens_agent_sessions=bool(names & _AGENT_SESSION_NAMES) or self._calls_as_environment(names),
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

    def _calls_as_environment(self, names: frozenset[str]) -> bool:
        return _ENVIRONMENT_BASE in names and any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == _AGENT_SESSION_METHOD
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "self"
            for node in ast.walk(self._tree)
        )

    def _started(self) -> Iterator[ast.expr]:
        """The classes whose web server is run, ``Cls`` or ``module.Cls``, those of the ``__main__`` branch first."""
        branches = [node for node in self._tree.body if isinstance(node, ast.If)]
        branches.sort(key=lambda node: "__main__" not in ast.unparse(node.test))
        for root in (*branches, self._tree):
            for node in ast.walk(root):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == _START
                    and (dotted := _dotted(node.func.value))
                    and dotted[0] not in ("self", "cls")
                ):
                    yield node.func.value

    def _defined_name(self, started: ast.expr) -> str:
        """The name under which a class was defined, whatever it is called here."""
        *module, name = _dotted(started)
        if module:
            return name
        for _ in range(_RENAMINGS):
            value = self._assigned(name)
            if not isinstance(value, ast.Name):
                break
            name = value.id
        imported = self._imported(name)
        return imported[1] if imported is not None and imported[1] else name

    def _imported(self, local: str) -> tuple[tuple[Path, ...], str] | None:
        """(files that the module may be, the name in it) of what is imported as ``local``; the name is empty for a module itself."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == local:
                        return self._files(node.module or "", node.level), alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name) == local:
                        return self._files(alias.name, 0), ""
        return None

    def _files(self, module: str, level: int) -> tuple[Path, ...]:
        parts = module.split(".") if module else []
        if parts[:1] and parts[0] in _RUNTIMES and level == 0:
            return ()  # none of their classes declares it
        roots = [self._file.parents[level - 1]] if 0 < level <= len(self._file.parents) else [self._file.parent, *self._roots]
        return tuple(path for root in roots for path in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")))

    def _assigned(self, name: str) -> ast.expr | None:
        """What an assignment gives ``name``, or ``Cls.attribute``."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and any(".".join(_dotted(target)) == name for target in node.targets):
                return node.value
        return None

    def _ray_enabled(self, started: ast.expr, seen: frozenset[tuple[Path, str]] = frozenset()) -> bool | None:
        """What the class that ``started`` names says, or the first of its bases that says something."""
        if isinstance(started, ast.Subscript):
            started = started.value  # Base[Config]
        *module, name = _dotted(started) or ("",)
        place = (self._file, ".".join((*module, name)))
        if not name or place in seen:
            return None
        seen = seen | {place}
        if module:
            files, within = self._imported(".".join(module)) or ((), "")
            if within:  # from package import module
                files = tuple(path.with_name(f"{within}.py") for path in files if path.name == "__init__.py")
            return self._elsewhere(files, name, seen)
        said = self._constant(self._assigned(f"{name}.ray_enabled"))
        if said is not None:
            return said
        definition = next((node for node in ast.walk(self._tree) if isinstance(node, ast.ClassDef) and node.name == name), None)
        if definition is None:
            value = self._assigned(name)
            if value is not None:
                return self._ray_enabled(value, seen)
            imported = self._imported(name)
            return self._elsewhere(*imported, seen) if imported is not None else None
        for node in definition.body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            if any(isinstance(target, ast.Name) and target.id == "ray_enabled" for target in targets):
                said = self._constant(getattr(node, "value", None))
                if said is not None:
                    return said
        inherited = (self._ray_enabled(base, seen) for base in definition.bases)
        return next((said for said in inherited if said is not None), None)

    def _constant(self, value: ast.expr | None) -> bool | None:
        if isinstance(value, ast.Name):
            value = self._assigned(value.id)
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool) else None

    def _elsewhere(self, files: Sequence[Path], name: str, seen: frozenset[tuple[Path, str]]) -> bool | None:
        """What the class ``name`` of the first of ``files`` says. A module that is not there, or cannot be read, says nothing."""
        file = next((path for path in files if path.is_file()), None)
        if file is None or not name:
            return None
        try:
            module = Entrypoint(file, self._roots)
        except EntrypointError:
            return None
        return module._ray_enabled(ast.Name(name), seen)

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


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """The parts of ``a.b.C``; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()

"""``gym env …``: start, status, resolve, prefetch (``validate`` has a module of its own)."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError

if TYPE_CHECKING:
    from gym_compose.config.model import GymConfig
    from gym_compose.project.head import Head
    from gym_compose.project.project import Project

FINISHED = "NeMo Gym finished!"


def start(call: Invocation, console: Console) -> int:
    """``gym env start``: all servers in the foreground, with what they print, until Ctrl+C; its last line is NeMo Gym's."""
    from gym_compose.cli.compose import foreground

    session = Session(call, console)
    project = session.load()
    following = _Following(project, console)

    def ready() -> None:
        address = project.head_address(session.brief("the head server's address"))
        console.err(f"All servers are ready; head server at http://{address}. Ctrl+C stops them.")
        following.start()

    try:
        foreground(session, project, ready)
    finally:
        following.stop()
        console.out(FINISHED)
    return 0


def status(call: Invocation, console: Console) -> int:
    """``gym env status``: 0, also when nothing runs."""
    from gym_compose.cli.status import clock, rows, show
    from gym_compose.project.http import HeadClient

    session = Session(call, console)
    servers: list[dict[str, Any]] = []
    try:
        head = find_running_head(session, load_only(session))
        with HeadClient(head.url, session.settings) as client:
            instances = client.instances()
            health = client.health() if head.identity is not None else None
            if instances is None:
                console.err(f"Warning: {head.url} gives no list of servers: {client.last_error}")
        servers = rows(instances or (), health, seconds=session.settings.status_probe_seconds, now=clock())
    except GymComposeError as error:
        from gym_compose.config import ConfigError

        if isinstance(error, ConfigError):
            raise
        console.err(f"Warning: {error}")
    if call.json:
        console.json(servers)
    else:
        show(servers, console)
    return 0


def resolve(call: Invocation, console: Console) -> int:
    """``gym env resolve``: the merged config, interpolations resolved, secrets hidden; or with ``--explain`` who sets a key."""
    session = Session(call, console)
    if call.args.explain is not None:
        return _explain(session, call.args.explain)
    from gym_compose.config.ports import probe

    config = load_only(session, ports=probe())
    _warn(session, config)
    shown = hidden(config, call.environ)
    if call.json:
        console.json(shown)
        return 0
    import yaml

    console.stdout.write(yaml.dump(shown, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=_LINE_WIDTH))
    console.stdout.flush()
    return 0


_LINE_WIDTH = 10_000
"""Values are not folded: a folded path or URL cannot be searched for."""


def prefetch(call: Invocation, console: Console) -> int:
    """``gym env prefetch``: the images of the config, in place of NeMo Gym's virtual environments."""
    from gym_compose.cli.compose import build_images

    return build_images(Session(call, console))


def load_only(session: Session, **options: Any) -> GymConfig:
    """The merged config of the command line, without sources or engine. ``options``: ports, initial. No port is allocated by default."""
    from gym_compose.config import load_config
    from gym_compose.config.ports import offline

    return load_config(session.call.overrides, cwd=session.cwd, environ=session.call.environ, **{"ports": offline(), **options})


def find_running_head(session: Session, config: GymConfig) -> Head:
    """The head server that the config names, or that of a project below the working directory. Raises NoHeadError."""
    from gym_compose.project.head import find_head
    from gym_compose.project.options import HeadPort

    head = config.resolved.get("head_server")
    host = head.get("host") if isinstance(head, Mapping) else None
    port = HeadPort.of(config, session.call.overrides)
    return find_head(
        str(host or "127.0.0.1"),
        port.wanted,
        explicit=port.explicit,
        cwd=session.cwd,
        settings=session.settings,
        name=session.project_name,
    )


def hidden(config: GymConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    """The resolved config with secrets masked: by NeMo Gym's rule (contract-config 2.5) and by ours, which finds what that one misses.

    Raises ConfigInterpolationError for any interpolation that cannot be resolved, wherever it stands.
    """
    from gym_compose.config.interpolation import Tree, environment
    from gym_compose.config.masking import MASK, mask

    data = copy.deepcopy(dict(config.merged))
    with environment(environ):
        tree = Tree(data)
        mask(tree, tree.resolved())
        shown = tree.resolved()
    for path in config.secret_paths:
        node: Any = shown
        with contextlib.suppress(KeyError, IndexError, TypeError):  # below something that NeMo Gym's rule has masked as a whole
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = MASK
    return shown


def _explain(session: Session, key: str) -> int:
    from gym_compose.config import explain
    from gym_compose.config.roots import installed_root, last_roots

    found = explain(
        session.call.overrides,
        key,
        cwd=session.cwd,
        environ=session.call.environ,
        install_roots=last_roots(installed_root()),
    )
    settings = [
        {
            "source": _source(item.source),
            "line": item.line,
            "value": masked(key, item.value),
            "note": item.note,
            "effective": item.effective,
            "last": item.last,
        }
        for item in found.settings
    ]
    if session.call.json:
        error = None if found.error is None else str(found.error)
        session.console.json(
            {"key": key, "present": found.present, "value": masked(key, found.value), "settings": settings, "error": error}
        )
    else:
        for item in settings:
            place = item["source"] if item["line"] is None else f"{item['source']}:{item['line']}"
            note = f" ({item['note']})" if item["note"] else ""
            session.console.out(f"{'*' if item['last'] else ' '} {place}: {item['value']!r}{note}")
    if found.error is not None:
        session.console.err(f"Warning: the config does not merge: {found.error}")
    if not found.settings and not found.present:
        raise GymComposeError(f"nothing sets {key!r}.", where="--explain")
    return 0


def masked(key: str, value: Any) -> Any:
    """A value that stands at ``key``, with every secret leaf masked."""
    from gym_compose.config.masking import MASK
    from gym_compose.config.secrets import secret_paths

    tree: dict[str, Any] = copy.deepcopy({"": {key.rsplit(".", 1)[-1]: value}})
    for path in secret_paths(tree, tree):
        node: Any = tree
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = MASK
    return next(iter(tree[""].values()))


def _source(source: str) -> str:
    """A file as it is; an override without its value, which is shown masked beside it."""
    return f"override {source.partition('=')[0]}" if source.startswith(("+", "~")) or "=" in source else source


def _warn(session: Session, config: GymConfig) -> None:
    for warning in config.warnings:
        session.console.err(f"Warning: {warning}")


class _Following:
    """Prints what the servers print, each line with its instance in front, in a thread."""

    def __init__(self, project: Project, console: Console) -> None:
        self._project = project
        self._console = console
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Safe before ``start`` too."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._project.settings.watch_seconds)

    def _run(self) -> None:
        try:
            for line in self._lines():
                self._console.out(line)
        except GymComposeError as error:
            self._console.err(f"Warning: the logs cannot be followed any more: {error}")

    def _lines(self) -> Iterator[str]:
        for line in self._project.logs(follow=True, stop=self._stop):
            prefix = f"({line.service}) "  # a server of NeMo Gym's kind writes it itself
            yield line.text if line.text.startswith(prefix) else f"{prefix}{line.text}"

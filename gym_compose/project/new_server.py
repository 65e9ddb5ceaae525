"""A new server directory that works: code, config, example rows, README and a test, from the files in ``new_server_files``."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import ServerType

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TYPES: Final[tuple[str, ...]] = tuple(sorted(get_args(ServerType)))
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAME_LIMIT = 40  # instance names of the example configs add up to 19 characters, and a host name holds 63
_TEMPLATE = ".j2"


class ServerExistsError(InvalidInputError):
    """There is a file or directory where the new server would stand; it is left as it is."""


@dataclass(frozen=True)
class NewServer:
    """``server_type`` is one of TYPES; ``name`` is the implementation: directory, config files and, in the demo, the instance."""

    server_type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> NewServer:
        """From ``TYPE/NAME``. Raises InvalidInputError when the type is none, or the name cannot be a directory, an instance and part of a
        class name at once."""
        server_type, slash, name = text.rstrip("/").partition("/")
        if not slash or server_type not in TYPES:
            raise InvalidInputError(f"is not TYPE/NAME, with TYPE one of {', '.join(TYPES)}", where=repr(text))
        if not _NAME.fullmatch(name) or len(name) > _NAME_LIMIT:
            raise InvalidInputError(
                f"the name of a server begins with a small letter and holds small letters, digits and _, {_NAME_LIMIT} at most",
                where=repr(name),
            )
        return cls(server_type, name)

    @property
    def directory(self) -> Path:
        """Below a search root."""
        return Path(self.server_type) / self.name

    @property
    def demo_config(self) -> Path:
        return self.directory / "configs" / f"{self.name}_demo.yaml"

    @property
    def class_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))

    def files(self) -> Mapping[Path, str]:
        """Content by path within the server's directory."""
        from jinja2 import Environment, StrictUndefined

        environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
        found: dict[Path, str] = {}
        for path, text in _templates(resources.files("gym_compose.project") / "new_server_files" / self.server_type):
            made = path.removesuffix(_TEMPLATE).replace("{name}", self.name)
            found[Path(made)] = environment.from_string(text).render(name=self.name, class_name=self.class_name)
        return found

    def write(self, root: Path) -> tuple[Path, ...]:
        """Make the directory below ``root``, whole or not at all; returns its files, sorted.

        Raises ServerExistsError when it is there already, InvalidInputError when it cannot be written.
        """
        target = root / self.directory
        if target.exists() or target.is_symlink():
            raise ServerExistsError("exists already; nothing was made.", where=str(target), hint="Choose another name.")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=target.parent))
            try:
                work.chmod(0o755)  # mkdtemp's directory is its owner's only; images run under other users
                for path, text in self.files().items():
                    (work / path).parent.mkdir(parents=True, exist_ok=True)
                    (work / path).write_text(text, encoding="utf-8")
                work.rename(target)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise
        except OSError as error:
            raise InvalidInputError(f"cannot be made: {error.strerror or error}", where=str(target)) from error
        return tuple(sorted(path for path in target.rglob("*") if path.is_file()))


def _templates(directory: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_TEMPLATE):
            yield f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")

"""How one image is described: name and key from all that goes into it, its Dockerfile and the files of its context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gym_compose.compiler import document as doc
from gym_compose.compiler.deployment import ContextFile, Image, ImageKind
from gym_compose.compiler.errors import CompileError

NAMESPACE = "gym-compose"
KEY_LENGTH = 12


def make_image(
    kind: ImageKind,
    slug: str,
    inputs: tuple[tuple[str, str], ...],
    *,
    name: str | None = None,
    dockerfile: str | None = None,
    context: tuple[ContextFile, ...] = (),
    parents: tuple[tuple[str, Image], ...] = (),
    arguments: tuple[tuple[str, str], ...] = (),
    network: bool = False,
) -> Image:
    """An image keyed by ``inputs``; ``parents`` are (build argument, image), ``arguments`` further build arguments, which the caller has
    among ``inputs``. ``network``: its build goes to package indexes."""
    key = doc.digest(doc.canonical([kind, [list(pair) for pair in inputs]]))
    return Image(
        name=name or f"{NAMESPACE}/{slug}:{key[:KEY_LENGTH]}",
        key=key,
        kind=kind,
        inputs=inputs,
        dockerfile=dockerfile,
        context=context,
        depends_on=tuple(dict.fromkeys(parent.name for _, parent in parents)),
        uses_ca_secret=network,
        build_args=(*((argument, parent.name) for argument, parent in parents), *arguments),
    )


def file_inputs(files: Iterable[ContextFile]) -> tuple[tuple[str, str], ...]:
    """A key's part of ``files``: path and digest, and whether it is executable."""
    return tuple((file.path, file.sha256 + ("+x" if file.executable else "")) for file in files)


def given(path: str, text: str, *, executable: bool = False) -> ContextFile:
    """A context file of this text."""
    content = text.encode("utf-8")
    return ContextFile(path, doc.digest(content), content=content, executable=executable)


def text_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def text_digest(text: str) -> str:
    return doc.digest(text.encode("utf-8"))


def installer(assets: Mapping[str, str]) -> tuple[ContextFile, ...]:
    """The scripts that install requirements in a build."""
    return tuple(given(name, asset(assets, f"images/requirements/{name}")) for name in ("index.sh", "install.sh"))


def asset(assets: Mapping[str, str], path: str) -> str:
    """The text of a file of ours. Raises CompileError when the installation lacks it."""
    try:
        return assets[path]
    except KeyError:
        raise CompileError("the file is missing from this installation", where=path, hint="Reinstall gym-compose.") from None

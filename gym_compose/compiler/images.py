"""Which images a deployment needs, each keyed by all that goes into it (design decision 10).

    base ── packages ─┬─ native ── controller
                      ├─ build
                      └─ requirements (one per set of lines)
    packages or requirements ── server (gym_compose as in native, then the server's files)

``packages`` (the pinned packages without gym_compose) stands apart so that another gym_compose costs neither a compiler nor a wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from posixpath import join, relpath

from gym_compose.compiler import document as doc
from gym_compose.compiler.deployment import ContextFile, Image, ImageKind
from gym_compose.compiler.errors import CompileError, SourceError
from gym_compose.compiler.options import BASE_SOURCES, CompileOptions
from gym_compose.compiler.slug import repository
from gym_compose.config.model import ServerSource

NAMESPACE = "gym-compose"
KEY_LENGTH = 12
_RUNTIME = ("gym_compose/wire/", "gym_compose/serving/")
_CONTROL = ("gym_compose/controller/", "gym_compose/driver/", "gym_compose/tasks/", "gym_compose/config/")
_UNPORTABLE = re.compile(r"-(?!-)|--|\.{0,2}/|~|file:|.*@\s*file:|.*@\s*\.{0,2}/")
"""A requirement line that names an option, a path or another file: nothing of it is in the build context."""


@dataclass(frozen=True)
class ImageSet:
    """All images, base first, and which one each implementation runs on (no entry in the process target without requirements)."""

    images: tuple[Image, ...]
    controller: str
    by_source: Mapping[tuple[str, str], str]


def plan_images(
    sources: Iterable[tuple[str, ServerSource]], external: Iterable[str], options: CompileOptions, apart: frozenset[str]
) -> ImageSet:
    """Images for ``sources``, pairs of a server instance (for messages) and its source, in the config's order.

    ``external`` are image references that instances name. ``apart`` are absolute paths of files that the config names, datasets among them:
    they stay out of images, since they are mounted or their rows reach servers in requests, and a new dataset must not rebuild anything.
    In the process target only the requirement sets are listed.
    Raises SourceError for a requirement line that needs a file which no build context holds.
    """
    chosen: dict[tuple[str, str], tuple[str, ServerSource]] = {}
    for instance, source in sources:
        chosen.setdefault((source.server_type, source.implementation), (instance, source))
    if options.target == "process":
        return _requirement_sets(chosen)
    base = base_image(options.assets, options.base_image)
    packages = _packages(base, options)
    native = _with_sources("native", packages, "PACKAGES", _RUNTIME, options)
    controller = _with_sources("controller", native, "NATIVE", _CONTROL, options)
    images = [base, packages, native, controller]
    build: Image | None = None
    layers: dict[tuple[str, ...], Image] = {}
    by_source: dict[tuple[str, str], str] = {}
    for key, (instance, source) in chosen.items():
        lines = requirement_set(instance, source)
        parent = packages
        if lines:
            if build is None:
                build = _build(packages, options)
                images.append(build)
            if lines not in layers:
                layers[lines] = _requirements(lines, packages, build, options)
                images.append(layers[lines])
            parent = layers[lines]
        image = _server(source, parent, native, options, apart)
        images.append(image)
        by_source[key] = image.name
    images.extend(_make("external", reference, (("reference", reference),), name=reference) for reference in dict.fromkeys(external))
    return ImageSet(tuple(images), controller.name, by_source)


def requirement_set(instance: str, source: ServerSource) -> tuple[str, ...]:
    """The effective lines, sorted and without repeats: what two servers must have in common to share a layer."""
    lines = sorted({line.strip() for line in source.requirement_lines if line.strip()})
    for line in lines:
        if _UNPORTABLE.match(line):
            raise SourceError(
                instance,
                f"the requirement {line!r} in {source.directory} needs a file or an option that an image build does not have",
                "Name a package of an index (name==version), or a URL.",
            )
    return tuple(lines)


def _requirement_sets(chosen: Mapping[tuple[str, str], tuple[str, ServerSource]]) -> ImageSet:
    images: dict[str, Image] = {}
    by_source: dict[tuple[str, str], str] = {}
    for key, (instance, source) in chosen.items():
        lines = requirement_set(instance, source)
        if lines:
            context = (_given("requirements.txt", _lines(lines)),)
            image = _make("requirements", "requirements", (("requirements", "\n".join(lines)),), context=context)
            images[image.name] = image
            by_source[key] = image.name
    return ImageSet(tuple(images.values()), "", by_source)


def base_image(assets: Mapping[str, str], wanted: str) -> Image:
    """The base for the ``base_image`` setting ``wanted``: auto, pull, debootstrap, or a reference, which then is the image itself."""
    if wanted not in BASE_SOURCES:
        return _make("base", "base", (("reference", wanted),), name=wanted)
    script = _given("debootstrap.sh", _text(assets, "images/base/debootstrap.sh"), executable=True)
    dockerfile = _text(assets, "images/base/Dockerfile")
    inputs = (("source", wanted), ("debootstrap.sh", script.sha256), ("Dockerfile", _sha(dockerfile)))
    return _make("base", "base", inputs, dockerfile=dockerfile, context=(script,), network=True)


def _packages(base: Image, options: CompileOptions) -> Image:
    dockerfile = _text(options.assets, "images/native/packages.Dockerfile")
    requirements = _given("requirements.txt", _text(options.assets, "images/native/requirements.txt"))
    inputs = (("base", base.key), ("Dockerfile", _sha(dockerfile)), ("requirements.txt", requirements.sha256))
    return _make("packages", "packages", inputs, dockerfile=dockerfile, context=(requirements,), parents=(("BASE", base),), network=True)


def _with_sources(kind: ImageKind, parent: Image, argument: str, packages: tuple[str, ...], options: CompileOptions) -> Image:
    dockerfile = _text(options.assets, f"images/{kind}/Dockerfile")
    files = tuple(
        file for file in options.package_files if file.path.startswith(packages) or (kind == "native" and file.path.count("/") == 1)
    )
    if not files:
        raise CompileError(f"gym_compose has no sources for the {kind} image", where=", ".join(packages), hint="Reinstall gym-compose.")
    inputs = ((argument.lower(), parent.key), ("Dockerfile", _sha(dockerfile)), *_file_inputs(files))
    return _make(kind, kind, inputs, dockerfile=dockerfile, context=files, parents=((argument, parent),))


def _build(packages: Image, options: CompileOptions) -> Image:
    dockerfile = _text(options.assets, "images/build/Dockerfile")
    inputs = (("packages", packages.key), ("Dockerfile", _sha(dockerfile)))
    return _make("build", "build", inputs, dockerfile=dockerfile, parents=(("PACKAGES", packages),), network=True)


def _requirements(lines: tuple[str, ...], packages: Image, build: Image, options: CompileOptions) -> Image:
    dockerfile = _text(options.assets, "images/requirements/Dockerfile")
    context = (_given("requirements.txt", _lines(lines)),)
    inputs = (("packages", packages.key), ("build", build.key), ("Dockerfile", _sha(dockerfile)), ("requirements", "\n".join(lines)))
    parents = (("PACKAGES", packages), ("BUILD", build))
    return _make("requirements", "requirements", inputs, dockerfile=dockerfile, context=context, parents=parents, network=True)


def _server(source: ServerSource, parent: Image, native: Image, options: CompileOptions, apart: frozenset[str]) -> Image:
    dockerfile = _text(options.assets, "images/server/Dockerfile")
    within = f"{source.server_type}/{source.implementation}"
    files = tuple(
        ContextFile(f"server/{within}/{file.path}", file.sha256, join(source.directory, file.path), executable=file.executable)
        for file in sorted(source.files, key=lambda file: file.path)
        if not file.path.startswith("tests/") and join(source.directory, file.path) not in apart
    )
    inputs = (
        ("native", native.key),
        ("parent", parent.key),
        ("Dockerfile", _sha(dockerfile)),
        ("directory", within),
        *((relpath(label, "server"), value) for label, value in _file_inputs(files)),
    )
    parents = (("PARENT", parent), ("NATIVE", native))
    return _make("server", repository(source.implementation), inputs, dockerfile=dockerfile, context=files, parents=parents)


def _make(
    kind: ImageKind,
    slug: str,
    inputs: tuple[tuple[str, str], ...],
    *,
    name: str | None = None,
    dockerfile: str | None = None,
    context: tuple[ContextFile, ...] = (),
    parents: tuple[tuple[str, Image], ...] = (),
    network: bool = False,
) -> Image:
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
        build_args=tuple((argument, parent.name) for argument, parent in parents),
    )


def _file_inputs(files: Iterable[ContextFile]) -> tuple[tuple[str, str], ...]:
    return tuple((file.path, file.sha256 + ("+x" if file.executable else "")) for file in files)


def _given(path: str, text: str, *, executable: bool = False) -> ContextFile:
    content = text.encode("utf-8")
    return ContextFile(path, doc.digest(content), content=content, executable=executable)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _sha(text: str) -> str:
    return doc.digest(text.encode("utf-8"))


def _text(assets: Mapping[str, str], path: str) -> str:
    try:
        return assets[path]
    except KeyError:
        raise CompileError("the file is missing from this installation", where=path, hint="Reinstall gym-compose.") from None

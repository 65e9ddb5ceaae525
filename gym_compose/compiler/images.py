"""Which images a deployment needs, each keyed by all that goes into it (design decision 10).

    base ── packages ─┬─ native ── controller
                      ├─ build
                      └─ requirements (one per set of lines)
    packages or requirements ── server (gym_compose as in native, then the server's files)

``packages`` (the pinned packages without gym_compose) stands apart so that another gym_compose costs neither a compiler nor a wheel.
Servers written for NeMo Gym have a family of their own (``peer_images``); one with a Dockerfile of its own is built from that. Where
``compose: servers: NAME: {apt: …}`` asks for Debian packages, they are a layer below the requirements; its ``run`` steps are one above
the server's files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from posixpath import join, relpath

import orjson

from gym_compose.compiler.deployment import ContextFile, Image, ImageKind, Requested
from gym_compose.compiler.errors import CompileError, SourceError
from gym_compose.compiler.extension import ServerOptions
from gym_compose.compiler.locks import LOCK_DIRECTORY, with_lock
from gym_compose.compiler.options import BASE_SOURCES, CompileOptions
from gym_compose.compiler.own_image import BASE_ARGUMENT, NATIVE_ARGUMENT, NEMO_GYM_ARGUMENT
from gym_compose.compiler.peer_images import PeerRuntime, is_of_tree
from gym_compose.compiler.peer_lines import parse_line, refuse_unindexed
from gym_compose.compiler.places import server_directory
from gym_compose.compiler.recipe import asset, file_inputs, given, installer, make_image, text_digest, text_lines
from gym_compose.compiler.slug import repository
from gym_compose.config.model import ServerSource

_RUNTIME = ("gym_compose/wire/", "gym_compose/serving/")
_CONTROL = ("gym_compose/controller/", "gym_compose/driver/", "gym_compose/tasks/", "gym_compose/config/")
_CA_PRELUDE = (
    "if [ -s /run/secrets/ca ]; then export "
    + " ".join(f"{name}=/run/secrets/ca" for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"))
    + "; fi\n"
)
_UNPORTABLE = re.compile(r"-(?!-)|--|\.{0,2}/|~|file:|.*@\s*file:|.*@\s*\.{0,2}/")
"""A requirement line that names an option, a path or another file: nothing of it is in the build context."""


@dataclass(frozen=True)
class ServerBuild:
    """One server instance that gets an image of ours: its directory, and what ``compose: servers`` adds to it."""

    instance: str
    source: ServerSource
    options: ServerOptions = field(default_factory=ServerOptions)

    @property
    def server_directory(self) -> str:
        """``<server type>/<implementation>``."""
        return f"{self.source.server_type}/{self.source.implementation}"


@dataclass(frozen=True)
class ImageSet:
    """All images, base first, and which one each instance runs on (no entry in the process target without requirements)."""

    images: tuple[Image, ...]
    controller: str
    native: str
    by_instance: Mapping[str, str]
    notes: tuple[tuple[str, str], ...] = ()
    """(instance, text) for the plan."""


def plan_images(
    servers: Iterable[ServerBuild],
    external: Iterable[str],
    options: CompileOptions,
    apart: frozenset[str],
) -> ImageSet:
    """Images for ``servers``, in the config's order.

    ``external`` are image references that instances name. ``apart`` are absolute paths of files that the config names, datasets among them:
    they stay out of images, since they are mounted or their rows reach servers in requests, and a new dataset must not rebuild anything.
    Servers of the nemo-gym runtime run on ``options.nemo_gym``. In the process target only the requirement sets are listed.
    Raises SourceError for a requirement line that no build context can serve; CompileError.
    """
    builds = tuple(servers)
    if options.target == "process":
        return _requirement_sets(builds)
    return _Images(builds, options, apart).plan(external)


def requirement_set(instance: str, source: ServerSource) -> tuple[str, ...]:
    """The effective lines, sorted and without repeats: what two servers must have in common to share a layer."""
    refuse_unindexed(instance, source)
    lines = sorted({line.strip() for line in source.requirement_lines if line.strip()})
    for line in lines:
        if _UNPORTABLE.match(line):
            raise SourceError(
                instance,
                f"the requirement {line!r} in {source.place(line)} needs a file or an option that an image build does not have",
                "Name a package of an index (name==version), or a URL.",
            )
        parse_line(instance, source, line)
    return tuple(lines)


@dataclass
class _Images:
    """The images of one Docker deployment in the making; each is listed once, after all that it is built from."""

    builds: tuple[ServerBuild, ...]
    options: CompileOptions
    apart: frozenset[str]
    found: dict[str, Image] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def plan(self, external: Iterable[str]) -> ImageSet:
        options = self.options
        self.base = self._add(base_image(options.assets, options.base_image))
        self.packages = self._add(_packages(self.base, options))
        self.native = self._add(_with_sources("native", self.packages, "PACKAGES", _RUNTIME, options))
        controller = self._add(_with_sources("controller", self.native, "NATIVE", _CONTROL, options))
        self.runtime: PeerRuntime | None = None
        by_instance = {build.instance: self._image(build).name for build in self.builds}
        for reference in dict.fromkeys(external):
            self._add(make_image("external", reference, (("reference", reference),), name=reference))
        images = tuple(self.found.values())
        return ImageSet(images, controller.name, self.native.name, by_instance, (*self.notes, *_lock_notes(images)))

    def _add(self, image: Image) -> Image:
        return self.found.setdefault(image.name, image)

    def _build_image(self) -> Image:
        return self._add(_build(self.packages, self.options))

    def _image(self, build: ServerBuild) -> Image:
        if build.source.runtime == "dockerfile":
            return self._own(build)
        image = self._peer(build) if build.source.runtime == "nemo-gym" else self._native(build)
        return self._add(_prepared(build, image, self.options)) if build.options.run else image

    def _own(self, build: ServerBuild) -> Image:
        """From the server's own Dockerfile, with the images of ours that it asks for as build arguments."""
        source, options = build.source, build.options
        for key, given_there in (("apt", options.apt), ("run", options.run)):
            if given_there:
                raise SourceError(
                    build.instance,
                    f"compose.servers.{build.instance}.{key} is for images of ours, and {source.directory} has a Dockerfile of its own",
                    "Write the step into the Dockerfile.",
                )
        ours: dict[str, Callable[[], Image]] = {
            BASE_ARGUMENT: lambda: self.base,
            NATIVE_ARGUMENT: lambda: self.native,
            NEMO_GYM_ARGUMENT: lambda: self._add(self._runtime(build).shared(self._runtime(build).packages)),
        }
        parents = tuple((name, ours[name]()) for name in source.build_arguments if name in ours)
        files = tuple(
            ContextFile(file.path, file.sha256, join(source.directory, file.path), executable=file.executable)
            for file in sorted(source.files, key=lambda file: file.path)
        )
        inputs = (("directory", build.server_directory), *((name, parent.key) for name, parent in parents), *file_inputs(files))
        return self._add(make_image("server", repository(source.implementation), inputs, context=files, parents=parents, network=True))

    def _native(self, build: ServerBuild) -> Image:
        parent = self._system(build, self.packages)
        lines = requirement_set(build.instance, build.source)
        if lines:
            overrides = tuple(sorted(build.source.overrides))
            for line in overrides:
                parse_line(build.instance, build.source, line)
            image = _requirements(lines, overrides, parent, self._build_image(), self.options)
            asked = (lines, overrides)
            parent = self._add(replace(image, requested=self._requested(lambda other: self._native_lines(other) == asked)))
        return self._add(_server(build.source, parent, self.native, self.options, self.apart))

    def _peer(self, build: ServerBuild) -> Image:
        runtime = self._runtime(build)
        source = build.source
        needs, notes = runtime.needs(build.instance, source)
        self.notes.extend((build.instance, note) for note in notes)
        parent = self._system(build, runtime.packages)
        requested = self._requested(
            lambda other: other.source.runtime == "nemo-gym" and runtime.needs(other.instance, other.source)[0] == needs
        )
        for image in runtime.parents(needs, source, parent):
            parent = self._add(replace(image, requested=requested))
        if source.origin == "wheel" or is_of_tree(source, runtime.tree):
            return self._add(runtime.shared(parent))
        if runtime.tree.form == "checkout":  # a server of the user's own beside a checkout: it may import from it
            parent = self._add(runtime.shared(parent))
        return self._add(_server(source, parent, self.native, self.options, self.apart))

    @staticmethod
    def _native_lines(build: ServerBuild) -> tuple[tuple[str, ...], tuple[str, ...]]:
        source = build.source
        return (requirement_set(build.instance, source), tuple(sorted(source.overrides))) if source.runtime == "native" else ((), ())

    def _requested(self, same: Callable[[ServerBuild], bool]) -> tuple[Requested, ...]:
        """The lines of all servers with the same needs, and where they stand: for the message when they cannot be met."""
        return tuple(
            Requested(build.instance, build.source.place(line), line)
            for build in self.builds
            if same(build)
            for line in (*build.source.requirement_lines, *build.source.overrides)
        )

    def _runtime(self, build: ServerBuild) -> PeerRuntime:
        if self.runtime is None:
            if self.options.nemo_gym is None:
                raise SourceError(
                    build.instance,
                    f"{build.server_directory} runs on NeMo Gym, and no NeMo Gym is in the search roots",
                    "Say which with compose: {nemo_gym: {version: 0.7.0}}, or name its tree with --search-dir.",
                )
            self.runtime = PeerRuntime.of(self.options.nemo_gym, self.base, self._build_image(), self.native, self.options)
            self._add(self.runtime.packages)
        return self.runtime

    def _system(self, build: ServerBuild, parent: Image) -> Image:
        """``parent`` with the Debian packages that the instance asks for."""
        packages = tuple(sorted(set(build.options.apt)))
        if not packages:
            return parent
        dockerfile = asset(self.options.assets, "images/system/Dockerfile")
        inputs = (("parent", parent.key), ("Dockerfile", text_digest(dockerfile)), ("apt", " ".join(packages)))
        return self._add(
            make_image(
                "system",
                "system",
                inputs,
                dockerfile=dockerfile,
                parents=(("PARENT", parent),),
                arguments=(("DEBIAN_PACKAGES", " ".join(packages)),),
                network=True,
            )
        )


def _lock_notes(images: Iterable[Image]) -> Iterator[tuple[str, str]]:
    """Whether the versions of each set of requirements are settled."""
    for image in images:
        if not image.lock_name:
            continue
        file = f".gym/{LOCK_DIRECTORY}/{image.lock_name}.txt"
        for instance in dict.fromkeys(asked.instance for asked in image.requested) or ("",):
            if image.lock is not None:
                yield instance, f"its packages are locked by {file}"
            else:
                yield instance, f"its packages are not locked: the next build chooses versions and keeps them in {file}"


def _requirement_sets(builds: Iterable[ServerBuild]) -> ImageSet:
    images: dict[str, Image] = {}
    by_instance: dict[str, str] = {}
    for build in builds:
        lines = requirement_set(build.instance, build.source)
        if lines:
            context = (given("requirements.txt", text_lines(lines)),)
            image = make_image("requirements", "requirements", (("requirements", "\n".join(lines)),), context=context)
            images[image.name] = image
            by_instance[build.instance] = image.name
    return ImageSet(tuple(images.values()), "", "", by_instance)


def base_image(assets: Mapping[str, str], wanted: str) -> Image:
    """The base for the ``base_image`` setting ``wanted``: auto, pull, debootstrap, or a reference, which then is the image itself."""
    if wanted not in BASE_SOURCES:
        return make_image("base", "base", (("reference", wanted),), name=wanted)
    script = given("debootstrap.sh", asset(assets, "images/base/debootstrap.sh"), executable=True)
    dockerfile = asset(assets, "images/base/Dockerfile")
    inputs = (("source", wanted), ("debootstrap.sh", script.sha256), ("Dockerfile", text_digest(dockerfile)))
    return make_image("base", "base", inputs, dockerfile=dockerfile, context=(script,), network=True)


def _packages(base: Image, options: CompileOptions) -> Image:
    dockerfile = asset(options.assets, "images/native/packages.Dockerfile")
    requirements = given("requirements.txt", asset(options.assets, "images/native/requirements.txt"))
    inputs = (("base", base.key), ("Dockerfile", text_digest(dockerfile)), ("requirements.txt", requirements.sha256))
    return make_image(
        "packages", "packages", inputs, dockerfile=dockerfile, context=(requirements,), parents=(("BASE", base),), network=True
    )


def _with_sources(kind: ImageKind, parent: Image, argument: str, packages: tuple[str, ...], options: CompileOptions) -> Image:
    dockerfile = asset(options.assets, f"images/{kind}/Dockerfile")
    files = tuple(
        file for file in options.package_files if file.path.startswith(packages) or (kind == "native" and file.path.count("/") == 1)
    )
    if not files:
        raise CompileError(f"gym_compose has no sources for the {kind} image", where=", ".join(packages), hint="Reinstall gym-compose.")
    inputs = ((argument.lower(), parent.key), ("Dockerfile", text_digest(dockerfile)), *file_inputs(files))
    return make_image(kind, kind, inputs, dockerfile=dockerfile, context=files, parents=((argument, parent),))


def _build(packages: Image, options: CompileOptions) -> Image:
    dockerfile = asset(options.assets, "images/build/Dockerfile")
    inputs = (("packages", packages.key), ("Dockerfile", text_digest(dockerfile)))
    return make_image("build", "build", inputs, dockerfile=dockerfile, parents=(("PACKAGES", packages),), network=True)


def _requirements(lines: tuple[str, ...], overrides: tuple[str, ...], packages: Image, build: Image, options: CompileOptions) -> Image:
    dockerfile = asset(options.assets, "images/requirements/Dockerfile")
    scripts = installer(options.assets)
    asked = (("requirements", "\n".join(lines)), *((("overrides", "\n".join(overrides)),) if overrides else ()))
    inputs = (("packages", packages.key), ("build", build.key), ("Dockerfile", text_digest(dockerfile)), *file_inputs(scripts), *asked)
    image = make_image(
        "requirements",
        "requirements",
        inputs,
        dockerfile=dockerfile,
        context=(*scripts, given("requirements.txt", text_lines(lines)), given("overrides.txt", text_lines(overrides))),
        parents=(("PARENT", packages), ("BUILD", build)),
        network=True,
    )
    below = text_digest(asset(options.assets, "images/native/requirements.txt"))
    decides = (("base", options.base_image), ("packages", below), *asked)
    return with_lock(image, "requirements", decides, options.locks, upgrade=options.upgrade)


def _server(source: ServerSource, parent: Image, native: Image, options: CompileOptions, apart: frozenset[str]) -> Image:
    dockerfile = asset(options.assets, "images/server/Dockerfile")
    within = f"{source.server_type}/{source.implementation}"
    files = tuple(
        ContextFile(f"server/{within}/{file.path}", file.sha256, join(source.directory, file.path), executable=file.executable)
        for file in sorted(source.files, key=lambda file: file.path)
        if not file.path.startswith("tests/") and join(source.directory, file.path) not in apart
    )
    inputs = (
        ("native", native.key),
        ("parent", parent.key),
        ("Dockerfile", text_digest(dockerfile)),
        ("directory", within),
        *((relpath(label, "server"), value) for label, value in file_inputs(files)),
    )
    parents = (("PARENT", parent), ("NATIVE", native))
    return make_image("server", repository(source.implementation), inputs, dockerfile=dockerfile, context=files, parents=parents)


def _prepared(build: ServerBuild, parent: Image, options: CompileOptions) -> Image:
    """``parent`` after the ``run`` steps of ``compose: servers``, in the server's directory and as root."""
    commands = (orjson.dumps(["/bin/bash", "-euo", "pipefail", "-c", _CA_PRELUDE + step]).decode() for step in build.options.run)
    steps = "".join(f"RUN --mount=type=secret,id=ca {command}\n" for command in commands)
    text = f"WORKDIR {server_directory(build.source, options)}\n{steps}"
    dockerfile = asset(options.assets, "images/prepared/Dockerfile").replace("#STEPS\n", text)
    inputs = (("parent", parent.key), ("Dockerfile", text_digest(dockerfile)))
    return make_image(
        "server", repository(build.source.implementation), inputs, dockerfile=dockerfile, parents=(("PARENT", parent),), network=True
    )

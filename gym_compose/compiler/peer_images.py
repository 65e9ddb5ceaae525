"""Images of the nemo-gym runtime: servers written for NeMo Gym run unmodified (issue 5; contract-servers 7).

    base ── nemo-gym-packages ── requirements (one per set of needs) ─┬─ server of a user's tree (its files)
                                                                      └─ shared by all servers of the wheel

The packages image holds NeMo Gym and all it brings in, keyed by base, version (or a checkout's pyproject) and lowest Python. The wheel
ships every server directory, so its servers need no layer of files, only gym_compose's launcher, one small layer on top. Of a checkout the
packages are those of its pyproject, and its trees are a layer above the requirements: an edit redoes that one only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from posixpath import dirname, join

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gym_compose.compiler.deployment import ContextFile, Image
from gym_compose.compiler.errors import CompileError, SourceError
from gym_compose.compiler.locks import with_lock
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.peer_lines import PeerLines, parse_lock, peer_lines
from gym_compose.compiler.recipe import asset, file_inputs, given, installer, make_image, text_digest, text_lines
from gym_compose.config.model import NemoGymTree, ServerSource

DIRECTORY = "images/nemo-gym"
LOWEST_PYTHON = "3.13.14"
"""What nemo-gym 0.7.0 asks for; used for a version whose metadata is not at hand."""
_SANDBOX = ("sandbox",)
_LOCAL = "/tmp/local"
"""Where install.sh copies the context's ``local`` to: a build writes beside its sources."""


@dataclass(frozen=True)
class PeerRuntime:
    """The NeMo Gym of one deployment and how to make its images. ``build`` is the image with uv and a compiler."""

    tree: NemoGymTree
    base: Image
    build: Image
    native: Image
    options: CompileOptions
    packages: Image
    lock: Mapping[str, str] = field(default_factory=dict)
    sandbox_lock: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: NemoGymTree, base: Image, build: Image, native: Image, options: CompileOptions) -> PeerRuntime:
        """Raises CompileError for a version that cannot be written in a requirement."""
        try:
            Version(tree.version)
        except InvalidVersion:
            where = tree.directory or "compose.nemo_gym.version"
            raise CompileError(f"{tree.version!r} is no version of nemo-gym", where=where, hint="Write 0.7.0.") from None
        lock, sandbox = (_lock(options.assets, tree, name) for name in ("", "-sandbox"))
        packages = _packages(tree, base, build, options, _pins(lock))
        return cls(tree, base, build, native, options, packages, lock, sandbox)

    def parents(self, needs: PeerLines, source: ServerSource, system: Image | None) -> tuple[Image, ...]:
        """The images above the packages that a server with these needs runs on, lowest first; the last one is its parent. Empty for none.

        ``system`` is an image with Debian packages above the packages image.
        """
        images: list[Image] = []
        parent = system or self.packages
        if needs.extras == _SANDBOX and (needs.lines or needs.local):
            parent = self._requirements(PeerLines(extras=_SANDBOX), source, parent)
            images.append(parent)
        if needs:
            images.append(self._requirements(needs, source, parent))
        return tuple(images)

    def _requirements(self, needs: PeerLines, source: ServerSource, parent: Image) -> Image:
        dockerfile, scripts = asset(self.options.assets, "images/requirements/Dockerfile"), installer(self.options.assets)
        local, local_lines = self._local(needs, source)
        project = _computed(needs, source)
        itself = self._itself(needs.extras)
        lines = (*itself, *needs.lines, *local_lines)
        overrides = (*needs.overrides, *(self._only_itself() if project else ()))
        asked = (
            ("python", self.tree.python),
            ("requirements", "\n".join(lines)),
            ("overrides", "\n".join(overrides)),
            *file_inputs(local),
            *file_inputs(project),
            *((("extras", ",".join(needs.extras)), *file_inputs(_project_file(self.tree))) if self.tree.form == "checkout" else ()),
        )
        inputs = (
            ("packages", parent.key),
            ("build", self.build.key),
            ("Dockerfile", text_digest(dockerfile)),
            *file_inputs(scripts),
            *asked,
        )
        context = (
            *scripts,
            *local,
            *project,
            given("requirements.txt", text_lines(lines)),
            given("overrides.txt", text_lines(overrides)),
            given("projects.txt", text_lines((f"{_LOCAL}/{needs.computed}/pyproject.toml",) if project else ())),
            given("extras.txt", text_lines(needs.extras)),
            *_project_file(self.tree),
        )
        image = make_image(
            "peer-requirements",
            "nemo-gym-requirements",
            inputs,
            dockerfile=dockerfile,
            context=context,
            parents=(("PARENT", parent), ("BUILD", self.build)),
            arguments=(("NEMO_GYM_PYTHON", self.tree.python),),
            network=True,
        )
        decides = (("base", self.options.base_image), ("packages", text_digest(_pins(self.lock))), ("version", self.tree.version), *asked)
        return with_lock(image, "nemo-gym-requirements", decides, self.options.locks, upgrade=self.options.upgrade)

    def shared(self, parent: Image) -> Image:
        """What all servers of the wheel or checkout share: their parent with gym_compose's launcher, and a checkout's trees."""
        checkout = self.tree.form == "checkout"
        dockerfile = asset(self.options.assets, f"{DIRECTORY}/{'tree' if checkout else 'code'}.Dockerfile")
        files = tuple(
            ContextFile(f"tree/{file.path}", file.sha256, join(self.tree.directory, file.path), executable=file.executable)
            for file in self.tree.files
        )
        arguments = (("NEMO_GYM_VERSION", self.tree.version),) if checkout else ()
        inputs = (
            ("native", self.native.key),
            ("parent", parent.key),
            ("Dockerfile", text_digest(dockerfile)),
            *arguments,
            *file_inputs(files),
        )
        parents = (("PARENT", parent), ("NATIVE", self.native))
        slug = "nemo-gym-checkout" if checkout else "nemo-gym"
        return make_image("server", slug, inputs, dockerfile=dockerfile, context=files, parents=parents, arguments=arguments)

    def needs(self, instance: str, source: ServerSource) -> tuple[PeerLines, tuple[str, ...]]:
        """``peer_lines`` against what this runtime has. Raises SourceError, also for servers that ask for another NeMo Gym."""
        self._check_itself(instance, source)
        lock = self.sandbox_lock if "sandbox" in source.extras and self.sandbox_lock else self.lock
        return peer_lines(instance, source, lock, self.tree.python)

    def _check_itself(self, instance: str, source: ServerSource) -> None:
        for line, place in source.places:
            name = line.partition("[")[0] if "[" in line else line
            if not line[:1].isalpha() or canonicalize_name(re.split(r"[\s<>=!~@;,(]", name, maxsplit=1)[0]) != "nemo-gym":
                continue
            try:
                wanted = Requirement(line)
            except InvalidRequirement:
                continue  # a path behind it, as in "nemo-gym[dev] @ ../../": this very tree
            elsewhere = wanted.url is not None and wanted.url.startswith(("http", "git+")) and self.tree.form == "wheel"
            if not elsewhere and (not wanted.specifier or wanted.specifier.contains(self.tree.version, prereleases=True)):
                continue
            raise SourceError(
                instance,
                f"the requirement {line!r} in {place} is not met by the deployment's NeMo Gym, which is {self.tree.version}",
                "All servers run on one: take the version out of the line, name another with compose: {nemo_gym: {version: …}}, "
                "or name a checkout with --search-dir.",
            )

    def _itself(self, extras: tuple[str, ...]) -> tuple[str, ...]:
        """NeMo Gym as a requirement, so that the resolver keeps to its own requirements."""
        if self.tree.form == "checkout":
            return ()
        wanted = f"[{','.join(extras)}]" if extras else ""
        return (f"nemo-gym{wanted}=={self.tree.version}",)

    def _only_itself(self) -> tuple[str, ...]:
        """Overrides that keep the ``nemo-gym[dev]`` of computed dependencies from bringing in what the runtime is made without: its extras,
        or, beside a checkout, a NeMo Gym of the index."""
        if self.tree.form == "checkout":
            return ('nemo-gym; python_version < "3"',)
        return (f"nemo-gym=={self.tree.version}",)

    def _local(self, needs: PeerLines, source: ServerSource) -> tuple[tuple[ContextFile, ...], tuple[str, ...]]:
        """Files and requirement lines of packages in the server's own directory."""
        files: list[ContextFile] = []
        lines: list[str] = []
        for path, extras in needs.local:
            within = f"{source.server_type}/{source.implementation}/{path}"
            found = [file for file in source.files if file.path.startswith(path + "/")]
            files.extend(
                ContextFile(f"local/{within}/{file.path[len(path) + 1 :]}", file.sha256, join(source.directory, file.path))
                for file in found
            )
            lines.append(f"{_LOCAL}/{within}{extras}")
        return tuple(files), tuple(lines)


def _computed(needs: PeerLines, source: ServerSource) -> tuple[ContextFile, ...]:
    """The files that a build backend computes a server's dependencies from."""
    if not needs.computed:
        return ()
    within = f"local/{needs.computed}"
    return tuple(
        ContextFile(f"{within}/{file.path}", file.sha256, join(source.directory, file.path))
        for file in source.files
        if file.path in source.computed
    )


def _packages(tree: NemoGymTree, base: Image, build: Image, options: CompileOptions, lock: str) -> Image:
    dockerfile, scripts = asset(options.assets, f"{DIRECTORY}/packages.Dockerfile"), installer(options.assets)
    lines = ("defusedxml>=0.7.1",) if tree.form == "checkout" else (f"nemo-gym=={tree.version}", "defusedxml>=0.7.1")
    project = _project_file(tree)
    inputs = (
        ("base", base.key),
        ("build", build.key),
        ("Dockerfile", text_digest(dockerfile)),
        *file_inputs(scripts),
        ("python", tree.python),
        ("requirements", "\n".join(lines)),
        ("packages", lock),
        *file_inputs(project),
    )
    context = (
        *scripts,
        given("requirements.txt", text_lines(lines)),
        given("packages.txt", lock),
        given("overrides.txt", ""),
        given("projects.txt", ""),
        given("extras.txt", ""),
        *project,
    )
    image = make_image(
        "peer-packages",
        "nemo-gym-packages",
        inputs,
        dockerfile=dockerfile,
        context=context,
        parents=(("BASE", base), ("BUILD", build)),
        arguments=(("NEMO_GYM_PYTHON", tree.python),),
        network=True,
    )
    if lock:
        return replace(image, context=(*image.context, given("lock.txt", "")))
    decides = (("base", options.base_image), ("python", tree.python), ("requirements", "\n".join(lines)), *file_inputs(project))
    return with_lock(image, "nemo-gym-packages", decides, options.locks, upgrade=options.upgrade)


def _pins(lock: Mapping[str, str]) -> str:
    return text_lines(f"{name}=={version}" for name, version in sorted(lock.items()))


def _project_file(tree: NemoGymTree) -> tuple[ContextFile, ...]:
    """A checkout's pyproject.toml: its dependencies are resolved with everything else."""
    return tuple(
        ContextFile(file.path, file.sha256, join(tree.directory, file.path)) for file in tree.files if file.path == "pyproject.toml"
    )


def _lock(assets: Mapping[str, str], tree: NemoGymTree, suffix: str) -> dict[str, str]:
    """Versions of the runtime's packages, where they were settled beforehand."""
    return parse_lock(assets.get(f"{DIRECTORY}/{tree.version}{suffix}.txt", "")) if tree.form == "wheel" else {}


def is_of_tree(source: ServerSource, tree: NemoGymTree) -> bool:
    """Whether the server's directory is one of the checkout's own."""
    return tree.form == "checkout" and dirname(dirname(source.directory)) == tree.directory

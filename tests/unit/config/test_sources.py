"""Which directory a server comes from and what its snapshot holds (contract-config 4.3, design decision 2, preamble 6)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from gym_compose.config.entrypoint import EntrypointError
from gym_compose.config.model import ClassFlags, GymConfig, ServerInstance, ServerManifest, ServerSource
from gym_compose.config.sources import SearchRoot, ServerDirectoryError, find_sources, read_manifest, search_roots, source_files
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import ServerType

APP = """
from gym_compose.serving import ResourcesServer

class Server(ResourcesServer):
    ray_enabled = False

if __name__ == "__main__":
    Server.run_webserver()
"""


def instance(
    name: str = "rs", server_type: ServerType = "resources_servers", implementation: str = "math", **fields: Any
) -> ServerInstance:
    values = {"entrypoint": "app.py", "host": "h", "port": 1, "block": {}, **fields}
    return ServerInstance(name=name, server_type=server_type, implementation=implementation, **values)


def config(*instances: ServerInstance) -> GymConfig:
    return GymConfig(merged={}, resolved={}, instances=instances, references=(), secret_paths=frozenset())


def server(root: Path, implementation: str = "math", *, requirements: str | None = "gym-compose\n", app: str = APP, **files: str) -> Path:
    directory = root / "resources_servers" / implementation
    directory.mkdir(parents=True)
    (directory / "app.py").write_text(app)
    if requirements is not None:
        (directory / "requirements.txt").write_text(requirements)
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory


def one(root: Path, **fields: Any) -> ServerSource:
    return find_sources(config(instance(**fields)), [SearchRoot(root)])["resources_servers", fields.get("implementation", "math")]


class TestWhichTreeWins:
    def test_user_trees_win_then_ours_then_the_wheel(self, tmp_path: Path) -> None:
        roots = [
            SearchRoot(tmp_path / "wheel", "wheel"),
            SearchRoot(tmp_path / "native", "native"),
            SearchRoot(tmp_path / "first"),
            SearchRoot(tmp_path / "second"),
        ]
        expected: list[str] = []
        for name, origin in (("wheel", "wheel"), ("native", "native"), ("second", "user"), ("first", "user")):
            expected.insert(0, str(server(tmp_path / name)))
            source = find_sources(config(instance()), roots)["resources_servers", "math"]
            assert (source.directory, source.origin) == (expected[0], origin)
            assert list(source.shadowed) == expected[1:]

    def test_a_directory_without_requirements_does_not_hide_one_that_has_them(self, tmp_path: Path) -> None:
        server(tmp_path / "a", requirements=None)
        wanted = server(tmp_path / "b")
        source = find_sources(config(instance()), [SearchRoot(tmp_path / "a"), SearchRoot(tmp_path / "b")])["resources_servers", "math"]
        assert source.directory == str(wanted)
        assert source.shadowed == ()

    def test_instances_of_one_implementation_share_a_source(self, tmp_path: Path) -> None:
        server(tmp_path)
        assert list(find_sources(config(instance("a"), instance("b")), [SearchRoot(tmp_path)])) == [("resources_servers", "math")]

    def test_an_implementation_may_be_a_nested_directory(self, tmp_path: Path) -> None:
        directory = server(tmp_path, "group/math")
        assert one(tmp_path, implementation="group/math").directory == str(directory)

    def test_an_unused_broken_directory_is_not_read(self, tmp_path: Path) -> None:
        server(tmp_path)
        server(tmp_path, "broken", app="def (")
        assert one(tmp_path).runtime == "native"


class TestSearchRoots:
    def test_order_and_origins(self, tmp_path: Path) -> None:
        cwd, wheel, native = tmp_path / "cwd", tmp_path / "site", tmp_path / "native"
        environ = {"NEMO_GYM_EXTRA_ROOTS": os.pathsep.join([str(tmp_path / "env"), "", "relative"])}
        roots = search_roots(cwd, environ, extra=["given"], install_root=wheel, native_root=native)
        assert [(root.path, root.origin) for root in roots] == [
            (cwd / "given", "user"),
            (tmp_path / "env", "user"),
            (cwd / "relative", "user"),
            (cwd, "user"),
            (native, "native"),
            (wheel, "wheel"),
        ]

    def test_a_root_named_twice_counts_once_and_an_installed_tree_is_never_the_users(self, tmp_path: Path) -> None:
        roots = search_roots(tmp_path, {}, extra=[tmp_path, "."], install_root=tmp_path)
        assert [(root.path, root.origin) for root in roots] == [(tmp_path, "wheel")]


class TestMissing:
    def test_the_instance_close_matches_and_places_are_named(self, tmp_path: Path) -> None:
        server(tmp_path / "a", "maths")
        with pytest.raises(ServerDirectoryError) as caught:
            find_sources(config(instance("my_rs")), [SearchRoot(tmp_path / "a"), SearchRoot(tmp_path / "b")])
        assert str(caught.value) == "server instance my_rs: there is no directory resources_servers/math. Did you mean maths?"
        assert caught.value.details == (
            "searched:",
            f"  {tmp_path / 'a/resources_servers/math'}",
            f"  {tmp_path / 'b/resources_servers/math'}",
        )
        assert caught.value.exit_code == 3

    def test_nothing_close(self, tmp_path: Path) -> None:
        with pytest.raises(ServerDirectoryError, match="--search-dir"):
            one(tmp_path)

    @pytest.mark.parametrize("implementation", ["../math", "/etc", "a/../../b", ""])
    def test_a_path_that_leaves_the_tree_is_refused(self, tmp_path: Path, implementation: str) -> None:
        with pytest.raises(ServerDirectoryError, match="not a path below resources_servers/"):
            one(tmp_path, implementation=implementation)

    def test_a_directory_that_does_not_say_how_it_runs(self, tmp_path: Path) -> None:
        server(tmp_path, requirements=None)
        with pytest.raises(ServerDirectoryError, match=r"server instance rs: .*math: has no requirements\.txt"):
            one(tmp_path)

    def test_an_entry_point_that_is_not_there(self, tmp_path: Path) -> None:
        server(tmp_path)
        with pytest.raises(InvalidInputError, match=r"server instance rs: entrypoint 'other\.py' is not a file in .*math"):
            one(tmp_path, entrypoint="other.py")

    def test_an_entry_point_with_a_syntax_error(self, tmp_path: Path) -> None:
        directory = server(tmp_path, app="x = 1\ndef (\n")
        with pytest.raises(InvalidInputError, match=rf"{directory}/app\.py:2: is not valid Python"):
            one(tmp_path)


class TestRuntimeAndRequirements:
    @pytest.mark.parametrize(
        ("requirements", "runtime", "lines"),
        [
            ("gym-compose\n", "native", ()),
            ("gym_compose[x]>=0.1  # ours\nreasoning-gym==0.1.25\n", "native", ("reasoning-gym==0.1.25",)),
            ("Gym-Compose==0.1.0\n\n# note\nnumpy # fast\n", "native", ("numpy",)),
            ("-e nemo-gym[dev] @ ../../\n", "nemo-gym", ()),
            ("-e nemo-gym[dev,sandbox] @ ../..\nscipy\n", "nemo-gym", ("scipy",)),
            ("nemo-gym==0.7.0\n", "nemo-gym", ()),
            ("-e ../../\ndatasets\n", "nemo-gym", ("datasets",)),
            ("--editable=../..[dev]\n", "nemo-gym", ()),
            ("gym-compose\nnemo-gym-extras\ngym-composer\n", "native", ("nemo-gym-extras", "gym-composer")),
            ("gym-compose\n--extra-index-url X\na \\\n  >=1\n", "native", ("--extra-index-url X", "a    >=1")),
            ("gym-compose\nx @ git+file:///a#egg=x\n", "native", ("x @ git+file:///a#egg=x",)),
            ("numpy\n", "native", ("numpy",)),  # the entry point imports gym_compose
        ],
    )
    def test_requirement_lines_choose_the_runtime(self, tmp_path: Path, requirements: str, runtime: str, lines: tuple[str, ...]) -> None:
        server(tmp_path, requirements=requirements)
        source = one(tmp_path)
        assert (source.runtime, source.requirement_lines) == (runtime, lines)

    def test_a_server_that_names_neither_and_imports_neither_is_the_peers(self, tmp_path: Path) -> None:
        server(tmp_path, requirements="numpy\n", app="import nemo_gym\n")
        assert one(tmp_path).runtime == "nemo-gym"

    def test_a_dockerfile_of_its_own_decides(self, tmp_path: Path) -> None:
        server(tmp_path, Dockerfile="FROM scratch\n", app="not python (")
        source = one(tmp_path)
        assert (source.runtime, source.requirement_lines, source.flags) == ("dockerfile", (), ClassFlags())
        assert source.build_arguments == ()

    def test_where_each_requirement_stands(self, tmp_path: Path) -> None:
        directory = server(tmp_path, requirements="gym-compose\n\nnumpy  # fast\n", **{"overrides.txt": "scipy==1\n"})
        source = one(tmp_path)
        assert source.place("numpy") == f"{directory}/requirements.txt:3"
        assert source.place("scipy==1") == f"{directory}/overrides.txt:1"
        assert source.place("unknown") == str(directory)

    def test_a_server_on_an_image_of_the_users_needs_no_directory(self, tmp_path: Path) -> None:
        merged = GymConfig(
            merged={},
            resolved={},
            instances=(instance("judge", implementation="judge"), instance("rs")),
            references=(),
            secret_paths=frozenset(),
            extension={"servers": {"judge": {"image": "x:1"}}},
        )
        server(tmp_path)
        assert [key[1] for key in find_sources(merged, [SearchRoot(tmp_path)])] == ["math"]
        server(tmp_path, "judge")
        assert [key[1] for key in find_sources(merged, [SearchRoot(tmp_path)])] == ["judge", "math"]

    def test_both_runtimes_are_refused(self, tmp_path: Path) -> None:
        server(tmp_path, requirements="gym-compose\nnemo-gym==0.7.0\n")
        with pytest.raises(InvalidInputError, match=r"requirements\.txt: both runtimes are named: 'gym-compose' and 'nemo-gym==0\.7\.0'"):
            one(tmp_path)

    def test_both_files_are_refused(self, tmp_path: Path) -> None:
        directory = server(tmp_path)
        (directory / "pyproject.toml").write_text("")
        with pytest.raises(InvalidInputError, match=r"both requirements\.txt and pyproject\.toml"):
            one(tmp_path)

    def test_included_files_are_read_in_place(self, tmp_path: Path) -> None:
        directory = server(tmp_path, requirements="a\n-r more.txt\nb\n")
        (directory / "more.txt").write_text("gym-compose\nc\n")
        source = one(tmp_path)
        assert (source.runtime, source.requirement_lines) == ("native", ("a", "c", "b"))

    @pytest.mark.parametrize(("line", "message"), [("-r requirements.txt", "includes itself"), ("-r gone.txt", "cannot be read")])
    def test_bad_includes(self, tmp_path: Path, line: str, message: str) -> None:
        server(tmp_path, requirements=line)
        with pytest.raises(InvalidInputError, match=message):
            one(tmp_path)

    @pytest.mark.parametrize(
        ("text", "lines"),
        [
            ('[project]\ndependencies = ["nemo-gym[dev]", "scipy>=1"]\n', ("scipy>=1",)),
            ("", ()),
            ("[project]\nname = 'x'\n", ()),
        ],
    )
    def test_a_project_file(self, tmp_path: Path, text: str, lines: tuple[str, ...]) -> None:
        directory = server(tmp_path, requirements=None, app="import nemo_gym")
        (directory / "pyproject.toml").write_text(text)
        source = one(tmp_path)
        assert (source.runtime, source.requirement_lines) == ("nemo-gym", lines)

    @pytest.mark.parametrize("text", ["[project", "[project]\ndependencies = 'x'\n"])
    def test_a_bad_project_file(self, tmp_path: Path, text: str) -> None:
        directory = server(tmp_path, requirements=None)
        (directory / "pyproject.toml").write_text(text)
        with pytest.raises(InvalidInputError, match=r"pyproject\.toml"):
            one(tmp_path)


class TestFiles:
    def test_what_belongs_into_an_image_and_nothing_else(self, tmp_path: Path) -> None:
        directory = server(tmp_path, run="#!/bin/sh\n")
        (directory / "run").chmod(0o755)
        kept = ["configs/math.yaml", "data/example.jsonl", "data/table.csv", "lib/data/x.jsonl", "data/deep/example.jsonl"]
        dropped = [
            "data/train.jsonl", "data/deep/train.jsonl", "tests/test_app.py", "lib/tests/t.py", "__pycache__/app.pyc",
            "lib/__pycache__/a.pyc", ".env", ".git/HEAD", ".venv/bin/python", "lib/.hidden/x", "env/pyvenv.cfg", "env/bin/python",
            "stray.pyc", "outputs/x/y",
        ]  # fmt: skip
        for name in (*kept, *dropped):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(name)
        files = {file.path: file for file in source_files(directory)}
        assert list(files) == sorted(["app.py", "requirements.txt", "run", *kept])
        example = files["data/example.jsonl"]
        assert (example.sha256, example.size) == (hashlib.sha256(b"data/example.jsonl").hexdigest(), 18)
        assert [file.path for file in files.values() if file.executable] == ["run"]

    def test_links_are_followed_and_loops_are_not(self, tmp_path: Path) -> None:
        directory = server(tmp_path)
        shared = tmp_path / "shared"
        shared.mkdir()
        (shared / "a.py").write_text("a")
        (directory / "lib").symlink_to(shared)
        (directory / "loop").symlink_to(directory)
        (directory / "gone").symlink_to(tmp_path / "nowhere")
        assert [file.path for file in source_files(directory)] == ["app.py", "lib/a.py", "requirements.txt"]

    def test_the_same_tree_gives_the_same_files_whatever_the_order_on_disk(self, tmp_path: Path) -> None:
        names = [f"m{number}.py" for number in range(20)]
        for root, order in ((tmp_path / "a", names), (tmp_path / "b", names[::-1])):
            root.mkdir()
            for name in order:
                (root / name).write_text(name)
        assert list(source_files(tmp_path / "a")) == list(source_files(tmp_path / "b"))


class TestManifest:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (None, ServerManifest()),
            ("", ServerManifest()),
            ("files: [answers.jsonl]\negress: false\nstateful: false\n", ServerManifest(("answers.jsonl",), False, False)),
            ("egress: true\n", ServerManifest(egress=True)),
        ],
    )
    def test_fields(self, tmp_path: Path, text: str | None, expected: ServerManifest) -> None:
        if text is not None:
            (tmp_path / "gym_compose.yaml").write_text(text)
        assert read_manifest(tmp_path) == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("egres: true\n", r"gym_compose\.yaml: egres: extra inputs are not permitted"),
            ("files: answers\n", r"gym_compose\.yaml: files: "),
            ("files: [1]\n", r"gym_compose\.yaml: files\.0: "),
            ("- a\n", r"gym_compose\.yaml: the file: "),
            ("a: [\n", r"gym_compose\.yaml: cannot be read: .*line 2"),
        ],
    )
    def test_errors_name_the_file_and_the_field(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "gym_compose.yaml").write_text(text)
        with pytest.raises(InvalidInputError, match=message):
            read_manifest(tmp_path)


MAIN = 'if __name__ == "__main__":\n    {}.run_webserver()\n'


@pytest.mark.parametrize(
    ("app", "flags"),
    [
        ("class A(B):\n    ray_enabled = False\n" + MAIN.format("A"), ClassFlags("A", False, False)),
        ("class A(B):\n    ray_enabled: bool | None = True\n" + MAIN.format("A"), ClassFlags("A", True, False)),
        ("class A(B):\n    pass\n" + MAIN.format("A"), ClassFlags("A", None, False)),
        ("class A(B):\n    ray_enabled: bool | None\n" + MAIN.format("A"), ClassFlags("A", None, False)),
        ("class P(B):\n    ray_enabled = True\nclass A(P):\n    pass\n" + MAIN.format("A"), ClassFlags("A", True, False)),
        ("class P(B):\n    ray_enabled = True\nclass A(P):\n    ray_enabled = False\n" + MAIN.format("A"), ClassFlags("A", False, False)),
        ("class Other(B):\n    ray_enabled = True\nclass A(B):\n    pass\n" + MAIN.format("A"), ClassFlags("A", None, False)),
        ("class A(A):\n    pass\n" + MAIN.format("A"), ClassFlags("A", None, False)),
        (
            "class A(B):\n    pass\n" + MAIN.format("A") + "elif is_nemo_gym_fastapi_entrypoint(__file__):\n    app = A.run_webserver()\n",
            ClassFlags("A", None, True),
        ),
        ("from x import Server as S\n" + MAIN.format("S"), ClassFlags("Server", None, False)),
        ("class Z: ...\nZ.run_webserver()\nclass A: ...\n" + MAIN.format("A"), ClassFlags("A", None, False)),
        ("x = 1\n", ClassFlags(None, None, False)),
        ("app = make()\n", ClassFlags(None, None, True)),
        ("class A:\n    @classmethod\n    def go(cls):\n        cls.run_webserver()\n", ClassFlags(None, None, False)),
    ],
)
def test_class_flags_are_read_from_the_syntax_tree(tmp_path: Path, app: str, flags: ClassFlags) -> None:
    server(tmp_path, app=app)
    assert one(tmp_path).flags == flags


@pytest.mark.parametrize(
    ("app", "keeps", "opens"),
    [
        ("class A(B):\n    async def seed_session(self, body): ...\n", True, False),
        ("class A(B):\n    def close_session(self): ...\n", True, False),
        ("from nemo_gym.server_utils import SESSION_ID_KEY\nclass A(B):\n    pass\n", True, False),
        ("from resources_servers.gymnasium.base import GymnasiumServer\nclass A(GymnasiumServer):\n    pass\n", True, False),
        ("def seed_session(): ...\nclass A(B):\n    async def verify(self, body): ...\n", False, False),
        ("from nemo_gym.base_responses_api_agent import AgentSeedSessionRequest\nclass A(B): ...\n", False, True),
        ("from gym_compose.serving import SingleAgentTurn\nclass A(B): ...\n", False, True),
        (
            "from gym_compose.serving import EnvironmentServer\nclass A(EnvironmentServer):\n"
            "    def run(self, episode):\n        return self.agent_session(episode, 1)\n",
            False,
            True,
        ),
        ("class A(AgentServer):\n    def run(self, call):\n        return self.agent_session(call)\n", False, False),
    ],
)
def test_sessions_are_read_from_the_syntax_tree(tmp_path: Path, app: str, keeps: bool, opens: bool) -> None:
    server(tmp_path, app=app + MAIN.format("A"))
    flags = one(tmp_path).flags
    assert (flags.keeps_sessions, flags.opens_agent_sessions) == (keeps, opens)


def test_flags_of_each_entry_point(tmp_path: Path) -> None:
    directory = server(tmp_path)
    (directory / "other.py").write_text("class O: ...\n" + MAIN.format("O"))
    found = find_sources(config(instance("a"), instance("b", entrypoint="other.py")), [SearchRoot(tmp_path)])
    source = found["resources_servers", "math"]
    assert source.flags.class_name == "Server"
    assert [(name, flags.class_name) for name, flags in source.entrypoint_flags] == [("app.py", "Server"), ("other.py", "O")]


def test_user_code_is_not_imported(tmp_path: Path) -> None:
    server(tmp_path, app="import sys\nsys.exit('imported')\n")
    assert one(tmp_path).flags == ClassFlags()


BASE = "class Base(SimpleResourcesServer):\n    ray_enabled = True\n"


@pytest.mark.parametrize(
    ("app", "name"),
    [
        ("from base import Base as B\nclass A(B): ...\n" + MAIN.format("A"), "A"),
        ("from .base import Base\nclass A(Base[int]): ...\n" + MAIN.format("A"), "A"),
        ("import base\nclass A(base.Base): ...\n" + MAIN.format("A"), "A"),
        ("from base import Base\n" + MAIN.format("Base"), "Base"),
        ("import base\n" + MAIN.format("base.Base"), "Base"),
        ("import resources_servers.other.app as o\nclass A(o.Other): ...\n" + MAIN.format("A"), "A"),
        ("from resources_servers.other import app\nclass A(app.Other): ...\n" + MAIN.format("A"), "A"),
        ("class A(B): ...\nA.ray_enabled = True\n" + MAIN.format("A"), "A"),
        ("class X(B):\n    ray_enabled = True\nA = X\n" + MAIN.format("A"), "X"),
        ("ON = True\nclass A(B):\n    ray_enabled = ON\n" + MAIN.format("A"), "A"),
        ("if True:\n    class A(B):\n        ray_enabled = True\n" + MAIN.format("A"), "A"),
    ],
)
def test_what_a_class_says_of_ray_may_stand_in_a_module_that_it_imports(tmp_path: Path, app: str, name: str) -> None:
    directory = server(tmp_path, app=app)
    (directory / "base.py").write_text(BASE)
    other = directory.parent / "other"
    other.mkdir()
    (other / "__init__.py").write_text("")
    (other / "app.py").write_text("from resources_servers.math.base import Base\nclass Other(Base): ...\n")
    assert one(tmp_path).flags == ClassFlags(name, True, False)


@pytest.mark.parametrize("base", ["from app import A as Base\n", "def (\n", "from nemo_gym.base_resources_server import Base\n", "x = 1\n"])
def test_a_module_that_says_nothing_of_ray(tmp_path: Path, base: str) -> None:
    directory = server(tmp_path, app="from base import Base\nclass A(Base): ...\n" + MAIN.format("A"))
    (directory / "base.py").write_text(base)
    assert one(tmp_path).flags.ray_enabled is None


def test_an_entry_point_that_the_parser_gives_up_on_is_named(tmp_path: Path) -> None:
    server(tmp_path, app="x = " + "-" * 100_000 + "1\n")
    with pytest.raises(EntrypointError, match=r"app\.py: is nested too deeply"):
        one(tmp_path)


def test_a_link_to_itself_is_named(tmp_path: Path) -> None:
    (server(tmp_path) / "loop").symlink_to("loop")
    with pytest.raises(ServerDirectoryError, match="loop: cannot be read: Too many levels of symbolic links"):
        one(tmp_path)


def test_a_file_name_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    directory = server(tmp_path)
    Path(os.fsdecode(os.fsencode(directory) + b"/\xff.txt")).write_text("")
    with pytest.raises(ServerDirectoryError, match=r"udcff\.txt': the name of a file is not UTF-8"):
        one(tmp_path)


def test_sources_and_overrides_of_a_native_server_are_read(tmp_path: Path) -> None:
    directory = server(tmp_path, requirements=None)
    (directory / "pyproject.toml").write_text(
        '[project]\ndependencies = ["gym-compose", "fim"]\n[tool.uv.sources]\nfim = { git = "https://x.example/fim" }\n'
    )
    (directory / "overrides.txt").write_text("six==1.16\n")
    source = one(tmp_path)
    assert (source.runtime, source.overrides) == ("native", ("six==1.16",))
    assert [package for package, _ in source.unindexed] == ["fim"]

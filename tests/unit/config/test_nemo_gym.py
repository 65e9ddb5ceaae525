"""Which NeMo Gym a deployment's servers are written for, and what their directories ask of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gym_compose.config.nemo_gym import NemoGymTreeError, find_nemo_gym, is_checkout, is_wheel_root, lowest_python
from gym_compose.config.requirements import (
    RequirementsError,
    computes_dependencies,
    is_project_file,
    override_lines,
    requirement_places,
    runtime_extras,
    unindexed_dependencies,
)
from gym_compose.config.sources import SearchRoot, find_sources, search_roots

METADATA = "Metadata-Version: 2.4\nName: nemo-gym\nVersion: 0.7.0\nRequires-Python: >=3.13.14\n\nText: not a header\n"
PACKAGE_INFO = 'MAJOR = 0\nMINOR = 8\nPATCH = 1\nPRE_RELEASE = ""\n'


def wheel(root: Path, metadata: str = METADATA) -> Path:
    for name, text in {"nemo_gym/__init__.py": "", "nemo_gym-0.7.0.dist-info/METADATA": metadata}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def checkout(root: Path, project: str = '[project]\nname = "nemo-gym"\ndynamic = ["version"]\nrequires-python = ">=3.13.14"\n') -> Path:
    files = {
        "pyproject.toml": project,
        "nemo_gym/__init__.py": "",
        "nemo_gym/package_info.py": PACKAGE_INFO,
        "nemo_gym/__pycache__/x.pyc": "",
        "resources_servers/math/app.py": "import nemo_gym\n",
        "resources_servers/math/requirements.txt": "-e nemo-gym[dev] @ ../../\n",
        "resources_servers/math/data/example.jsonl": "{}\n",
        "resources_servers/math/data/train.jsonl": "{}\n",
        "resources_servers/math/tests/test_app.py": "",
        "resources_servers/math/.venv/pyvenv.cfg": "",
        "docs/index.md": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class TestForms:
    def test_a_wheel_is_known_by_its_metadata(self, tmp_path: Path) -> None:
        found = find_nemo_gym([tmp_path / "nowhere", wheel(tmp_path / "site")])
        assert found is not None
        assert (found.form, found.version, found.python, found.files) == ("wheel", "0.7.0", "3.13.14", ())
        assert is_wheel_root(tmp_path / "site")
        assert not is_checkout(tmp_path / "site")

    def test_a_checkout_brings_its_trees_without_caches_tests_and_datasets(self, tmp_path: Path) -> None:
        found = find_nemo_gym([checkout(tmp_path)])
        assert found is not None
        assert (found.form, found.version, found.python) == ("checkout", "0.8.1", "3.13.14")
        assert [file.path for file in found.files] == [
            "pyproject.toml",
            "nemo_gym/__init__.py",
            "nemo_gym/package_info.py",
            "resources_servers/math/app.py",
            "resources_servers/math/data/example.jsonl",
            "resources_servers/math/requirements.txt",
        ]
        assert not is_wheel_root(tmp_path)

    def test_the_first_root_wins(self, tmp_path: Path) -> None:
        found = find_nemo_gym([checkout(tmp_path / "mine"), wheel(tmp_path / "site")])
        assert found is not None
        assert found.directory == str(tmp_path / "mine")

    @pytest.mark.parametrize("project", ['[project]\nname = "mine"\n', "", "[tool.x]\n", "project = 1\n"])
    def test_a_project_of_another_name_is_none(self, tmp_path: Path, project: str) -> None:
        assert find_nemo_gym([checkout(tmp_path, project)]) is None

    def test_a_broken_pyproject_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(NemoGymTreeError, match=r"pyproject\.toml: is not TOML"):
            find_nemo_gym([checkout(tmp_path, "[project")])

    def test_metadata_without_a_version_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(NemoGymTreeError, match="METADATA: has no Version"):
            find_nemo_gym([wheel(tmp_path, "Name: nemo-gym\n")])

    def test_a_file_name_that_no_image_can_hold_is_named(self, tmp_path: Path) -> None:
        Path(os.fsdecode(os.fsencode(checkout(tmp_path) / "nemo_gym") + b"/\xff.txt")).write_text("")
        with pytest.raises(NemoGymTreeError, match="is not UTF-8"):
            find_nemo_gym([tmp_path])

    def test_nothing_is_nothing(self, tmp_path: Path) -> None:
        assert find_nemo_gym([]) is None
        assert find_nemo_gym([tmp_path]) is None

    @pytest.mark.parametrize(
        ("specifier", "python"),
        [(">=3.13.14", "3.13.14"), (">=3.13,<4", "3.13"), ("<4,>=3.12.1", "3.12.1"), ("==3.13.*", "3.13"), ("~=3.13.2", "3.13.2"),
         (None, "3.13"), ("", "3.13"), ("<4", "3.13"), ("three", "3.13"), (">=3.9,>=3.13.2,~=3.12", "3.13.2")],
    )  # fmt: skip
    def test_the_lowest_python(self, specifier: str | None, python: str) -> None:
        assert lowest_python(specifier) == python


class TestWhoseServer:
    def test_an_unpacked_wheel_named_as_a_root_is_not_the_users(self, tmp_path: Path) -> None:
        roots = search_roots(tmp_path / "cwd", {}, extra=[wheel(tmp_path / "site"), checkout(tmp_path / "source")])
        assert [root.origin for root in roots] == ["wheel", "user", "user"]

    @pytest.mark.parametrize(
        ("extension", "origin"), [({}, "native"), ({"runtime": "native"}, "native"), ({"runtime": "nemo-gym"}, "wheel")]
    )
    def test_the_runtime_key_turns_ours_and_the_wheels(
        self, tmp_path: Path, make_config: Any, extension: dict[str, str], origin: str
    ) -> None:
        for name, line in (("native", "gym-compose"), ("wheel", "nemo-gym")):
            directory = tmp_path / name / "resources_servers" / "math"
            directory.mkdir(parents=True)
            (directory / "app.py").write_text("")
            (directory / "requirements.txt").write_text(line + "\n")
        roots = [SearchRoot(tmp_path / "native", "native"), SearchRoot(tmp_path / "wheel", "wheel")]
        assert find_sources(make_config(extension), roots)["resources_servers", "math"].origin == origin

    def test_a_users_server_wins_whatever_the_runtime_key_says(self, tmp_path: Path, make_config: Any) -> None:
        source = find_sources(
            make_config({"runtime": "nemo-gym"}), [SearchRoot(tmp_path / "site", "wheel"), SearchRoot(checkout(tmp_path))]
        )
        found = source["resources_servers", "math"]
        assert (found.origin, found.runtime, found.extras, found.requirement_lines) == ("user", "nemo-gym", ("dev",), ())


@pytest.fixture
def make_config() -> Any:
    from gym_compose.config.model import GymConfig, ServerInstance

    def make(extension: dict[str, str]) -> GymConfig:
        instance = ServerInstance("m", "resources_servers", "math", "app.py", "h", 1, {})
        return GymConfig(merged={}, resolved={}, instances=(instance,), references=(), secret_paths=frozenset(), extension=extension)

    return make


class TestRequirements:
    @pytest.mark.parametrize(
        ("lines", "extras"),
        [
            (("-e nemo-gym[dev] @ ../../",), ("dev",)),
            (("-e nemo-gym[dev,sandbox] @ ../..",), ("dev", "sandbox")),
            (("nemo-gym[ Sandbox , dev ]==0.7.0", "scipy[x]"), ("dev", "sandbox")),
            (("nemo_gym",), ()),
            (("-e ../../",), ()),
            (("--editable=../..[dev]",), ("dev",)),
            (("-e ../../[sandbox]",), ("sandbox",)),
            (("gym-compose", "ray[default]"), ()),
            (("nemo-gym[]",), ()),
        ],
    )
    def test_extras_of_the_runtime(self, lines: tuple[str, ...], extras: tuple[str, ...]) -> None:
        assert runtime_extras(lines) == extras

    def test_overrides(self, tmp_path: Path) -> None:
        assert override_lines(tmp_path) == ()
        (tmp_path / "overrides.txt").write_text("# why\nprotobuf==6.33.6  # so\n\n")
        assert override_lines(tmp_path) == ("protobuf==6.33.6",)

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ('[project]\ndependencies = ["a"]\n', ()),
            ('[project]\n[tool.uv.sources]\nnemo-gym = { path = "../.." }\n', ()),
            (
                '[project]\ndependencies = ["Fim>=1"]\n[tool.uv.sources]\nfim = { git = "https://x.example/fim" }\n',
                (("fim", "[tool.uv.sources] takes it from git https://x.example/fim"),),
            ),
            (
                '[project]\ndynamic = ["dependencies"]\n[tool.uv.sources]\nt = [{ index = "cpu", marker = "x" }]\n',
                (("t", "[tool.uv.sources] takes it from index cpu"),),
            ),
            ('[project]\ndependencies = ["a"]\n[tool.uv.sources]\nb = { git = "https://x.example/b" }\na = { workspace = false }\n', ()),
            (
                '[project]\ndependencies = ["nemo-gym"]\n[tool.uv.sources]\nnemo_gym = { git = "https://x.example/g" }\n',
                (("nemo_gym", "[tool.uv.sources] takes it from git https://x.example/g"),),
            ),
        ],
    )
    def test_what_no_index_gives(self, tmp_path: Path, text: str, found: tuple[tuple[str, str], ...]) -> None:
        (tmp_path / "pyproject.toml").write_text(text)
        assert unindexed_dependencies(tmp_path / "pyproject.toml") == found

    @pytest.mark.parametrize("source", ['"git+https://x.example"', "3", '["git"]'])
    def test_a_source_that_is_no_table_is_an_error(self, tmp_path: Path, source: str) -> None:
        (tmp_path / "pyproject.toml").write_text(f'[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {source}\n')
        with pytest.raises(RequirementsError, match=r"tool\.uv\.sources\.a is no table"):
            unindexed_dependencies(tmp_path / "pyproject.toml")

    def test_overrides_of_a_project_file(self, tmp_path: Path) -> None:
        file = tmp_path / "pyproject.toml"
        file.write_text('[project]\ndependencies = ["a"]\n[tool.uv]\noverride-dependencies = [\n  "torch==2.11.0",\n]\n')
        assert override_lines(tmp_path) == ("torch==2.11.0",)
        assert requirement_places(file) == (("a", f"{file}:2"), ("torch==2.11.0", f"{file}:5"))
        file.write_text("[tool.uv]\noverride-dependencies = 3\n")
        with pytest.raises(RequirementsError, match="not a list of strings"):
            override_lines(tmp_path)

    def test_a_project_without_its_table_beside_a_setup_py_is_computed(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.x]\n")
        (tmp_path / "setup.py").write_text("")
        assert computes_dependencies(tmp_path / "pyproject.toml")

    @pytest.mark.parametrize(
        ("text", "computes"),
        [
            ('[project]\ndynamic = ["dependencies"]\n', True),
            ('[project]\ndynamic = ["version"]\ndependencies = ["a"]\n', False),
            ("[tool.x]\n", False),
            ('[build-system]\nrequires = ["poetry-core"]\n[tool.poetry.dependencies]\nnumpy = "^2"\n', True),
        ],
    )
    def test_dependencies_that_a_build_backend_computes(self, tmp_path: Path, text: str, computes: bool) -> None:
        (tmp_path / "pyproject.toml").write_text(text)
        assert computes_dependencies(tmp_path / "pyproject.toml") is computes
        assert [path for path in ("setup.py", "app.py", "VERSION", "prompts/a.txt", "setup.cfg") if is_project_file(path)] == [
            "setup.py",
            "VERSION",
            "setup.cfg",
        ]


@pytest.mark.parametrize(
    "text", ['[[tool.uv.index]]\nurl = "https://i.example/simple"\n', '[tool.uv]\nindex-url = "https://i.example/simple"\n']
)
def test_a_package_index_of_a_servers_own_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["a"]\n' + text)
    with pytest.raises(RequirementsError, match="taken from this host's own settings"):
        unindexed_dependencies(tmp_path / "pyproject.toml")

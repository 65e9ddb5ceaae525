"""Images and services of servers that were written for NeMo Gym."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gym_compose.compiler import Deployment, compile
from gym_compose.compiler.errors import CompileError, SourceError
from gym_compose.compiler.fragments import parse_fragments
from gym_compose.compiler.render import build_text, compose_text
from gym_compose.config.model import ClassFlags, NemoGymTree, SourceFile

SITE = "/opt/gym/lib/python3.13/site-packages"
WHEEL = NemoGymTree("/site", "wheel", "0.7.0", "3.13.14")
CHECKOUT = NemoGymTree(
    "/src", "checkout", "0.8.0", "3.13.14", (SourceFile("pyproject.toml", "1" * 64, 9), SourceFile("nemo_gym/__init__.py", "2" * 64, 9))
)
PEER = {"runtime": "nemo-gym", "origin": "wheel", "extras": ("dev",)}


@pytest.fixture
def compiled(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(
        sources: dict[str, Any], *, tree: NemoGymTree | None = WHEEL, compose: dict[str, Any] | None = None, **options: Any
    ) -> Deployment:
        four["compose"] = compose or {}
        config = make_config(four)
        return compile(config, make_sources(config, **sources), make_options(nemo_gym=tree, **options))

    return make


def images(deployment: Deployment, kind: str) -> list[Any]:
    return [image for image in deployment.images if image.kind == kind]


def text_of(image: Any, path: str) -> str:
    content: bytes = next(file.content for file in image.context if file.path == path)
    return content.decode()


class TestSharing:
    def test_servers_of_the_wheel_without_needs_share_one_image(self, compiled: Any) -> None:
        deployment = compiled(PEER)
        assert len({service.image for service in deployment.services if service.role == "server"}) == 1
        assert [image.kind for image in deployment.images] == [
            "base", "packages", "native", "controller", "build", "peer-packages", "server",
        ]  # fmt: skip
        assert images(deployment, "peer-requirements") == []

    def test_lines_that_the_lock_meets_make_no_layer_and_equal_needs_one(self, compiled: Any) -> None:
        deployment = compiled(
            {
                **PEER,
                "math": {"requirement_lines": ("numpy", "tiktoken")},
                "simple_agent": {"requirement_lines": ("tiktoken",)},
                "legacy_agent": {"requirement_lines": ("datasets",)},
            }
        )
        (layer,) = images(deployment, "peer-requirements")
        assert text_of(layer, "requirements.txt") == "nemo-gym==0.7.0\ntiktoken\n"
        assert {(asked.instance, asked.line) for asked in layer.requested} == {
            ("math", "numpy"), ("math", "tiktoken"), ("math_agent", "tiktoken"),
        }  # fmt: skip
        assert deployment.service("math").image == deployment.service("math_agent").image
        assert deployment.service("math").image != deployment.service("math_environment").image

    def test_an_extra_is_honoured_and_shared_below_further_lines(self, compiled: Any) -> None:
        deployment = compiled(
            {
                **PEER,
                "math": {"extras": ("dev", "sandbox")},
                "simple_agent": {"extras": ("sandbox",), "requirement_lines": ("tiktoken", "tenacity")},
            }
        )
        first, second = images(deployment, "peer-requirements")
        assert text_of(first, "requirements.txt") == "nemo-gym[sandbox]==0.7.0\n"
        assert text_of(second, "requirements.txt") == "nemo-gym[sandbox]==0.7.0\ntiktoken\n"  # tenacity comes with the extra
        assert first.name in second.depends_on

    def test_the_name_of_who_asks_does_not_change_the_layer(self, compiled: Any) -> None:
        one = compiled({**PEER, "math": {"requirement_lines": ("tiktoken",)}})
        two = compiled({**PEER, "math": {"requirement_lines": ("tiktoken",)}, "simple_agent": {"requirement_lines": ("tiktoken",)}})
        assert images(one, "peer-requirements")[0].name == images(two, "peer-requirements")[0].name

    @pytest.mark.parametrize("tree", [replace(WHEEL, version="0.7.1"), replace(WHEEL, python="3.14.1")])
    def test_another_nemo_gym_is_another_image(self, compiled: Any, tree: NemoGymTree) -> None:
        assert images(compiled(PEER), "peer-packages")[0].key != images(compiled(PEER, tree=tree), "peer-packages")[0].key

    def test_a_version_without_a_lock_is_resolved_in_the_build(self, compiled: Any) -> None:
        (locked,) = images(compiled(PEER), "peer-packages")
        (free,) = images(compiled(PEER, tree=replace(WHEEL, version="0.6.0")), "peer-packages")
        assert "nemo-gym==0.7.0" in text_of(locked, "packages.txt")
        assert text_of(free, "packages.txt") == ""
        assert text_of(free, "requirements.txt") == "nemo-gym==0.6.0\ndefusedxml>=0.7.1\n"

    def test_native_and_peer_servers_stand_side_by_side(self, compiled: Any) -> None:
        deployment = compiled({"math": PEER})
        assert {service.slice.runtime for service in deployment.services if service.slice} == {"native", "nemo-gym"}
        assert all(service.secret.session_key is None for service in deployment.services if service.secret)


class TestTrees:
    def test_a_users_server_is_a_layer_of_its_files(self, compiled: Any) -> None:
        deployment = compiled({**PEER, "math": {"origin": "user", "requirement_lines": ("tiktoken",)}})
        service = deployment.service("math")
        image = next(image for image in deployment.images if image.name == service.image)
        assert [file.path for file in image.context] == ["server/resources_servers/math/app.py"]
        assert image.depends_on[0] == images(deployment, "peer-requirements")[0].name
        assert (service.slice.server_dir, service.slice.python_path) == ("/srv/gym/resources_servers/math", ("/srv/gym",))
        assert service.slice.environment["NEMO_GYM_EXTRA_ROOTS"] == "/srv/gym"

    def test_a_checkout_is_the_runtime_of_its_servers(self, compiled: Any) -> None:
        deployment = compiled({**PEER, "origin": "user"}, tree=CHECKOUT)
        image = next(image for image in deployment.images if image.name == deployment.service("math").image)
        assert [file.path for file in image.context] == ["tree/pyproject.toml", "tree/nemo_gym/__init__.py"]
        assert dict(image.build_args)["NEMO_GYM_VERSION"] == "0.8.0"
        (packages,) = images(deployment, "peer-packages")
        assert [file.path for file in packages.context if file.host_path] == ["pyproject.toml"]
        edited = replace(CHECKOUT, files=(CHECKOUT.files[0], SourceFile("nemo_gym/__init__.py", "3" * 64, 9)))
        after = compiled({**PEER, "origin": "user"}, tree=edited)
        assert images(after, "peer-packages")[0].key == packages.key
        assert after.service("math").image != image.name

    def test_a_package_in_the_servers_own_directory_is_in_the_context(self, compiled: Any) -> None:
        files = (SourceFile("app.py", "1" * 64, 1), SourceFile("tool/setup.py", "2" * 64, 1), SourceFile("toolbox/x.py", "3" * 64, 1))
        deployment = compiled({**PEER, "math": {"requirement_lines": ("-e ./tool[a]",), "files": files}})
        (layer,) = images(deployment, "peer-requirements")
        assert text_of(layer, "requirements.txt") == "nemo-gym==0.7.0\n/tmp/local/resources_servers/math/tool[a]\n"
        assert [file.path for file in layer.context if file.host_path] == ["local/resources_servers/math/tool/setup.py"]
        with pytest.raises(SourceError, match="a directory that is not in /src/resources_servers/math"):
            compiled({**PEER, "math": {"requirement_lines": ("./tools",), "files": files}})

    @pytest.mark.parametrize(
        ("tree", "override"), [(WHEEL, "nemo-gym==0.7.0\n"), (CHECKOUT, 'nemo-gym; python_version < "3"\n')], ids=["wheel", "checkout"]
    )
    def test_computed_dependencies_are_computed_in_the_build(self, compiled: Any, tree: NemoGymTree, override: str) -> None:
        files = tuple(SourceFile(name, "1" * 64, 1) for name in ("app.py", "pyproject.toml", "setup.py"))
        server = {"files": files, "computed": ("pyproject.toml", "setup.py")}
        deployment = compiled({**PEER, "extras": (), "math": server}, tree=tree)
        (layer,) = images(deployment, "peer-requirements")
        assert text_of(layer, "projects.txt") == "/tmp/local/resources_servers/math/pyproject.toml\n"
        assert text_of(layer, "overrides.txt") == override
        prefix = "local/resources_servers/math"
        assert [file.path for file in layer.context if file.path.startswith(prefix)] == [f"{prefix}/pyproject.toml", f"{prefix}/setup.py"]
        assert any(name == "math" and "computed in the build, by pyproject.toml, setup.py" in note for name, note in deployment.notes)
        edited = (SourceFile("app.py", "2" * 64, 1), *files[1:])
        again = compiled({**PEER, "extras": (), "math": {**server, "files": edited}}, tree=tree)
        assert images(again, "peer-requirements")[0].key == layer.key

    def test_the_version_may_come_from_the_config(self, compiled: Any) -> None:
        deployment = compiled(PEER, tree=None, compose={"nemo_gym": {"version": "0.7.0"}})
        assert images(deployment, "peer-packages")[0].key == images(compiled(PEER), "peer-packages")[0].key
        with pytest.raises(SourceError, match="no NeMo Gym is in the search roots"):
            compiled(PEER, tree=None)
        with pytest.raises(CompileError, match="is a checkout of NeMo Gym"):
            compiled({**PEER, "origin": "user"}, tree=CHECKOUT, compose={"nemo_gym": {"version": "0.7.0"}})


class TestServices:
    def test_working_directory_environment_and_writable_directories(self, compiled: Any) -> None:
        service = compiled(PEER).service("math")
        directory = f"{SITE}/resources_servers/math"
        assert (service.slice.server_dir, service.slice.python_path, service.slice.ray) == (directory, (), "off")
        assert service.tmpfs == tuple(f"{directory}/{name}:mode=1777" for name in ("cache", "results", "outputs"))
        assert service.slice.environment["HF_HOME"] == "/home/gym/cache/huggingface"
        assert service.slice.environment["HF_HUB_OFFLINE"] == "1"
        assert "HF_HUB_OFFLINE" not in compiled(PEER).service("policy_model").slice.environment  # it has a way out

    def test_a_directory_of_the_servers_own_is_not_hidden(self, compiled: Any) -> None:
        files = (SourceFile("app.py", "1" * 64, 1), SourceFile("cache/table.json", "2" * 64, 1))
        deployment = compiled({**PEER, "math": {"files": files}})
        assert not any("/cache:" in mount for mount in deployment.service("math").tmpfs)
        assert any(instance == "math" and "cache/ holds files of the server" in note for instance, note in deployment.notes)

    def test_writable_is_shown_and_needs_no_tmpfs(self, compiled: Any) -> None:
        deployment = compiled(PEER, compose={"servers": {"math": {"writable": True}}})
        assert (deployment.service("math").writable, deployment.service("math").tmpfs) == (True, ())
        assert ("math", "its root file system is writable") in deployment.notes

    def test_it_has_longer_to_stop_than_a_native_server(self, compiled: Any) -> None:
        deployment = compiled({"math": PEER})
        assert [deployment.service(name).stop_grace_seconds for name in ("math", "policy_model")] == [20.0, 10.0]
        assert compiled(PEER, compose={"servers": {"math": {"stop_grace_seconds": 3}}}).service("math").stop_grace_seconds == 3.0

    def test_memory_as_the_user_says(self, compiled: Any) -> None:
        assert compiled(PEER, compose={"servers": {"math": {"memory": "3g"}}}).service("math").memory == "3g"

    def test_the_process_engine_refuses_with_the_way_out(self, compiled: Any) -> None:
        with pytest.raises(SourceError, match="the process engine does not start") as caught:
            compiled(PEER, target="process", head_port=11000)
        assert "--engine docker" in str(caught.value)

    def test_the_plan_says_which_nemo_gym_and_what_was_turned_off(self, compiled: Any) -> None:
        notes = compiled({**PEER, "math": {"flags": ClassFlags(class_name="S", ray_enabled=None)}}).notes
        assert any(not instance and "release 0.7.0; it asks for Python 3.13.14" in note for instance, note in notes)
        assert any(instance == "math" and "does not say whether it wants Ray" in note for instance, note in notes)


class TestSetup:
    def test_debian_packages_lie_below_and_steps_above(self, compiled: Any) -> None:
        server = {"apt": ["libxrender1", "git"], "run": ["python setup_data.py --all", 'echo "x"']}
        deployment = compiled({**PEER, "math": {"requirement_lines": ("tiktoken",)}}, compose={"servers": {"math": server}})
        (system,) = images(deployment, "system")
        assert ("DEBIAN_PACKAGES", "git libxrender1") in system.build_args
        assert images(deployment, "peer-requirements")[0].depends_on[0] == system.name
        image = next(image for image in deployment.images if image.name == deployment.service("math").image)
        assert f"WORKDIR {SITE}/resources_servers/math\nRUN --mount=type=secret,id=ca " in image.dockerfile
        assert image.dockerfile.rstrip().endswith("USER 10001:10001")
        assert '\\necho \\"x\\""]' in image.dockerfile
        assert deployment.service("policy_model").image != image.name

    def test_native_servers_may_ask_too_and_two_instances_apart(self, compiled: Any) -> None:
        deployment = compiled({}, compose={"servers": {"math": {"apt": ["jq"]}}})
        (system,) = images(deployment, "system")
        image = next(image for image in deployment.images if image.name == deployment.service("math").image)
        assert dict(image.build_args)["PARENT"] == system.name

    @pytest.mark.parametrize("package", ["Git", "a b", "-y", "x;rm", "$(id)", ""])
    def test_what_is_no_package_name_is_refused(self, compiled: Any, package: str) -> None:
        with pytest.raises(CompileError, match=r"compose\.servers\.math\.apt"):
            compiled(PEER, compose={"servers": {"math": {"apt": [package]}}})


def test_the_files_that_are_written(compiled: Any, make_options: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": ClassFlags(class_name="S", ray_enabled=True), "requirement_lines": ("tiktoken",)}})
    fragments = parse_fragments(make_options().assets)
    service = yaml.safe_load(compose_text(deployment, fragments, "/d"))["services"]["math"]
    assert service["depends_on"] == {"ray": {"condition": "service_healthy"}}
    assert service["read_only"] is True
    assert f"{SITE}/resources_servers/math/cache:mode=1777" in service["tmpfs"]
    builds = yaml.safe_load(build_text(deployment, "/ca.crt"))["services"]
    packages = next(body["build"] for name, body in builds.items() if name.startswith("nemo-gym-packages"))
    assert packages["args"]["NEMO_GYM_PYTHON"] == "3.13.14"
    assert packages["args"]["PIP_INDEX_URL"] is None  # of the caller's environment, never written
    assert packages["secrets"] == ["ca"]


@pytest.mark.parametrize("line", ["nemo-gym==0.6.0", "nemo_gym[dev] >= 0.8", "nemo-gym @ git+https://h.example/Gym@main"])
def test_a_server_that_asks_for_another_nemo_gym_is_refused(compiled: Any, line: str) -> None:
    with pytest.raises(SourceError, match=r"instance math: the requirement .* in /m/requirements\.txt:1 is not met .* which is 0\.7\.0"):
        compiled({**PEER, "math": {"places": ((line, "/m/requirements.txt:1"),)}})


@pytest.mark.parametrize(
    "line",
    ["-e nemo-gym[dev] @ ../../", "nemo-gym[dev,sandbox] @ ../..", "nemo-gym", "nemo-gym>=0.7,<1", "nemo-gym-extras==9", "-e ../../"],
)
def test_one_that_the_deployments_meets_is_not(compiled: Any, line: str) -> None:
    assert compiled({**PEER, "math": {"places": ((line, "/m/requirements.txt:1"),)}}).service("math").image


def test_a_checkout_is_what_a_repository_of_it_means(compiled: Any) -> None:
    place = (("nemo-gym @ git+https://h.example/Gym@main", "/m/requirements.txt:1"),)
    assert compiled({**PEER, "origin": "user", "math": {"places": place}}, tree=CHECKOUT).service("math").image


@pytest.mark.parametrize("version", ["", "None", "0.7.0;x", "0.7 0"])
def test_a_tree_of_a_version_that_is_none_is_refused(compiled: Any, version: str) -> None:
    with pytest.raises(CompileError, match="is no version of nemo-gym"):
        compiled(PEER, tree=replace(WHEEL, version=version))

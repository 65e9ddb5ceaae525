from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import yaml

from gym_compose.compiler import ContextFile, compile
from gym_compose.compiler.errors import CompileError, SourceError
from gym_compose.compiler.render import build_text, context_directory
from gym_compose.config.model import SourceFile


@pytest.fixture
def images(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(sources: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        config = make_config(four)
        deployment = compile(config, make_sources(config, **(sources or {})), make_options(**options))
        return {image.name.split("/")[1].split(":")[0] if image.kind != "external" else image.name: image for image in deployment.images}

    return make


def text_of(image: Any, path: str) -> str:
    content: bytes = next(file.content for file in image.context if file.path == path)
    return content.decode()


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if before[name].key != after[name].key}


def test_an_image_is_named_by_slug_and_key_and_stands_after_what_it_is_built_from(images: Any) -> None:
    found = images({"math": {"requirement_lines": ("numpy",)}})
    assert list(found) == [
        "base",
        "packages",
        "native",
        "controller",
        "build",
        "requirements",
        "math",
        "simple-agent",
        "openai-model",
        "legacy-agent",
    ]
    names: set[str] = set()
    for image in found.values():
        assert set(image.depends_on) <= names
        assert image.name.endswith(":" + image.key[:12])
        names.add(image.name)


def test_without_requirements_there_is_no_build_image(images: Any) -> None:
    assert "build" not in images()


def test_equal_requirement_sets_share_one_image_whatever_their_order(images: Any) -> None:
    found = images(
        {"math": {"requirement_lines": ("numpy", "sympy==1")}, "simple_agent": {"requirement_lines": ("sympy==1", "numpy", "numpy")}}
    )
    parents = {dict(found[name].build_args)["PARENT"] for name in ("math", "simple-agent")}
    assert parents == {found["requirements"].name}
    assert text_of(found["requirements"], "requirements.txt") == "numpy\nsympy==1\n"
    assert dict(found["openai-model"].build_args)["PARENT"] == found["packages"].name


def test_a_code_edit_changes_the_key_of_one_image(images: Any) -> None:
    edited = {"math": {"files": (SourceFile("app.py", "0" * 64, 1),)}}
    assert changed(images(), images(edited)) == {"math"}
    executable = (SourceFile("app.py", hashlib.sha256(b"/src/resources_servers/math").hexdigest(), 10, executable=True),)
    assert changed(images(), images({"math": {"files": executable}})) == {"math"}


def test_another_gym_compose_rebuilds_no_packages_and_no_requirements(images: Any, make_options: Any) -> None:
    wheels = {"math": {"requirement_lines": ("numpy",)}}
    files = make_options().package_files
    serving = tuple(replace(file, sha256="1" * 64) if "serving" in file.path else file for file in files)
    driver = tuple(replace(file, sha256="1" * 64) if "driver" in file.path else file for file in files)
    cli = tuple(replace(file, sha256="1" * 64) if "cli" in file.path else file for file in files)
    before = images(wheels)
    servers = {"math", "simple-agent", "openai-model", "legacy-agent"}
    assert changed(before, images(wheels, package_files=serving)) == {"native", "controller"} | servers
    assert changed(before, images(wheels, package_files=driver)) == {"controller"}
    assert changed(before, images(wheels, package_files=cli)) == set()


def test_the_native_image_holds_wire_and_serving_and_the_controller_the_rest(images: Any) -> None:
    found = images()
    assert {file.path for file in found["native"].context} == {
        "gym_compose/__init__.py",
        "gym_compose/wire/names.py",
        "gym_compose/serving/launch.py",
    }
    assert {file.path.split("/")[1] for file in found["controller"].context} == {"controller", "driver", "tasks", "config"}


def test_dataset_files_and_tests_stay_out_of_an_image(images: Any, host_file: Any) -> None:
    files = (SourceFile("app.py", "0" * 64, 1), SourceFile("data/x.jsonl", "1" * 64, 1), SourceFile("tests/test_app.py", "2" * 64, 1))
    found = images({"math": {"files": files}}, files={"data/x.jsonl": host_file("/src/resources_servers/math/data/x.jsonl", "")})
    assert [file.path for file in found["math"].context] == ["server/resources_servers/math/app.py"]


def test_two_instances_of_one_implementation_share_an_image(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["math2"] = {"resources_servers": {"math": {**four["math"]["resources_servers"]["math"]}}}
    config = make_config(four)
    deployment = compile(config, make_sources(config), make_options())
    assert deployment.service("math").image == deployment.service("math2").image
    assert sum(image.kind == "server" for image in deployment.images) == 4


def test_implementations_of_one_name_under_two_types_get_different_images(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["other"] = {"responses_api_agents": {"math": {"entrypoint": "app.py", "host": "x", "port": 1}}}
    config = make_config(four)
    deployment = compile(config, make_sources(config), make_options())
    assert deployment.service("math").image.split(":")[0] == deployment.service("other").image.split(":")[0]
    assert deployment.service("math").image != deployment.service("other").image


@pytest.mark.parametrize(
    "line",
    [
        "-e ./x",
        "./pkg",
        "../x",
        "/abs/pkg",
        "-r other.txt",
        "--extra-index-url x",
        "-c c.txt",
        "x @ file:///x",
        "file:x",
        "pkg @ ./x",
        "~/x",
    ],
)
def test_a_requirement_that_needs_a_file_or_option_is_an_error_naming_it(line: str, images: Any) -> None:
    with pytest.raises(SourceError, match="instance math") as caught:
        images({"math": {"requirement_lines": ("numpy", line)}})
    assert repr(line) in str(caught.value)


@pytest.mark.parametrize(
    "line", ["numpy", "a-b>=1,<2", "pkg[extra]==1 ; python_version < '4'", "x @ https://h.example/x.whl", "x @ git+https://h.example/x"]
)
def test_ordinary_requirements_pass(line: str, images: Any) -> None:
    assert text_of(images({"math": {"requirement_lines": (line,)}})["requirements"], "requirements.txt") == f"{line}\n"


def test_the_base_setting_is_part_of_the_key_or_the_image_itself(images: Any) -> None:
    auto, pull = images()["base"], images(base_image="pull")["base"]
    assert auto.key != pull.key
    assert {file.path for file in auto.context} == {"debootstrap.sh"}
    found = images(base_image="registry.example/py:3")
    named = next(image for image in found.values() if image.kind == "base")
    assert (named.name, named.dockerfile) == ("registry.example/py:3", None)
    assert dict(found["packages"].build_args) == {"BASE": "registry.example/py:3"}


def test_the_process_target_lists_requirement_sets_only(images: Any) -> None:
    found = images({"math": {"requirement_lines": ("numpy",)}}, target="process")
    assert [image.kind for image in found.values()] == ["requirements"]
    assert images(target="process") == {}


def test_an_installation_without_its_files_says_so(images: Any, make_options: Any) -> None:
    texts = dict(make_options().assets)
    del texts["images/server/Dockerfile"]
    with pytest.raises(CompileError, match="images/server/Dockerfile"):
        images(assets=texts)
    with pytest.raises(CompileError, match="native image"):
        images(package_files=(ContextFile("gym_compose/cli/x.py", "0" * 64, "/x"),))


class TestOwnDockerfiles:
    FILES = (SourceFile("Dockerfile", "1" * 64, 9), SourceFile("run.pl", "2" * 64, 9, executable=True))
    OWN: ClassVar[dict[str, Any]] = {"runtime": "dockerfile", "files": FILES}

    def test_the_context_is_the_directory_and_our_images_are_arguments_where_they_are_declared(self, images: Any) -> None:
        found = images({"math": {**self.OWN, "build_arguments": ("GYM_BASE", "VERSION")}})
        image = found["math"]
        assert [(file.path, file.host_path, file.executable) for file in image.context] == [
            ("Dockerfile", "/src/resources_servers/math/Dockerfile", False),
            ("run.pl", "/src/resources_servers/math/run.pl", True),
        ]
        assert image.build_args == (("GYM_BASE", found["base"].name),)
        assert image.depends_on == (found["base"].name,)
        assert image.is_built

    def test_another_base_changes_its_key_only_where_it_starts_from_ours(self, images: Any) -> None:
        for arguments, changes in (((), False), (("GYM_BASE",), True)):
            own = {"math": {**self.OWN, "build_arguments": arguments}}
            assert (images(own)["math"].key != images(own, base_image="pull")["math"].key) == changes

    def test_an_edit_changes_its_image_alone(self, images: Any) -> None:
        edited = {**self.OWN, "files": (self.FILES[0], SourceFile("run.pl", "3" * 64, 9))}
        assert changed(images({"math": self.OWN}), images({"math": edited})) == {"math"}

    def test_it_is_written_into_build_yaml_with_its_own_dockerfile(
        self, four: Any, make_config: Any, make_sources: Any, make_options: Any
    ) -> None:
        config = make_config(four)
        deployment = compile(config, make_sources(config, math={**self.OWN, "build_arguments": ("GYM_NATIVE",)}), make_options())
        build = yaml.safe_load(build_text(deployment, "/ca.crt"))["services"]
        name = context_directory(next(image for image in deployment.images if image.name == deployment.service("math").image))
        service = build[name.removeprefix("images/")]["build"]
        assert service["args"]["GYM_NATIVE"].startswith("gym-compose/native:")
        assert service["secrets"] == ["ca"]

    @pytest.mark.parametrize("key", ["apt", "run"])
    def test_steps_belong_into_the_dockerfile(self, four: Any, key: str, make_config: Any, make_sources: Any, make_options: Any) -> None:
        four["compose"] = {"servers": {"math": {key: ["jq"]}}}
        config = make_config(four)
        with pytest.raises(SourceError, match=rf"compose\.servers\.math\.{key} is for images of ours"):
            compile(config, make_sources(config, math=self.OWN), make_options())

    def test_the_process_engine_says_so(self, images: Any) -> None:
        with pytest.raises(SourceError, match=r"instance math: .*the process engine does not build"):
            images({"math": self.OWN}, target="process")


def test_what_no_index_gives_is_refused_for_a_native_server_too(images: Any) -> None:
    with pytest.raises(SourceError, match=r"instance math: .* needs fim, and it is elsewhere; a package of that name"):
        images({"math": {"requirement_lines": ("fim",), "unindexed": (("fim", "it is elsewhere"),)}})


@pytest.mark.parametrize("line", ["six=1.0", "x @ hg+https://h.example/x", "x @ git+https://h.example/${TOKEN}/x"])
def test_a_line_that_no_build_can_install_is_refused_for_a_native_server_too(line: str, images: Any) -> None:
    with pytest.raises(SourceError, match="instance math") as caught:
        images({"math": {"requirement_lines": (line,)}})
    assert line in str(caught.value)


def test_a_native_servers_overrides_are_the_resolvers(images: Any) -> None:
    plain = images({"math": {"requirement_lines": ("tiktoken",)}})["requirements"]
    with_overrides = images({"math": {"requirement_lines": ("tiktoken",), "overrides": ("six==1.16",)}})["requirements"]
    assert (text_of(plain, "overrides.txt"), text_of(with_overrides, "overrides.txt")) == ("", "six==1.16\n")
    assert plain.key != with_overrides.key
    assert plain.lock_name != with_overrides.lock_name


@pytest.mark.parametrize("key", ["apt", "run"])
def test_an_image_as_it_is_takes_no_steps(key: str, four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["compose"] = {"servers": {"math": {"image": "registry.example/judge:3", key: ["jq"]}}}
    config = make_config(four)
    with pytest.raises(SourceError, match=rf"compose\.servers\.math\.{key} is for images of ours, and registry\.example/judge:3 is taken"):
        compile(config, make_sources(config), make_options())

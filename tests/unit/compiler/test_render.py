from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.compiler import compile, render
from gym_compose.compiler.errors import CompileError
from gym_compose.compiler.fragments import parse_fragments

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def rendered(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(sources: dict[str, Any] | None = None, ca: str | None = "/etc/ca.pem", **options: Any) -> dict[str, Any]:
        config = make_config(four)
        chosen = make_options(**options)
        files = render(compile(config, make_sources(config, **(sources or {})), chosen), chosen.assets, chosen.directory, ca_bundle=ca)
        return {file.path: file for file in files}

    return make


def compose(files: dict[str, Any], name: str = "compose.yaml") -> Any:
    return yaml.safe_load(files[name].content)


def test_every_service_is_hardened(rendered: Any) -> None:
    for name, service in compose(rendered())["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["init"] is True
        assert service["user"] == "1000:1000"
        assert service["restart"] == "no"
        assert service["stop_signal"] == "SIGINT"
        assert service["stop_grace_period"] == "10s"
        assert service["mem_limit"] == service["memswap_limit"]
        assert service["pids_limit"] > 0
        assert float(service["cpus"]) > 0
        assert service["tmpfs"] == ["/tmp:mode=1777", "/home/gym:mode=1777"]
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
        assert service["pull_policy"] == "never"
        assert "build" not in service
        assert "privileged" not in service
        assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ()))


def test_only_the_head_has_a_health_check_and_none_has_a_start_interval(rendered: Any) -> None:
    services = compose(rendered())["services"]
    assert [name for name, service in services.items() if "healthcheck" in service] == ["head"]
    assert "start_interval" not in services["head"]["healthcheck"]


def test_only_the_head_is_published_and_only_on_loopback(rendered: Any) -> None:
    services = compose(rendered(head_port=11000))["services"]
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == {
        "head": [{"host_ip": "127.0.0.1", "target": 11001, "published": "11000", "protocol": "tcp"}]
    }


def test_short_dns_timeouts_where_there_is_no_way_out(rendered: Any) -> None:
    services = compose(rendered())["services"]
    assert {name for name, service in services.items() if "dns_opt" in service} == {"math", "math_agent", "math_environment", "driver"}


def test_labels_say_whose_the_container_is(rendered: Any) -> None:
    service = compose(rendered())["services"]["math_agent"]
    digest = service["labels"].pop("gym-compose.slice-sha256")
    assert len(digest) == 64
    assert service["labels"] == {
        "gym-compose.project": "p",
        "gym-compose.role": "server",
        "gym-compose.version": "0.1.0",
        "gym-compose.directory": "/work/.gym/p",
        "gym-compose.instance": "math_agent",
    }


def test_slices_are_mounted_from_files_of_the_project(rendered: Any) -> None:
    files = rendered()
    document = compose(files)
    service = document["services"]["math"]
    assert service["configs"] == [{"source": "slice-math", "target": "/run/gym/slice.json"}]
    assert service["secrets"] == [{"source": "slice-math", "target": "/run/secrets/slice"}]
    for section in ("configs", "secrets"):
        for item in document[section].values():
            assert item["file"].removeprefix("./") in files


def test_secret_halves_are_readable_by_the_services_user_alone(rendered: Any) -> None:
    files = rendered()
    for path, file in files.items():
        if path.endswith("secret.json"):
            assert (file.mode, file.owner) == (0o400, (1000, 1000)), path
        else:
            assert file.owner is None


def test_no_secret_value_stands_outside_the_secret_halves(rendered: Any, four: Any) -> None:
    four["compose"] = {"servers": {"math": {"secrets": ["policy_api_key"]}}}
    holders = set()
    for path, file in rendered({"math": {"requirement_lines": ("numpy",)}}).items():
        if file.content is not None and b"MARKER" in file.content:
            holders.add(path)
    assert holders == {
        f"slices/{name}/secret.json" for name in ("math", "math_agent", "policy_model", "math_environment")
    }  # the session key
    values = json.loads(rendered()["slices/math_agent/secret.json"].content)["values"]
    assert values == []


@pytest.mark.parametrize("text", ["$HOME", "${X}", "$$", "a$", "${", "#", "é\U0001f600", "'\"\\\n\t", "no"])
def test_text_of_a_config_comes_through_compose_as_it_is(text: str, four: Any, rendered: Any, make_options: Any) -> None:
    name = f"m{text}"
    four[name] = {"resources_servers": {"math": {**four["math"]["resources_servers"]["math"]}}}
    services = compose(rendered())["services"]
    found = [service["labels"]["gym-compose.instance"] for service in services.values() if "gym-compose.instance" in service["labels"]]
    assert name in [label.replace("$$", "$") for label in found]


def test_build_yaml_has_a_service_for_each_image_with_its_context(rendered: Any) -> None:
    files = rendered({"math": {"requirement_lines": ("numpy",)}})
    document = compose(files, "build.yaml")
    for name, service in document["services"].items():
        directory = service["build"]["context"].removeprefix("./")
        assert directory == f"images/{name}"
        assert f"{directory}/Dockerfile" in files
        assert service["image"].rsplit("/", 1)[1].replace(":", "-") == name
    by_kind = {name.rsplit("-", 1)[0]: service["build"] for name, service in document["services"].items()}
    assert by_kind["packages"]["secrets"] == ["ca"]
    assert by_kind["packages"]["args"]["PIP_INDEX_URL"] is None
    assert "secrets" not in by_kind["math"]
    assert set(by_kind["math"]["args"]) == {"PARENT", "NATIVE"}
    assert by_kind["base"]["args"] == {"PYTHON_IMAGE": None}
    assert document["secrets"] == {"ca": {"file": "/etc/ca.pem"}}


def test_without_a_ca_bundle_no_build_asks_for_one(rendered: Any) -> None:
    document = compose(rendered(ca=None), "build.yaml")
    assert "secrets" not in document
    assert all("secrets" not in service["build"] for service in document["services"].values())


def test_contexts_hold_listed_files_only(rendered: Any) -> None:
    files = rendered()
    math = sorted(path.split("/", 2)[2] for path in files if path.startswith("images/math-"))
    assert math == ["Dockerfile", "server/resources_servers/math/app.py"]


def test_binds_never_make_a_missing_source(rendered: Any) -> None:
    (volume,) = compose(rendered())["services"]["head"]["volumes"]
    assert volume == {
        "type": "bind",
        "source": "/work/.gym/p/head/published",
        "target": "/run/gym/published",
        "read_only": True,
        "bind": {"create_host_path": False},
    }


def test_the_driver_is_under_a_profile(rendered: Any) -> None:
    assert compose(rendered())["services"]["driver"]["profiles"] == ["driver"]


def test_gpus_and_a_writable_root_when_asked_for(four: Any, rendered: Any) -> None:
    four["compose"] = {"servers": {"math": {"gpus": 2, "writable": True}}}
    service = compose(rendered())["services"]["math"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [{"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}]
    assert "read_only" not in service


def test_the_process_target_has_no_compose_files(rendered: Any) -> None:
    files = rendered({"math": {"requirement_lines": ("numpy",)}}, target="process", head_port=11000)
    assert "compose.yaml" not in files
    assert "build.yaml" not in files
    assert [path for path in files if path.startswith("images/")] == [path for path in files if path.endswith("requirements.txt")]
    assert "slices/math/public.json" in files


def test_plan_json_has_inputs_digests_and_no_value(rendered: Any) -> None:
    plan = json.loads(rendered()["plan.json"].content)
    assert [image["kind"] for image in plan["images"][:4]] == ["base", "packages", "native", "controller"]
    assert all(len(image["key"]) == 64 for image in plan["images"])
    assert [name.rsplit("/", 1)[-1] for name, _ in plan["images"][-1]["inputs"] if name.endswith("app.py")] == ["app.py"]
    services = {service["service"]: service for service in plan["services"]}
    assert services["policy_model"]["secrets"] == ["policy_model.responses_api_models.openai_model.openai_api_key"]
    assert all(service["slice_sha256"] for name, service in services.items() if name != "driver")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"compose/limits.yaml": "server: {memory: 1g}"}, "compose/"),
        ({"compose/limits.yaml": "["}, "compose/limits.yaml"),
        ({"compose/logging.yaml": "- a"}, "compose/logging.yaml"),
        ({"compose/health.yaml": None}, "compose/health.yaml"),
    ],
)
def test_a_broken_fragment_is_named(change: dict[str, str | None], says: str, make_options: Any) -> None:
    texts = {name: text for name, text in {**make_options().assets, **change}.items() if text is not None}
    with pytest.raises(CompileError, match=f"^{says}"):
        parse_fragments(texts)

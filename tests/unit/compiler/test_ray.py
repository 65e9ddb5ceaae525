"""Who gets Ray, from whom, and what the service is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gym_compose.compiler import Deployment, compile
from gym_compose.compiler.errors import CompileError, NameClashError
from gym_compose.compiler.fragments import parse_fragments
from gym_compose.compiler.ray import plan_ray
from gym_compose.compiler.render import compose_text
from gym_compose.config.model import ClassFlags, NemoGymTree

SITE = "/opt/gym/lib/python3.13/site-packages"
PEER = {"runtime": "nemo-gym", "origin": "wheel"}
WANTS, SILENT, NEVER = (ClassFlags(class_name="S", ray_enabled=value) for value in (True, None, False))


@pytest.fixture
def compiled(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(sources: dict[str, Any], *, compose: dict[str, Any] | None = None, **top: Any) -> Deployment:
        four.update(top, compose=compose or {})
        config = make_config(four)
        tree = NemoGymTree("/site", "wheel", "0.7.0", "3.13.14")
        return compile(config, make_sources(config, **sources), make_options(nemo_gym=tree))

    return make


def rays(deployment: Deployment) -> list[str]:
    return [service.name for service in deployment.services if service.role == "ray"]


def config_of(deployment: Deployment, service: str) -> dict[str, Any]:
    found = deployment.service(service).slice
    assert found is not None
    return found.config


@pytest.mark.parametrize(
    ("flags", "mode", "on"),
    [(WANTS, "off", True), (SILENT, "off", False), (SILENT, "peer", True), (NEVER, "peer", False), (NEVER, "off", False)],
)
def test_ray_as_the_class_says(compiled: Any, flags: ClassFlags, mode: str, on: bool) -> None:
    deployment = compiled({**PEER, "math": {"flags": flags}}, compose={"ray": mode})
    service = deployment.service("math")
    assert rays(deployment) == (["ray"] if on else [])
    assert config_of(deployment, "math").get("ray_head_node_address") == ("ray://ray.gym:10001" if on else None)
    assert service.depends_on == (("ray",) if on else ())
    assert (service.memory, service.shm_size) == ("2g", None)
    assert service.slice.environment.get("RAY_AUTH_MODE") == ("disabled" if on else None)
    assert service.slice.ray == mode


def test_only_who_uses_it_waits_for_it_and_the_head_gives_its_address_out(compiled: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": WANTS}})
    for name in ("math_agent", "math_environment", "policy_model"):
        assert deployment.service(name).depends_on == ()
        assert "ray_head_node_address" not in config_of(deployment, name)
    assert deployment.head.config["ray_head_node_address"] == "ray://ray.gym:10001"
    assert [service.role for service in deployment.services][:2] == ["head", "ray"]


def test_a_given_address_is_passed_on_unchanged_and_no_service_is_made(compiled: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": WANTS}}, ray_head_node_address="10.0.0.7:6379")
    assert rays(deployment) == []
    assert config_of(deployment, "math")["ray_head_node_address"] == "10.0.0.7:6379"
    assert "ray_head_node_address" not in config_of(deployment, "math_agent")
    assert any(name == "math" and "over a ray:// address only" in note for name, note in deployment.notes)
    null = compiled({**PEER, "math": {"flags": WANTS}}, ray_head_node_address=None)
    assert rays(null) == ["ray"]


def test_native_servers_get_none_whatever_they_say(compiled: Any) -> None:
    deployment = compiled({"math": {"flags": WANTS}}, compose={"ray": "peer"})
    assert rays(deployment) == []
    assert "ray_head_node_address" not in config_of(deployment, "math")


def test_servers_of_one_image_share_one_and_another_image_has_its_own(compiled: Any) -> None:
    both = {"flags": WANTS}
    shared = compiled({**PEER, "math": both, "simple_agent": both})
    assert rays(shared) == ["ray"]
    service = shared.service("ray")
    assert service.image == shared.service("math").image
    directories = f"{SITE}/resources_servers/math:{SITE}/responses_api_agents/simple_agent"
    assert dict(service.environment)["PYTHONPATH"] == directories
    apart = compiled({**PEER, "math": {**both, "requirement_lines": ("tiktoken",)}, "simple_agent": both})
    assert rays(apart) == ["ray", "ray-2"]
    for ray, user in (("ray", "math"), ("ray-2", "math_agent")):
        assert apart.service(ray).image == apart.service(user).image
        assert config_of(apart, user)["ray_head_node_address"] == f"ray://{ray}.gym:10001"


def test_a_users_server_finds_its_modules_there(compiled: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": WANTS, "origin": "user"}})
    environment = dict(deployment.service("ray").environment)
    assert environment["PYTHONPATH"] == "/srv/gym/resources_servers/math:/srv/gym"
    assert environment["NEMO_GYM_EXTRA_ROOTS"] == "/srv/gym"


def test_the_service_is_hardened_closed_and_says_when_it_is_healthy(compiled: Any, make_options: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": WANTS}})
    text = compose_text(deployment, parse_fragments(make_options().assets), "/d")
    services = yaml.safe_load(text)["services"]
    ray = services["ray"]
    start = ray["command"].index("--") + 1
    assert ray["command"][start : start + 4] == ["/opt/gym/bin/ray", "start", "--head", "--block"]
    assert ray["command"][-1] == "--num-cpus=4"
    assert ray["environment"]["RAY_AUTH_MODE"] == "disabled"
    assert (ray["mem_limit"], ray["memswap_limit"], ray["shm_size"], ray["pids_limit"]) == ("4g", "4g", "1g", 2048)
    assert (ray["read_only"], ray["cap_drop"], ray["init"], ray["user"]) == (True, ["ALL"], True, "1000:1000")
    assert ray["networks"] == {"servers": {"aliases": ["ray.gym"]}}
    assert "ports" not in ray
    assert "secrets" not in ray
    assert f"--ready={ray['healthcheck']['test'][-1]}" in ray["command"]
    assert services["math"]["depends_on"] == {"ray": {"condition": "service_healthy"}}


def test_its_limits_are_the_users(compiled: Any) -> None:
    chosen = {"memory": "16g", "cpus": 8, "pids_limit": 4096, "egress": True, "gpus": 1, "stop_grace_seconds": 60}
    service = compiled({**PEER, "math": {"flags": WANTS}}, compose={"ray_service": chosen}).service("ray")
    assert (service.memory, service.cpus, service.pids_limit, service.gpus, service.stop_grace_seconds) == ("16g", "8.0", 4096, 1, 60.0)
    assert service.command[-1] == "--num-cpus=8"
    assert [attachment.network for attachment in service.attachments] == ["servers", "egress"]
    assert not service.closed


def test_the_plan_says_it(compiled: Any) -> None:
    notes = compiled({**PEER, "math": {"flags": WANTS}, "simple_agent": {"flags": SILENT}}).notes
    assert ("math", "its class asks for Ray: the service ray is its Ray (ray://ray.gym:10001) and is started before it") in notes
    assert any(name == "math_agent" and "does not say whether it wants Ray" in note for name, note in notes)


def test_an_instance_called_ray_clashes_only_where_the_service_is_needed(four: Any, compiled: Any) -> None:
    four["ray"] = four.pop("policy_model")
    four["math_agent"]["responses_api_agents"]["simple_agent"]["model_server"]["name"] = "ray"
    assert rays(compiled(PEER)) == []
    with pytest.raises(NameClashError, match="the Ray service"):
        compiled({**PEER, "math": {"flags": WANTS}})


def test_the_number_of_a_further_service_follows_the_config() -> None:
    plan = plan_ray({"a": WANTS, "b": NEVER, "c": WANTS, "d": WANTS}, "off", None, {"a": "x", "c": "y", "d": "x"}, {})
    assert [(cluster.service, cluster.instances) for cluster in plan.clusters] == [("ray", ("a", "d")), ("ray-2", ("c",))]
    assert (plan.address("b"), plan.address("d")) == (None, "ray://ray.gym:10001")


def test_an_address_that_is_no_text_is_refused() -> None:
    with pytest.raises(CompileError, match=r"ray_head_node_address: \['a'\] is no address"):
        plan_ray({"m": WANTS}, "off", ["a"], {"m": "image"}, {})


@pytest.mark.parametrize(
    ("given", "says"), [("ray://127.0.0.1:10001", True), ("localhost:6379", True), ("ray://head.example:10001", False)]
)
def test_a_loopback_address_is_the_container_itself_which_the_plan_says(given: str, says: bool) -> None:
    note = plan_ray({"m": WANTS}, "off", given, {"m": "image"}, {}).note("m")
    assert note is not None
    assert ("the container itself" in note) is says


def test_a_server_without_a_way_out_is_told_of_the_address(compiled: Any) -> None:
    deployment = compiled({**PEER, "math": {"flags": WANTS}}, ray_head_node_address="ray://head.example:10001")
    assert any(instance == "math" and "no way out (egress: true gives it one)" in note for instance, note in deployment.notes)

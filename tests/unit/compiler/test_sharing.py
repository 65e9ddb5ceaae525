"""Who stands on which image."""

from __future__ import annotations

from typing import Any

from gym_compose.compiler import compile
from gym_compose.compiler.sharing import users


def test_shared_images_name_all_that_stand_on_them(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    config = make_config(four)
    lines = {"requirement_lines": ("numpy",)}
    deployment = compile(config, make_sources(config, math=lines, simple_agent=lines), make_options())
    used = {name.split("/")[1].split(":")[0]: instances for name, instances in users(deployment).items()}
    everybody = ("math", "math_agent", "policy_model", "math_environment")
    assert set(used["base"]) == set(used["packages"]) == set(used["native"]) == set(everybody)
    assert used["requirements"] == used["build"] == ("math", "math_agent")
    assert used["math"] == ("math",)
    assert used["controller"] == ()

"""The profile that an agent's code speaks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.tasks.agent_loop import infer_profile

RUN = '\nif __name__ == "__main__":\n    A.run_webserver()\n'


@pytest.mark.parametrize(
    ("code", "profile"),
    [
        ("class A(Base):\n    async def responses(self, body):\n        return await self.loop(body)\n", "custom-gym-agent-loop"),
        ('class A(Base):\n    def responses(self):\n        """Words."""\n        raise NotImplementedError\n', "external-agent-loop"),
        ("class A(Base):\n    def responses(self):\n        raise NotImplementedError('no')\n", "external-agent-loop"),
        (
            "class A(Base):\n    def responses(self):\n        if self:\n            raise NotImplementedError\n        return 1\n",
            "unknown",
        ),
        ("class A(Base):\n    async def responses(self, body):\n        return await super().responses(body)\n", "unknown"),
        ("class A(Base):\n    def responses(self, body):\n        return super().responses(body)\n", "unknown"),
        ("class A(Base):\n    def responses(self, body):\n        return super().other(body)\n", "custom-gym-agent-loop"),
        ("class A(SimpleAgent):\n    x = 1\n", "custom-gym-verifier"),
        ("class A(app.SimpleAgent):\n    x = 1\n", "custom-gym-verifier"),
        ("class A(Base):\n    x = 1\n", "unknown"),
        ("class B:\n    def responses(self):\n        return 1\n", "unknown"),
        ("class A(\n", "unknown"),
    ],
)
def test_what_the_code_says(tmp_path: Path, code: str, profile: str) -> None:
    file = tmp_path / "app.py"
    file.write_text(code + RUN)
    found = infer_profile("my_agent", file, driver=None)
    assert found.profile == profile
    assert found.evidence


def test_what_decides_before_the_code(tmp_path: Path) -> None:
    assert infer_profile("my_agent", None, driver="m:f").profile == "external-rollout-driver"
    assert infer_profile("simple_agent", None, driver=None).profile == "custom-gym-verifier"
    assert infer_profile("my_agent", None, driver=None).profile == "unknown"
    assert infer_profile("my_agent", tmp_path / "gone.py", driver=None).profile == "unknown"
    two = tmp_path / "app.py"
    two.write_text("class A: pass\nclass B: pass\nA.run_webserver()\nB.run_webserver()\n")
    assert infer_profile("my_agent", two, driver=None).profile == "unknown"

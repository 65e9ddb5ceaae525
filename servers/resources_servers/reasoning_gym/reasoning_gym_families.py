"""The families of the PyPI package ``reasoning-gym``, one at a time.

``import reasoning_gym`` runs the modules of all 106 families with their mathematics and plotting libraries: 114 MB resident and 1 218
modules. One family with its scorer needs 16 MB to 69 MB. So the package is entered from the side: the names of the families are read
from its source text, the package and its categories are put into ``sys.modules`` with their ``__path__`` but without running their
``__init__`` (which only imports all families), and the module of one family is imported below them in the ordinary way. Where that
fails, with another release of the package perhaps, the whole package is imported instead: slower, never wrong.

Measured with reasoning-gym 0.1.25: every family loads this way.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Protocol, cast

from gym_compose.wire.errors import GymComposeError

LOG = logging.getLogger(__name__)
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
PACKAGE = "reasoning_gym"
_REGISTRATION = re.compile(r"^register_dataset\(\s*(?:\"(\w+)\"|(\w+))", re.MULTILINE)
_CONSTANT = re.compile(r"^(\w+)\s*=\s*\"(\w+)\"", re.MULTILINE)


class UnknownFamilyError(GymComposeError):
    """A family that the installed package does not have."""

    exit_code = 3


class Dataset(Protocol):
    """What is used of a family: its entries and its scorer."""

    def __getitem__(self, index: int) -> dict[str, Any]: ...

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float: ...


def find_modules(root: Path) -> dict[str, str]:
    """Family to module (``reasoning_gym.arithmetic.gcd``), from the text of the package below ``root``. Nothing is imported."""
    modules: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "register_dataset(" not in text:
            continue
        constants = dict(_CONSTANT.findall(text))
        for literal, constant in _REGISTRATION.findall(text):
            name = literal or constants.get(constant)
            if name:
                modules[name] = ".".join((PACKAGE, *path.relative_to(root).with_suffix("").parts))
    return modules


class Families:
    """Loads families on first use and keeps one scorer of each."""

    def __init__(self, root: Path | None = None) -> None:
        """``root`` is the package's directory; None: wherever it is installed. Raises UnknownFamilyError where it is not."""
        if root is None:
            spec = importlib.util.find_spec(PACKAGE) if PACKAGE not in sys.modules else sys.modules[PACKAGE].__spec__
            if spec is None or not spec.submodule_search_locations:
                raise UnknownFamilyError("the package reasoning-gym is not installed", hint=f"`pip install -r {REQUIREMENTS}` gives it.")
            root = Path(next(iter(spec.submodule_search_locations)))
        self._root = root
        self._modules = find_modules(root)
        self._scorers: dict[str, Dataset] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._modules))

    def create(self, family: str, **options: Any) -> Dataset:
        """A dataset of ``family``; ``options`` are those of its configuration (``size``, ``seed``, …). Raises UnknownFamilyError."""
        return cast(Dataset, self._registry(family).create_dataset(family, **options))

    def score(self, family: str, answer: str, entry: Mapping[str, Any]) -> float:
        """What the family's own scorer gives ``answer``, from 0 to 1. Raises UnknownFamilyError, and whatever the scorer raises."""
        scorer = self._scorers.get(family)
        if scorer is None:
            scorer = self._scorers[family] = self.create(family)
        return float(scorer.score_answer(answer=answer, entry=dict(entry)))

    def load(self, family: str) -> None:
        """Import the family and make its scorer, so that its first verdict does not wait for it. Raises UnknownFamilyError."""
        if family not in self._scorers:
            self._scorers[family] = self.create(family)

    def _registry(self, family: str) -> Any:
        """The package's ``factory`` module, with ``family`` registered in it."""
        module = self._modules.get(family)
        if module is None:
            raise UnknownFamilyError(f"reasoning-gym has no family {family!r}", hint=f"It has: {', '.join(self)}.")
        try:
            return self._import_alone(module)
        except (ImportError, AttributeError) as error:
            LOG.warning("%s cannot be imported alone (%s); importing the whole package", module, error)
            for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
                del sys.modules[name]
            self._scorers.clear()
            importlib.import_module(PACKAGE)
            return importlib.import_module(f"{PACKAGE}.factory")

    def _import_alone(self, module: str) -> Any:
        parts = module.split(".")
        for depth in range(1, len(parts)):
            self._enter(".".join(parts[:depth]))
        # Its modules import each other in a circle, which resolves only when the curricula come first, as in the package's own order.
        importlib.import_module(f"{PACKAGE}.coaching")
        importlib.import_module(module)
        return importlib.import_module(f"{PACKAGE}.factory")

    def _enter(self, package: str) -> None:
        """Put a package into ``sys.modules`` without running its ``__init__``; leaves one that is there."""
        if package in sys.modules:
            return
        _, _, below = package.partition(".")
        directory = self._root.joinpath(*below.split(".")) if below else self._root
        spec = ModuleSpec(package, None, origin=str(directory / "__init__.py"), is_package=True)
        spec.submodule_search_locations = [str(directory)]
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        parent, _, name = package.rpartition(".")
        if parent:
            setattr(sys.modules[parent], name, module)

"""Command-line overrides to one plain tree: Hydra's grammar, composed onto an empty base (contract-config 2.1).

Hydra's own parser reads the text. What compose does with the result is done here with OmegaConf, because ``hydra.main`` wants to own the
process: it reads sys.argv, configures logging and writes ``outputs/`` with the overrides, API keys included, into the working directory.
A test compares both on generated overrides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from gym_compose.config.errors import OverrideError
from gym_compose.config.masking import MASK
from gym_compose.config.secrets import has_url_credentials, is_secret_name

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_QUOTING = "Put the value into quotes of its own: '{key}=\"{value}\"'."


def compose_overrides(overrides: Sequence[str] | Mapping[str, Any]) -> dict[Any, Any]:
    """The tree that Hydra makes of ``overrides``; a mapping stands for itself. Interpolations stay text.

    ``a=1`` changes what an earlier override added, ``+a=1`` adds, ``++a=1`` does either, ``~a`` removes. Keys of Hydra itself
    (``hydra.run.dir=…``) are read and dropped: nothing here writes a run directory.
    Raises OverrideError naming the token.
    """
    if isinstance(overrides, Mapping):
        return _mapping(overrides)
    config: DictConfig = OmegaConf.create({})
    OmegaConf.set_struct(config, True)
    for token in overrides:
        override = parse_override(token)
        if _is_hydras(override):
            continue
        try:
            _apply(config, override, token)
        except OverrideError as error:
            raise (_discreet(error, token) if _holds_secret(token) else error) from None
    container = OmegaConf.to_container(config, resolve=False)
    assert isinstance(container, dict)
    container.pop("hydra", None)
    return container


def parse_override(token: str) -> Override:
    """One token as Hydra's parser reads it. Raises OverrideError for text that is not in its grammar, and for sweeps."""
    if not isinstance(token, str):
        raise OverrideError("an override is text", token=repr(token))
    override = _parsed(token)
    if isinstance(override, OverrideError):
        if _holds_secret(token):
            # What the grammar says of a value quotes it, in pieces too.
            raise _discreet(OverrideError("its value is not in Hydra's grammar", token=token, hint=override.hint), token)
        raise OverrideError(override.message, token=token, hint=override.hint, details=override.details)
    return override


@lru_cache(maxsize=1024)
def _parsed(token: str) -> Override | OverrideError:
    # Parsing is pure, so a token is parsed once per process; the error is data here, as a cached exception would grow its traceback.
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ValueType
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(token)
        override.value()
    except HydraException as error:
        return OverrideError(_first_line(error) or "it is not in Hydra's grammar", token=token, hint=_quoting_hint(token))
    except RecursionError:
        return OverrideError("it is nested too deeply", token=token)
    except Exception as error:  # noqa: BLE001 - the grammar's functions raise whatever they like; the user sees the token
        return OverrideError(f"it cannot be read: {_first_line(error) or type(error).__name__}", token=token)
    if not override.key_or_group:
        return OverrideError("the key is missing", token=token, hint="Write +key=value.")
    if override.is_sweep_override():
        if override.value_type == ValueType.SIMPLE_CHOICE_SWEEP:
            key, _, value = token.partition("=")
            return OverrideError(
                "a comma at top level means several runs, which this command does not do",
                token=token,
                hint=f"For a list write {key}=[{value}], for text that holds a comma '{key}=\"{value}\"'.",
            )
        return OverrideError("it asks for several runs (a sweep), which this command does not do", token=token)
    return override


def _is_hydras(override: Override) -> bool:
    key = str(override.key_or_group)
    return key == "hydra" or key.startswith(("hydra.", "hydra/"))


def _apply(config: DictConfig, override: Override, token: str) -> None:
    key = str(override.key_or_group)
    if override.package is not None:
        raise OverrideError(f"it selects a config group, and there is no group '{key}'", token=token)
    value = override.value()
    try:
        if override.is_delete():
            _delete(config, key, value, token)
        elif override.is_add():
            there = OmegaConf.select(config, key, throw_on_missing=False)
            if there is not None and not isinstance(value, dict | list):
                raise OverrideError(
                    f"'{key}' was added by an earlier override",
                    token=token,
                    hint=f"Write {token[1:]} to change it, or +{token} for either.",
                )
            OmegaConf.update(config, key, value, merge=True, force_add=True)
        else:
            OmegaConf.update(config, key, value, merge=True, force_add=override.is_force_add())
    except OverrideError:
        raise
    except (ConfigAttributeError, ConfigKeyError) as error:
        if override.is_add() or override.is_force_add() or override.is_delete():
            raise OverrideError(_first_line(error), token=token) from error
        raise OverrideError(
            f"'{key}' is not in struct: no earlier override added it (files are not visible here)",
            token=token,
            hint=f"Write ++{token} to set it over whatever the files say.",
        ) from error
    except (OmegaConfBaseException, AssertionError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        # What OmegaConf.update meets on the way: a scalar or list where the key wants a mapping, an index that is no number.
        raise OverrideError(f"it cannot be merged: {_first_line(error) or type(error).__name__}", token=token) from error


def _delete(config: DictConfig, key: str, value: Any, token: str) -> None:
    there = OmegaConf.select(config, key, throw_on_missing=False)
    if there is None:
        raise OverrideError(
            f"'{key}' cannot be removed: no earlier override added it (files are not visible here)",
            token=token,
            hint="A config file takes a key away with _delete_key.",
        )
    if value is not None and value != there:
        raise OverrideError(f"'{key}' cannot be removed: its value is another one", token=token)
    above, _, last = key.rpartition(".")
    with open_dict(config) if config else nullcontext():
        holder = OmegaConf.select(config, above) if above else config
        del holder[last]


def _mapping(overrides: Mapping[str, Any]) -> dict[Any, Any]:
    try:
        container = OmegaConf.to_container(OmegaConf.create(_plain(overrides)), resolve=False)
    except OmegaConfBaseException as error:
        raise OverrideError(_first_line(error), token=str(error.full_key or "(mapping)")) from error
    assert isinstance(container, dict)
    return container


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _holds_secret(token: str) -> bool:
    """Whether the text names a secret before a ``=`` or ``:``, or holds a URL with credentials."""
    return has_url_credentials(token) or any(is_secret_name(name) for name in re.findall(r"[\w-]+(?=\s*[=:])", token))


def _discreet(error: OverrideError, token: str) -> OverrideError:
    """The same error with everything after the first ``=`` masked."""
    key, _, value = token.partition("=")
    shown = [text.replace(value, MASK) if value and text else text for text in (error.message, error.hint or "")]
    quoted = value.replace('"', '\\"')
    return OverrideError(shown[0], token=f"{key}={MASK}", hint=shown[1].replace(quoted, MASK) if quoted else shown[1])


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""


def _quoting_hint(token: str) -> str | None:
    key, separator, value = token.partition("=")
    if separator and re.search(r"[=()#@!,]", value) and not value.startswith(("'", '"')):
        return _QUOTING.format(key=key, value=value.replace('"', '\\"'))
    return None

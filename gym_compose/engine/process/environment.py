"""What a server process gets of the host's environment: as in a container, nothing that may be a secret (design decision 7).

A process needs more of its host than a container does (where its libraries, caches and proxies are), so it is a list of names that are
let through, minus every name that looks like a credential. What a server needs besides is said in its config
(``compose: servers: NAME: environment``), for both engines alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gym_compose.wire.names import CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE

MARK_VARIABLE = "GYM_COMPOSE_PROCESS"
"""Stands in the environment of a server and all that it starts, so that what it leaves behind can be found."""

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "TERM",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
    }
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "TOKENIZERS_PARALLELISM", "NO_COLOR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"}
)
_PREFIXES = (
    "LC_",
    "XDG_",
    "PYTHON",
    "HF_",
    "GYM_COMPOSE_",
    "NEMO_GYM_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "CUDA_",
    "NVIDIA_",
    "COVERAGE_",
    "COV_CORE_",
)
_SECRET = re.compile(r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTHORIZATION)(?:$|_)")
_NEVER = frozenset({CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE, MARK_VARIABLE, "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"})


def server_environment(
    environ: Mapping[str, str], own: Sequence[tuple[str, str]], *, python_path: Sequence[str], mark: str
) -> dict[str, str]:
    """The environment of one server: let through, then ``own`` (the config's), then ours.

    The caller's PYTHONPATH stays behind ``python_path``: gym_compose itself may be found through it. TOKENIZERS_PARALLELISM is ``false``
    unless set, as the peer has it (contract-config 4.2).
    """
    kept = {name: value for name, value in environ.items() if _passes(name)}
    kept.setdefault("TOKENIZERS_PARALLELISM", "false")
    kept["PYTHONUNBUFFERED"] = "1"
    kept.update(own)
    inherited = [entry for entry in environ.get("PYTHONPATH", "").split(":") if entry]
    path = [*python_path, *inherited]
    if path:
        kept["PYTHONPATH"] = ":".join(path)
    kept[MARK_VARIABLE] = mark
    return kept


def _passes(name: str) -> bool:
    if name in _NEVER or _SECRET.search(name.upper()):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)

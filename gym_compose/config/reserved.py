"""Top-level keys that are never read as a server (contract-config 1.3)."""

from __future__ import annotations

from typing import Final

RESERVED_KEYS: Final = frozenset(
    {
        "config_paths",
        "entrypoint",
        "default_host",
        "head_server",
        "disallowed_ports",
        "head_server_deps",
        "python_version",
        "pip_install_verbose",
        "use_absolute_ip",
        "uv_pip_set_python",
        "skip_venv_if_present",
        "hf_token",
        "ray_head_node_address",
        "port_range_low",
        "port_range_high",
        "dry_run",
        "server_spinup_timeout_seconds",
        "model_endpoint_readiness_timeout_seconds",
        "allow_openai_version_skew",
        "uv_cache_dir",
        "uv_lock_timeout_seconds",
        "uv_venv_dir",
        "results_dir",
        "cache_dir",
        "_inherit_from",
        "_copy",
        "nemo_gym_log_dir",
        "verbose",
        "json",
        "query",
        "component_name",
        "observability_enabled",
        "model_call_capture_dir",
        "token_id_capture",
        "skip_verification",
        "skip_verification_reward",
        "telemetry",
        "allow_unsupported_pairing",
        "environment_server_name",
        "environment_server_routes",
        "environment_routing_mode",
    }
)

"""Runs at the start of every Python that a peer's server starts, uvicorn's workers among them: NeMo Gym finds its config there too.

It costs such a process two modules of the standard library's making; the slice is read when ``nemo_gym`` is imported, if it is.
"""

import os

if "GYM_COMPOSE_SLICE" in os.environ:
    from gym_compose.serving.on_import import on_import

    def _prepare(_module: object) -> None:
        from gym_compose.serving.peer_process import prepare_child

        prepare_child(os.environ)

    on_import("nemo_gym", _prepare)

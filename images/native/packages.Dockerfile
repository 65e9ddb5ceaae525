# The pinned packages of the native runtime, without gym_compose: an edit of gym_compose then redoes neither these nor any server's requirements.
#
# Package indexes come as build arguments and are used in stages that are not kept: an index URL may hold a password, and the history of the
# final stage shows every argument. The CA bundle is a build secret, absent where the host needs none. Byte code is of the "unchecked hash"
# kind: the root is read-only, so a first import could not write it, and file times do not matter.
ARG BASE

FROM ${BASE} AS venv
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY requirements.txt /tmp/requirements.txt
RUN --mount=type=secret,id=ca --mount=type=cache,id=gym-compose-pip,target=/root/.cache/pip,sharing=locked \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    if [ -z "${PIP_INDEX_URL:-}" ]; then unset PIP_INDEX_URL; fi; \
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    && python3 -m venv /opt/gym \
    && /opt/gym/bin/python -m pip install --no-deps --no-compile --only-binary=:all: -r /tmp/requirements.txt \
    && /opt/gym/bin/python -m pip check \
    && /opt/gym/bin/python -m pip uninstall --quiet --yes pip \
    && find /opt/gym -name __pycache__ -prune -exec rm -rf {} + \
    && echo /opt/gym/src > "$(/opt/gym/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gym_compose.pth" \
    && /opt/gym/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gym/lib

FROM ${BASE}
# HOME is a tmpfs at run time; the mode is for a plain `docker run`. USER and LOGNAME answer getpass where the uid has no passwd entry.
RUN mkdir -p /home/gym /srv/gym && chmod 1777 /home/gym
COPY --from=venv /opt/gym /opt/gym
ENV PATH=/opt/gym/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/home/gym USER=gym LOGNAME=gym LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/gym
USER 10001:10001
CMD ["/opt/gym/bin/python"]

# The nemo-gym runtime's packages: NeMo Gym with all that it brings in, at the place of the native runtime's (/opt/gym), without
# gym_compose. With a lock (images/nemo-gym/VERSION.txt) exactly these versions; else what the index gives for requirements.txt.
#
# uv and a compiler come from the build image's /usr, a superset of the base's, mounted for this one step: nothing of them stays. The index
# may hold a password, so its settings are written in a stage that is not kept and mounted too.
ARG BASE
ARG BUILD

FROM ${BUILD} AS build

FROM ${BUILD} AS index
USER 0
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY index.sh /tmp/index.sh
RUN mkdir /index && sh /tmp/index.sh > /index/settings

FROM ${BASE}
ARG NEMO_GYM_PYTHON
ARG GYM_RESOLVE
RUN --mount=type=secret,id=ca --mount=type=cache,id=gym-compose-uv,target=/root/.cache/uv \
    --mount=type=bind,from=build,source=/usr,target=/usr --mount=type=bind,from=build,source=/opt/build,target=/opt/build \
    --mount=type=bind,from=index,source=/index,target=/mnt/index --mount=type=bind,source=.,target=/mnt/context \
    sh /mnt/context/install.sh packages
# HOME is a tmpfs at run time; the mode is for a plain `docker run`. USER and LOGNAME answer getpass where the uid has no passwd entry.
RUN mkdir -p /home/gym /srv/gym && chmod 1777 /home/gym
ENV PATH=/opt/gym/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/home/gym USER=gym LOGNAME=gym LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/gym
USER 10001:10001
CMD ["/opt/gym/bin/python"]

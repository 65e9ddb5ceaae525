# One set of requirement lines above the nemo-gym runtime's packages, shared by every server that asks for the same. The resolver sees what
# is there and NeMo Gym's own requirements together: a line that contradicts the packages below replaces them, in the same environment.
ARG PARENT
ARG BUILD

FROM ${BUILD} AS build

FROM ${BUILD} AS index
USER 0
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY index.sh /tmp/index.sh
RUN mkdir /index && sh /tmp/index.sh > /index/settings

FROM ${PARENT}
ARG NEMO_GYM_PYTHON
USER 0
RUN --mount=type=secret,id=ca --mount=type=cache,id=gym-compose-uv,target=/root/.cache/uv \
    --mount=type=bind,from=build,source=/usr,target=/usr --mount=type=bind,from=build,source=/opt/build,target=/opt/build \
    --mount=type=bind,from=index,source=/index,target=/mnt/index --mount=type=bind,source=.,target=/mnt/context \
    sh /mnt/context/install.sh requirements
USER 10001:10001

# Servers of the NeMo Gym wheel: it ships every server directory, so nothing is added to its packages but gym_compose's launcher.
ARG PARENT
ARG NATIVE

FROM ${NATIVE} AS native

FROM ${PARENT}
COPY --from=native /opt/gym/src /opt/gym/src

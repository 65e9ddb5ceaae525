# Servers of a NeMo Gym checkout: the packages it asks for with its trees at /srv/gym, importable and known as a distribution as an editable
# install would have it, and gym_compose's launcher.
ARG PARENT
ARG NATIVE

FROM ${NATIVE} AS native

FROM ${PARENT} AS files
ARG NEMO_GYM_VERSION
USER 0
COPY tree /srv/gym
RUN /opt/gym/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /srv/gym > /dev/null 2>&1 || true
RUN site=/tree$(/opt/gym/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
    && mkdir -p "$site/nemo_gym-$NEMO_GYM_VERSION.dist-info" \
    && echo /srv/gym > "$site/nemo_gym.pth" \
    && printf 'Metadata-Version: 2.1\nName: nemo-gym\nVersion: %s\n' "$NEMO_GYM_VERSION" > "$site/nemo_gym-$NEMO_GYM_VERSION.dist-info/METADATA" \
    && mv /srv /tree/srv

FROM ${PARENT}
COPY --from=native /opt/gym/src /opt/gym/src
COPY --from=files /tree /

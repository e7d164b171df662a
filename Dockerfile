# The image of Karrot.
#
#   docker build -t karrot .                                the service, which runs next to Burrow
#   docker build -t karrot-pipeline --target pipeline .     the service with Java and Spark, for `karrot pipeline`
#
# The base is an argument, so that a release can name it by digest: --build-arg PYTHON_IMAGE=python@sha256:...
# All other installed packages are pinned by hash in requirements/.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie


# The build tools of both environments. No file of them reaches an image that runs.
FROM ${PYTHON_IMAGE} AS tools
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY tools/with-ca requirements/uv.txt requirements/build.txt ./
# If you reach the package index through a TLS proxy, pass its certificate: --secret id=ca,src=bundle.pem
RUN --mount=type=secret,id=ca \
    python3 -m venv /tools \
    && ./with-ca /tools/bin/pip install -q --disable-pip-version-check --require-hashes -r uv.txt -r build.txt
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md ./
COPY karrot karrot
COPY templates templates
COPY docs/runbooks docs/runbooks
RUN /tools/bin/hatchling build -t wheel -d wheel


FROM tools AS service-environment
COPY requirements/image.txt ./
RUN --mount=type=secret,id=ca \
    python3 -m venv --without-pip /opt/karrot \
    && ./with-ca /tools/bin/uv pip install -q --python /opt/karrot --only-binary :all: --require-hashes -r image.txt \
    && /tools/bin/uv pip install -q --python /opt/karrot --offline --no-deps wheel/*.whl \
    && rm -f /opt/karrot/.lock


# The common base of both images: a user with a number and a name, a data directory, and no installer.
FROM ${PYTHON_IMAGE} AS runtime
RUN groupadd --gid 65532 karrot \
    && useradd --uid 65532 --gid 65532 --home-dir /data --no-create-home --shell /usr/sbin/nologin karrot \
    && install -d -o 65532 -g 65532 -m 0750 /data \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip \
        /usr/lib/python3*/ensurepip /usr/share/python-wheels
ENV PATH=/opt/karrot/bin:$PATH \
    KARROT_DATA_DIR=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /data
# `docker run --read-only` works without more options, because only /data is written to.
VOLUME /data
EXPOSE 5000
STOPSIGNAL SIGTERM
USER 65532:65532
ENTRYPOINT ["karrot"]
CMD ["serve"]


FROM runtime AS service
HEALTHCHECK --interval=30s --timeout=6s --start-period=15s --retries=3 CMD ["karrot", "healthcheck"]
COPY --from=service-environment /opt/karrot /opt/karrot
ARG PYTHON_IMAGE
ARG VERSION=
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="Karrot" \
      org.opencontainers.image.description="Kafka consumer lag for people and for scaling, with or without Burrow" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/Lowess/karrot" \
      org.opencontainers.image.url="https://github.com/Lowess/karrot" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"


# The jars that Spark needs for S3 and Kafka. Maven downloads them, and sha256.txt pins each of them.
FROM ${PYTHON_IMAGE} AS pipeline-jars
# The newest Maven of the distribution's release, as with Java below.
# hadolint ignore=DL3008
RUN apt-get -qq update && apt-get -qq install --no-install-recommends -y maven
WORKDIR /build
COPY tools/with-ca-in-java ./
COPY requirements/spark-jars requirements/spark-jars
RUN --mount=type=secret,id=ca \
    ./with-ca-in-java mvn -B -q -ntp -f requirements/spark-jars -DoutputDirectory=/jars -DincludeScope=runtime \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
WORKDIR /jars
RUN sha256sum --check --quiet --strict /build/requirements/spark-jars/sha256.txt \
    && cut -c 67- /build/requirements/spark-jars/sha256.txt > /build/pinned \
    && LC_ALL=C ls > /build/found \
    && cmp /build/found /build/pinned


FROM tools AS pipeline-environment
COPY requirements/pipeline.txt requirements/spark-build.txt ./
# Spark is published only as source, so the packages that build its wheel are pinned as well.
RUN --mount=type=secret,id=ca \
    python3 -m venv --without-pip /opt/karrot \
    && ./with-ca /tools/bin/uv pip install -q --python /opt/karrot --only-binary :all: --no-binary pyspark \
        --build-constraints spark-build.txt --require-hashes -r pipeline.txt \
    && /tools/bin/uv pip install -q --python /opt/karrot --offline --no-deps wheel/*.whl \
    && rm -f /opt/karrot/.lock
COPY --from=pipeline-jars /jars jars
RUN cp jars/*.jar "$(/opt/karrot/bin/python -c 'import importlib.util as i; print(*i.find_spec("pyspark").submodule_search_locations)')/jars"


FROM runtime AS pipeline
USER 0:0
# The newest Java of the distribution's release. A pinned package version would break when the distribution replaces it.
# hadolint ignore=DL3008
RUN apt-get -qq update \
    && apt-get -qq install --no-install-recommends -y default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
USER 65532:65532
CMD ["pipeline", "--help"]
COPY --from=pipeline-environment /opt/karrot /opt/karrot
ARG PYTHON_IMAGE
ARG VERSION=
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="Karrot with its pipeline" \
      org.opencontainers.image.description="Karrot, Java and Spark: tables of consumer lag from Karrot's archive and Kafka's own offsets" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/Lowess/karrot" \
      org.opencontainers.image.url="https://github.com/Lowess/karrot" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"


# The default target.
FROM service

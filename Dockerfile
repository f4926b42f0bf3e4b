# syntax=docker/dockerfile:1
# hostcore, its built-in plugins and what the service and the engines need; trainers are added by who builds it:
#
#     docker build --build-arg TRAINERS='my-trainer-plugin==1.2.0' -t registry.example/trainer:1.2.0 .
#
# The same image serves (`hostcore serve`), trains (`hostcore run`), and understands the environment of containers made
# for other hosts; see docs/how-to/build-an-image.md. BuildKit is needed, or another builder that knows `RUN --mount`.

# A version, not a moving tag. For a digest: --build-arg PYTHON=python:3.12.12-slim-bookworm@sha256:…
ARG PYTHON=python:3.12.12-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY constraints.txt README.md CHANGELOG.md LICENSE pyproject.toml ./
COPY hookspecs hookspecs
COPY toolkit toolkit
COPY builtin_plugins builtin_plugins
COPY extensions extensions
COPY hostcore hostcore
RUN python -m pip wheel --no-deps --wheel-dir /wheels ./hookspecs ./toolkit ./builtin_plugins ./extensions/* .

FROM ${PYTHON}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="hostcore" \
      org.opencontainers.image.description="A plugin host for machine-learning training jobs, and its job service." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_CONSTRAINT=/opt/hostcore/constraints.txt \
    PIP_BUILD_CONSTRAINT=/opt/hostcore/constraints.txt
COPY constraints.txt /opt/hostcore/constraints.txt
# The largest layer, by far, comes first: a new version of hostcore leaves it as it is.
# Empty: the torch of PyPI, which brings CUDA. For processors alone: https://download.pytorch.org/whl/cpu
ARG TORCH_INDEX=
RUN python -m venv /opt/hostcore \
 && /opt/hostcore/bin/python -m pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch
# What else of hostcore, and of others for it: docs/install.md lists the extras.
ARG EXTRAS=service,postgres,kubernetes,s3,gcs,azure
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    /opt/hostcore/bin/python -m pip install --find-links /wheels \
        "hostcore[$EXTRAS]==$(cd /wheels && echo hostcore-*.whl | cut -d- -f2)"
ARG TRAINERS=
RUN if [ -n "$TRAINERS" ]; then /opt/hostcore/bin/python -m pip install $TRAINERS; fi \
 && /opt/hostcore/bin/python -m pip check
# Containers of the unified trainer API start `/bin/bash -lc 'torchrun … train.py …'`, in the working directory. A login
# shell makes a PATH of its own.
RUN install -d /app \
 && printf 'from hostcore_service.container import main\nmain()\n' > /app/train.py \
 && echo 'PATH=/opt/hostcore/bin:$PATH' > /etc/profile.d/hostcore.sh
# A number, so that Kubernetes can see that it is not root. Group 0 is for clusters that choose the user themselves.
RUN groupadd --gid 10001 hostcore \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin hostcore \
 && install -d -o 10001 -g 0 -m 2775 /runs
# /tmp and /runs are written, and nothing else: the root may be read-only. USER is for users without a name.
ENV PATH=/opt/hostcore/bin:$PATH \
    HOME=/tmp \
    USER=hostcore \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOSTCORE_RUNS_DIR=/runs
USER 10001:10001
WORKDIR /app
# The first process of the container is the supervisor: a stop (SIGTERM) lets it write a checkpoint, for which it needs
# `docker stop --time 60`. There is no HEALTHCHECK: a training container has nothing to ask, and Kubernetes asks itself.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-P", "-m", "hostcore_service.container"]

# hostcore, its built-in plugins and what the service and the engines need; trainers are added by who builds it:
#
#     docker build --build-arg TRAINERS='my-trainer-plugin==1.2.0' -t registry.example/trainer:1.2.0 .
#
# The same image serves (`hostcore serve`), trains (`hostcore run`), and understands the environment of containers made
# for other hosts; see docs/how-to/build-an-image.md.

# A version, not a moving tag. For a digest: --build-arg PYTHON=python:3.12.12-slim-bookworm@sha256:…
ARG PYTHON=python:3.12.12-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/hostcore
WORKDIR /src
COPY constraints.txt README.md CHANGELOG.md LICENSE pyproject.toml ./
COPY hookspecs hookspecs
COPY builtin_plugins builtin_plugins
COPY hostcore hostcore
# Empty: the torch of PyPI, which brings CUDA. For processors alone: https://download.pytorch.org/whl/cpu
ARG TORCH_INDEX=
RUN /opt/hostcore/bin/pip install -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch \
 && /opt/hostcore/bin/pip install -c constraints.txt ./hookspecs ./builtin_plugins '.[service,postgres,kubernetes,s3,gcs,azure]'
ARG TRAINERS=
RUN if [ -n "$TRAINERS" ]; then /opt/hostcore/bin/pip install -c constraints.txt $TRAINERS; fi \
 && /opt/hostcore/bin/pip check

FROM ${PYTHON}
# A number, so that Kubernetes can see that it is not root. Its home is a folder that a read-only root may replace.
RUN useradd --uid 10001 --user-group --home-dir /home/hostcore --create-home --shell /usr/sbin/nologin hostcore \
 && install -d -o 10001 -g 10001 /runs
COPY --from=build /opt/hostcore /opt/hostcore
ENV PATH=/opt/hostcore/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOSTCORE_RUNS_DIR=/runs
USER 10001:10001
WORKDIR /home/hostcore
# The first process of the container is the supervisor: a stop (SIGTERM) lets it write a checkpoint.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-P", "-m", "hostcore.container"]

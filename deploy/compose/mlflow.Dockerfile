# MLflow's server with what it needs for PostgreSQL.
FROM python:3.12.12-slim-bookworm
RUN pip install --no-cache-dir --disable-pip-version-check mlflow==3.17.2 psycopg2-binary==2.9.13 \
 && useradd --uid 10002 --user-group --home-dir /tmp --no-create-home --shell /usr/sbin/nologin mlflow \
 && install -d -o 10002 -g 0 -m 2775 /artifacts
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
WORKDIR /tmp

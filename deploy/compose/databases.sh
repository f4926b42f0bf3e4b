#!/bin/sh
# Run once by the image of PostgreSQL, when its volume is empty: a role and a database for each service, which cannot
# connect to the other's. psql reads the passwords from its environment, so that no list of processes shows them.
set -eu
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" --dbname=postgres <<'SQL'
\getenv hostcore HOSTCORE_DATABASE_PASSWORD
\getenv mlflow MLFLOW_DATABASE_PASSWORD
CREATE ROLE hostcore LOGIN PASSWORD :'hostcore';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow';
CREATE DATABASE hostcore OWNER hostcore;
CREATE DATABASE mlflow OWNER mlflow;
REVOKE CONNECT ON DATABASE hostcore, mlflow FROM PUBLIC;
SQL

//! A private Postgres server for dev, demo and tests.

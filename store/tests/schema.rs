//! The schema of a migrated database, on a private Postgres: what the document names exists as it
//! says, tenants are apart, migrations may race, and the self-check refuses what it must.
//! `UNDOLOG_PG_BIN` chooses the server's binaries.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

#[path = "schema/catalogue.rs"]
mod catalogue;
#[path = "schema/counters.rs"]
mod counters;
#[path = "schema/kit.rs"]
mod kit;
#[path = "schema/limits.rs"]
mod limits;
#[path = "schema/logins.rs"]
mod logins;
#[path = "schema/months.rs"]
mod months;
#[path = "schema/racing.rs"]
mod racing;
#[path = "schema/self_check.rs"]
mod self_check;
#[path = "schema/settings.rs"]
mod settings;
#[path = "schema/tenancy.rs"]
mod tenancy;
#[path = "schema/upgrade.rs"]
mod upgrade;

//! What a connection of ours is set to, whatever the database, the role or the server's file say.
//!
//! `ALTER DATABASE … SET`, `ALTER ROLE … SET` and `postgresql.conf` change what a statement means,
//! where it looks for tables and whether a commit survives. Options that a client names when it
//! connects are stronger than all of them, so what our statements rely on is named there, and a
//! process looks at its start whether it holds: a pooler in between may drop it.

use sqlx::{Executor as _, PgConnection, postgres::PgConnectOptions};

use crate::catalog::Finding;

/// Settings of every connection of ours.
const PINNED: &[(&str, &str)] = &[
    // Where names are looked up, and that policies are not skipped.
    ("search_path", "public,pg_temp"),
    ("row_security", "on"),
    // What a transaction is.
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    // How texts are read and written.
    ("standard_conforming_strings", "on"),
    ("array_nulls", "on"),
    ("bytea_output", "hex"),
    ("IntervalStyle", "postgres"),
    ("quote_all_identifiers", "off"),
    // What a condition means, and that an index answers all of it.
    ("transform_null_equals", "off"),
    ("gin_fuzzy_search_limit", "0"),
    // Short statements are planned as usual and never compiled.
    ("plan_cache_mode", "auto"),
    ("jit", "off"),
    // Nobody closes an idle connection of the pool, or a whole one at the first error.
    ("idle_session_timeout", "0"),
    ("exit_on_error", "off"),
];

/// Settings that the client library names when it connects, as the server calls their values.
const OF_THE_LIBRARY: &[(&str, &str)] =
    &[("DateStyle", "ISO, MDY"), ("TimeZone", "UTC"), ("client_encoding", "UTF8")];

/// A commit that was answered has reached the disk. What is stronger stays.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// The settings of one kind of connection.
#[derive(Debug, Clone)]
pub(crate) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// The pinned ones and these time-outs, in milliseconds.
    pub(crate) fn new(timeouts: &[(&'static str, u64)]) -> Self {
        let pinned = PINNED.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let timeouts = timeouts.iter().map(|(name, ms)| (*name, ms.to_string()));
        Self(pinned.chain(timeouts).collect())
    }

    /// Names them when connecting. The last word of a name wins, so what the URL says is weaker.
    pub(crate) fn on(&self, connect: PgConnectOptions) -> PgConnectOptions {
        if !crate::guard!("settings.pinned") {
            return connect;
        }
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(' ', "\\ ");
        connect.options(self.0.iter().map(|(name, value)| (*name, escaped(value))))
    }

    /// Whether they are in force on this connection.
    pub(crate) async fn check(&self, conn: &mut PgConnection) -> Result<Vec<Finding>, sqlx::Error> {
        let wanted = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        let wanted: Vec<_> = wanted.chain(OF_THE_LIBRARY.iter().copied()).collect();
        let (names, values): (Vec<&str>, Vec<&str>) = wanted.into_iter().unzip();
        let differ: Vec<String> = sqlx::query_scalar(
            "SELECT format('%s is %s instead of %s', w.name, \
                 coalesce(s.setting, 'not set'), w.value) \
             FROM unnest($1::text[], $2::text[]) AS w (name, value) \
             LEFT JOIN pg_settings s ON s.name = w.name \
             WHERE s.setting IS DISTINCT FROM w.value ORDER BY 1",
        )
        .bind(names)
        .bind(values)
        .fetch_all(&mut *conn)
        .await?;
        let mut findings = Vec::new();
        if !differ.is_empty() {
            findings.push(Finding {
                kind: "settings".to_owned(),
                detail: format!(
                    "what was set when connecting is not in force: {}; a pooler that shares \
                     connections between transactions does this: connect to the server directly, \
                     or through a pooler in session mode that passes on `options`",
                    differ.join(", ")
                ),
            });
        }
        let synchronous: String =
            sqlx::query_scalar("SHOW synchronous_commit").fetch_one(conn).await?;
        if !["on", "remote_apply"].contains(&synchronous.as_str()) {
            findings.push(Finding {
                kind: "settings".to_owned(),
                detail: format!("synchronous_commit stays {synchronous}: a commit could be lost"),
            });
        }
        Ok(findings)
    }
}

/// Makes commits of this connection durable when the database or the role set something weaker.
/// This cannot be an option when connecting: it would also weaken `remote_apply`.
pub(crate) async fn make_durable(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    if crate::guard!("settings.durable") {
        conn.execute(DURABLE).await?;
    }
    Ok(())
}

/// What no connection can set for itself: how the server keeps data, and what it stores texts as.
pub(crate) async fn server_findings(conn: &mut PgConnection) -> Result<Vec<Finding>, sqlx::Error> {
    if !crate::guard!("settings.server") {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, String)> =
        sqlx::query_as(include_str!("../sql/settings_server.sql")).fetch_all(conn).await?;
    Ok(rows.into_iter().map(|(kind, detail)| Finding { kind, detail }).collect())
}

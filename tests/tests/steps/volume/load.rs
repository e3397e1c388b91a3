//! Fills a database with what a large installation holds, by COPY.

use futures::StreamExt as _;
use sqlx::{Connection as _, PgConnection};
use undolog_tests::pg::TestDb;

const LOAD: &str = include_str!("load.sql");

/// How many sessions there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    live: u64,
    ended: u64,
}

impl Size {
    /// A twentieth of what is promised, or what the environment says.
    pub(crate) fn wanted() -> Self {
        Self {
            live: from_env("UNDOLOG_VOLUME_LIVE", 5_000),
            ended: from_env("UNDOLOG_VOLUME_ENDED", 50_000),
        }
    }
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number of sessions"))
}

/// Copies the rows in.
pub(crate) async fn load(db: &TestDb, size: Size) {
    let script =
        LOAD.replace("{live}", &size.live.to_string()).replace("{ended}", &size.ended.to_string());
    let mut parts = script.split("\n-- into ");
    let mut from = PgConnection::connect(db.url()).await.expect("connect");
    let mut into = PgConnection::connect(db.url()).await.expect("connect");
    let first = parts.next().expect("what is run once");
    sqlx::raw_sql(first).execute(&mut from).await.expect("the schema of the load");
    // Neither triggers nor foreign keys: the rows fit together as they are.
    sqlx::raw_sql("SET session_replication_role = replica").execute(&mut into).await.expect("set");
    for part in parts {
        let (table, query) = part.split_once('\n').expect("a table and its query");
        copy(&mut from, &mut into, table, query).await;
    }
    sqlx::raw_sql("ANALYZE").execute(&mut into).await.expect("analyze");
    // Index-only scans need the visibility map, as in a database that is looked after.
    sqlx::raw_sql("VACUUM").execute(&mut into).await.expect("vacuum");
}

async fn copy(from: &mut PgConnection, into: &mut PgConnection, table: &str, query: &str) {
    let mut rows = from
        .copy_out_raw(&format!("COPY ({query}) TO STDOUT"))
        .await
        .unwrap_or_else(|error| panic!("{table}: {error}"));
    let mut sink = into
        .copy_in_raw(&format!("COPY {table} FROM STDIN"))
        .await
        .unwrap_or_else(|error| panic!("{table}: {error}"));
    while let Some(chunk) = rows.next().await {
        let chunk = chunk.unwrap_or_else(|error| panic!("{table}: {error}"));
        sink.send(chunk).await.unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    sink.finish().await.unwrap_or_else(|error| panic!("{table}: {error}"));
}

/// Rows that the statements are asked about.
pub(crate) struct Ids(Vec<(&'static str, String)>);

impl Ids {
    pub(crate) async fn read(db: &TestDb) -> Self {
        let mut ids = Vec::new();
        // A session of the large organisation in each state that a statement looks for.
        for (name, what) in [
            ("active", "is_live AND n % 20 = 12"),
            ("walking", "is_live AND n % 10 = 1"),
            ("waiting", "state = 'awaiting_approval'"),
            ("halted", "NOT is_live AND n % 1000 = 7"),
            ("done", "NOT is_live AND n % 10 = 6"),
        ] {
            let row: [String; 6] =
                sqlx::query_as::<_, (String, String, String, String, String, String)>(&format!(
                    "SELECT session_id::text, effect_id::text, began::text, month::text,
                       volume.id(4, n, began)::text, volume.id(3, n, began)::text
                     FROM volume.sessions
                     WHERE {what} AND org_id = '00000000-0000-7000-8000-000000000101'
                     ORDER BY n DESC LIMIT 1"
                ))
                .fetch_one(db.pool())
                .await
                .unwrap_or_else(|error| panic!("a session that is {name}: {error}"))
                .into();
            let names = ["session", "effect", "began", "month", "rollback", "undo"];
            for (field, value) in names.into_iter().zip(row) {
                let key: &'static str = format!("@{name}.{field}").leak();
                ids.push((key, format!("'{value}'")));
            }
        }
        let large: String = sqlx::query_scalar(
            "SELECT array_agg(effect_id ORDER BY step_index)::text FROM undolog_effect_log
             WHERE session_id = '00000000-0000-7000-8000-00000000ba5e'",
        )
        .fetch_one(db.pool())
        .await
        .expect("the effects of the large session");
        ids.extend(untils(db).await);
        let end = |time: &str, digit: char| {
            let id = "00000000-0000-0000-0000-000000000000".replace('0', &digit.to_string());
            format!("'{time}', '{id}'")
        };
        ids.push(("@newest", end("9999-12-31", 'f')));
        ids.push(("@oldest", end("0001-01-01", '0')));
        ids.push(("@large.effects", format!("'{large}'")));
        ids.push(("@large.session", "'00000000-0000-7000-8000-00000000ba5e'".to_owned()));
        Self(ids)
    }

    /// The values of a case with these ids in the place of their names.
    pub(crate) fn put_in(&self, values: &str) -> String {
        self.0.iter().fold(values.to_owned(), |text, (name, id)| text.replace(name, id))
    }
}

/// Where the reading for a page of a list with many rows ends, and what one statement of a bulk
/// verb is about.
async fn untils(db: &TestDb) -> Vec<(&'static str, String)> {
    let org = "org_id = '00000000-0000-7000-8000-000000000101'";
    let letters = format!("undolog_dead_letters WHERE {org} AND closed_at IS");
    let lists = [
        (
            "@open.until",
            format!(
                "created_at, dead_letter_id FROM {letters} NULL \
                 ORDER BY created_at DESC, dead_letter_id DESC"
            ),
        ),
        (
            "@closed.until",
            format!(
                "created_at, dead_letter_id FROM {letters} NOT NULL \
                 ORDER BY created_at DESC, dead_letter_id DESC"
            ),
        ),
        (
            "@unknown.until",
            format!(
                "COALESCE(lost_at, failed_at, executed_at), effect_id FROM undolog_effect_log \
                 WHERE {org} AND (state = 'unknown' OR state = 'failed' \
                   AND outcome = 'maybe_applied') ORDER BY 1, 2"
            ),
        ),
        (
            "@approved.until",
            format!(
                "created_at, approval_request_id FROM undolog_approval_requests \
                 WHERE {org} AND state = 'approved' \
                 ORDER BY created_at DESC, approval_request_id DESC"
            ),
        ),
    ];
    let mut found = Vec::new();
    for (name, sql) in lists {
        let sql = format!(
            "SELECT format('%L, %L', at, id) \
             FROM (SELECT {sql} OFFSET 1000 LIMIT 1) AS one (at, id)"
        );
        let until = sqlx::query_scalar(&sql).fetch_one(db.pool()).await;
        found.push((name, until.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
    let sessions = format!(
        "SELECT quote_literal(array_agg(DISTINCT session_id)::text) FROM (\
         SELECT session_id FROM {letters} NULL \
           AND session_id <> '00000000-0000-7000-8000-00000000ba5f' \
         ORDER BY session_id LIMIT 1000) AS one"
    );
    let sessions = sqlx::query_scalar(&sessions).fetch_one(db.pool()).await.expect("sessions");
    found.push(("@bulk.sessions", sessions));
    found
}

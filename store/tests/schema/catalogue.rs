//! `schema_expected.txt` against the catalogue of a migrated database, name by name. Additions are
//! fine; nothing documented may be missing or differ.

use std::collections::HashMap;

use sqlx::PgConnection;

use crate::kit::{Server, run};

const EXPECTED: &str = include_str!("../schema_expected.txt");
const POLICY: &str = "org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid";

#[tokio::test]
async fn the_catalogue_is_the_documented_one() {
    let (server, _) = Server::migrated("catalogue").await;
    let mut conn = server.connect("postgres").await;
    let actual = Actual::read(&mut conn).await;
    let mut differences = Vec::new();
    let mut table = "";
    let mut facts = 0;
    for line in EXPECTED.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (kind, rest) = line.split_once(' ').unwrap();
        let fields: Vec<&str> = rest.split(" | ").collect();
        if kind == "table" {
            table = rest;
        }
        facts += 1;
        if let Err(why) = actual.holds(kind, table, &fields) {
            differences.push(format!("{table}: {line}\n    {why}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // 5 enums, 11 tables, 122 columns, 1 view and what belongs to them: a parser that skips lines
    // would pass otherwise.
    assert_eq!(facts, 207);
}

#[tokio::test]
async fn the_view_is_the_documented_one_and_runs_as_its_caller() {
    let (server, _) = Server::migrated("view").await;
    let mut conn = server.connect("postgres").await;
    run(&mut conn, include_str!("documented_view.sql")).await;
    let (ours, documented, options): (String, String, Option<Vec<String>>) = sqlx::query_as(
        "SELECT pg_get_viewdef('undolog_active_sessions'::regclass),
                pg_get_viewdef('documented'::regclass),
                (SELECT reloptions FROM pg_class WHERE oid = 'undolog_active_sessions'::regclass)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(ours, documented);
    assert_eq!(options, Some(vec!["security_invoker=true".to_owned()]));
}

#[tokio::test]
async fn each_month_has_its_partition_with_both_indexes() {
    let (server, _) = Server::migrated("partitions").await;
    // Another zone than UTC must not move a bound.
    let mut conn = server.connect("postgres").await;
    run(&mut conn, "SET timezone = 'Pacific/Kiritimati'").await;
    let months: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT to_char(m, 'YYYY_MM'), to_char(m, 'YYYY-MM-DD'),
                to_char(m + interval '1 month', 'YYYY-MM-DD')
         FROM generate_series(-6, 14) AS n,
              LATERAL (SELECT date_trunc('month', now() AT TIME ZONE 'UTC')
                              + make_interval(months => n) AS m) AS month",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    run(&mut conn, "SET timezone = 'UTC'").await;
    let bounds: HashMap<String, String> = sqlx::query_as(
        "SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid)
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'undolog_effect_log'::regclass",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap()
    .into_iter()
    .collect();
    let indexes: HashMap<String, String> = sqlx::query_as(
        "SELECT indexname::text, indexdef FROM pg_indexes WHERE indexname LIKE 'idx\\_vel\\_%'",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap()
    .into_iter()
    .collect();
    assert_eq!((bounds.len(), indexes.len(), months.len()), (21, 42, 21));
    for (tag, from, to) in months {
        let name = format!("undolog_effect_log_{tag}");
        assert_eq!(
            bounds[&name],
            format!("FOR VALUES FROM ('{from} 00:00:00+00') TO ('{to} 00:00:00+00')")
        );
        assert_eq!(
            indexes[&format!("idx_vel_{tag}_brin")],
            format!(
                "CREATE INDEX idx_vel_{tag}_brin ON public.{name} USING brin (executed_at) \
                 WITH (pages_per_range='32')"
            )
        );
        assert_eq!(
            indexes[&format!("idx_vel_{tag}_sig")],
            format!(
                "CREATE UNIQUE INDEX idx_vel_{tag}_sig ON public.{name} USING btree \
                 (call_signature)"
            )
        );
    }
}

#[tokio::test]
async fn every_table_of_ours_is_explained_and_owned_by_the_owner() {
    let (server, _) = Server::migrated("comments").await;
    let bad: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class c
         WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'undolog\\_%'
           AND relkind IN ('r', 'p') AND NOT relispartition
           AND (obj_description(oid, 'pg_class') IS NULL
                OR pg_get_userbyid(relowner) <> 'undolog_owner')",
    )
    .fetch_all(&mut server.connect("postgres").await)
    .await
    .unwrap();
    assert_eq!(bad, Vec::<String>::new());
}

#[tokio::test]
async fn identifiers_are_version_7() {
    let (server, _) = Server::migrated("uuid").await;
    let mut conn = server.connect("postgres").await;
    let (all, distinct, shaped, near_now): (i64, i64, bool, bool) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT id), bool_and(id::text ~
                    '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'),
                bool_and(abs(ms - extract(epoch FROM clock_timestamp()) * 1000) < 60000)
         FROM (SELECT uuidv7_or_random() AS id FROM generate_series(1, 10000)) AS made,
              LATERAL (SELECT ('x' || lpad(substr(replace(id::text, '-', ''), 1, 12), 16, '0'))
                              ::bit(64)::bigint AS ms) AS time",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!((all, distinct, shaped, near_now), (10_000, 10_000, true, true));
    let (native, body): (bool, String) = sqlx::query_as(
        "SELECT to_regprocedure('pg_catalog.uuidv7()') IS NOT NULL,
                pg_get_functiondef('uuidv7_or_random()'::regprocedure)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(native, body.contains("uuidv7()") && !body.contains("gen_random_uuid"), "{body}");
}

type Column = (String, bool, Option<String>);

/// What the catalogue says, in one spelling.
struct Actual {
    enums: HashMap<String, Vec<String>>,
    columns: HashMap<(String, String), Column>,
    constraints: Vec<(String, String, String)>,
    indexes: HashMap<(String, String), String>,
    triggers: HashMap<(String, String), String>,
    policies: HashMap<(String, String), String>,
    views: HashMap<String, Vec<String>>,
}

impl Actual {
    async fn read(conn: &mut PgConnection) -> Self {
        let constraints: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
             FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0",
        )
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        let columns: Vec<(String, String, String, bool, Option<String>)> = sqlx::query_as(
            "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
                    a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
             FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
             WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
               AND a.attnum > 0 AND NOT a.attisdropped",
        )
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        Self {
            enums: grouped(
                conn,
                "SELECT t.typname::text, array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
                 FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid GROUP BY 1",
            )
            .await,
            columns: columns
                .into_iter()
                .map(|(t, c, ty, not_null, default)| ((t, c), (ty, not_null, default)))
                .collect(),
            constraints: constraints.into_iter().map(|(t, n, d)| (t, n, spelling(&d))).collect(),
            indexes: keyed(
                conn,
                "SELECT tablename::text, indexname::text, substring(indexdef FROM ' USING (.*)$')
                 FROM pg_indexes WHERE schemaname = 'public'",
            )
            .await,
            triggers: keyed(
                conn,
                "SELECT tgrelid::regclass::text, tgname::text, pg_get_triggerdef(oid)
                 FROM pg_trigger WHERE NOT tgisinternal",
            )
            .await,
            policies: keyed(
                conn,
                "SELECT tablename::text, policyname::text, concat_ws(' / ', permissive, roles, cmd,
                        qual, with_check) FROM pg_policies WHERE schemaname = 'public'",
            )
            .await,
            views: grouped(
                conn,
                "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
                 FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                 WHERE c.relkind = 'v' AND c.relnamespace = 'public'::regnamespace
                   AND a.attnum > 0 GROUP BY 1",
            )
            .await,
        }
    }

    /// Whether one documented fact is so; the error says what is there instead.
    fn holds(&self, kind: &str, table: &str, fields: &[&str]) -> Result<(), String> {
        let key = (table.to_owned(), fields[0].to_owned());
        match kind {
            "table" => self
                .columns
                .keys()
                .any(|(t, _)| t == table)
                .then_some(())
                .ok_or_else(|| "no such table".to_owned()),
            "enum" => in_order(self.enums.get(fields[0]), fields[1]),
            "view" => in_order(self.views.get(fields[0]), fields[1]),
            "column" => self.column_holds(&key, fields),
            "unnamed" => {
                let wanted = spelling(fields[0]);
                let mine: Vec<&str> = self
                    .constraints
                    .iter()
                    .filter(|(t, _, _)| t == table)
                    .map(|(_, _, d)| d.as_str())
                    .collect();
                mine.contains(&wanted.as_str()).then_some(()).ok_or_else(|| format!("{mine:?}"))
            }
            "constraint" => {
                let found = self
                    .constraints
                    .iter()
                    .find(|(t, n, _)| t == table && n == fields[0])
                    .map(|(_, _, d)| d);
                same(found, &spelling(fields[1]))
            }
            "index" => {
                let mut wanted = format!("{} ({})", fields[1], fields[2]);
                if fields[3] != "-" {
                    wanted = format!("{wanted} WHERE {}", fields[3]);
                }
                same(self.indexes.get(&key), &spelling(&wanted))
            }
            "trigger" => {
                let wanted = spelling(&format!("{} ON public.{table} FOR EACH ROW", fields[1]));
                let found = self.triggers.get(&key);
                found
                    .is_some_and(|d| d.contains(&wanted))
                    .then_some(())
                    .ok_or_else(|| format!("{found:?}"))
            }
            "policy" => {
                let wanted = format!("PERMISSIVE / {{public}} / ALL / {POLICY} / {POLICY}");
                same(self.policies.get(&key), &spelling(&wanted))
            }
            other => Err(format!("a line of an unknown kind: {other}")),
        }
    }

    fn column_holds(&self, key: &(String, String), fields: &[&str]) -> Result<(), String> {
        let (kind, not_null, default) = self.columns.get(key).ok_or("no such column")?;
        let found = format!(
            "{kind} | {} | {}",
            if *not_null { "not null" } else { "null" },
            default.as_deref().map_or("-".to_owned(), spelling)
        );
        let wanted = format!("{} | {} | {}", long_type(fields[1]), fields[2], spelling(fields[3]));
        same(Some(&found), &wanted)
    }
}

fn same(found: Option<&String>, wanted: &str) -> Result<(), String> {
    match found {
        Some(found) if found == wanted => Ok(()),
        found => Err(format!("found {found:?}, documented {wanted:?}")),
    }
}

/// Documented values appear in the documented order; others may stand between or after them.
fn in_order(found: Option<&Vec<String>>, documented: &str) -> Result<(), String> {
    let documented: Vec<&str> = documented.split(", ").collect();
    let found = found.ok_or("not there")?;
    let kept: Vec<&str> =
        found.iter().map(String::as_str).filter(|v| documented.contains(v)).collect();
    if kept == documented { Ok(()) } else { Err(format!("found {found:?}")) }
}

/// One spelling for what people write and what the server prints.
fn spelling(sql: &str) -> String {
    let mut text = sql.replace("!=", "<>").to_lowercase();
    for cast in [
        "::text[]",
        "::uuid[]",
        "::text",
        "::uuid",
        "::jsonb",
        "::undolog_tool_tier",
        "::undolog_effect_state",
        "::undolog_session_state",
        "::undolog_approval_state",
    ] {
        text = text.replace(cast, "");
    }
    for (from, to) in [("= any (array[", "in ("), ("])", ")"), (" asc", ""), ("]", "")] {
        text = text.replace(from, to);
    }
    text = text.replace(['(', ')'], " ").replace(" ,", ",");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn long_type(short: &str) -> &str {
    match short {
        "int" => "integer",
        "bool" => "boolean",
        "timestamptz" => "timestamp with time zone",
        "char(64)" => "character(64)",
        same => same,
    }
}

async fn keyed(conn: &mut PgConnection, sql: &str) -> HashMap<(String, String), String> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(sql).fetch_all(conn).await.unwrap();
    rows.into_iter().map(|(t, n, d)| ((t, n), spelling(&d))).collect()
}

async fn grouped(conn: &mut PgConnection, sql: &str) -> HashMap<String, Vec<String>> {
    sqlx::query_as(sql).fetch_all(conn).await.unwrap().into_iter().collect()
}

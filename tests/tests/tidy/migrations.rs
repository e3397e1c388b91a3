//! Migrations from 0009 on are safe on a database that is in use. A migration is one transaction
//! and the strongest lock that one of its statements takes stands until its end: so none may read
//! or rewrite a table that can be large, and none may take away what the release before still
//! needs. Indexes and the check of old rows are left to `undolog migrate`
//! (`store/src/migrate/wanted.rs`).

use std::collections::BTreeSet;

/// The first migration that this holds for.
const FIRST: &str = "0009";

/// Tables that never hold more than some thousands of rows: settings, registries, keys.
const SMALL: [&str; 14] = [
    "undolog_api_keys",
    "undolog_brakes",
    "undolog_breakers",
    "undolog_cluster",
    "undolog_compensation_registry",
    "undolog_orgs",
    "undolog_pause_all",
    "undolog_pauses",
    "undolog_projects",
    "undolog_proxies",
    "undolog_route_breakers",
    "undolog_schedules",
    "undolog_service",
    "undolog_tool_registry",
];

/// What computes another value for each row and so rewrites the table.
const VOLATILE: [&str; 7] =
    ["clock_timestamp", "random(", "gen_random_uuid", "uuidv7", "nextval", " stored", "serial"];

#[test]
fn migrations_are_safe_on_a_live_database() {
    let mut findings = Vec::new();
    for (name, text) in super::texts(".sql") {
        let Some(file) = name.strip_prefix("migrations/") else { continue };
        if file >= FIRST {
            findings.extend(dangers(&text).into_iter().map(|danger| format!("{name}: {danger}")));
        }
    }
    super::none("migrations that a live database would suffer from", &findings);
}

/// What is wrong with a migration.
fn dangers(sql: &str) -> Vec<String> {
    let mut dangers = Vec::new();
    let mut created: BTreeSet<String> = SMALL.into_iter().map(str::to_owned).collect();
    if sql.lines().next().is_some_and(|line| line.contains("no-transaction")) {
        dangers.push(
            "a migration is one transaction: what cannot be in one, `migrate` does".to_owned(),
        );
    }
    for statement in statements(sql) {
        let words: Vec<&str> = statement.split(' ').collect();
        if let Some(table) = after(&words, &["create", "table"]) {
            created.insert(table.to_owned());
        }
        if let Some(danger) = danger(&statement, &words, &created) {
            let shown: String = statement.chars().take(90).collect();
            dangers.push(format!("{danger}: {shown}"));
        }
    }
    dangers
}

/// The statements in one spelling, those inside of functions and DO blocks too. A bounded UPDATE is
/// marked by the word in a comment above it.
fn statements(sql: &str) -> Vec<String> {
    let mut text = String::new();
    for line in sql.lines() {
        match line.trim().strip_prefix("--") {
            Some(comment) if comment.trim().starts_with("Bounded:") => text.push_str(" bounded "),
            Some(_) => {}
            None => text.push_str(line.split(" -- ").next().unwrap_or_default()),
        }
        text.push('\n');
    }
    let text = without_functions(&text.to_lowercase()).replace(['\'', '"'], " ");
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
    spaced
        .split([';'])
        .flat_map(|part| part.split(" execute format"))
        .flat_map(|part| part.split(" loop\n"))
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .map(|part| part.trim_start_matches("begin ").trim_start_matches("( ").to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// Without the bodies of functions, which run later; a DO block runs now.
fn without_functions(sql: &str) -> String {
    let (mut kept, mut before) = (String::new(), "");
    for (part, text) in sql.split("$$").enumerate() {
        let head = before.rsplit(';').next().unwrap_or_default();
        before = text;
        let is_body = part % 2 == 1 && head.contains("create ") && head.contains(" function ");
        if !is_body {
            kept.push_str(text);
            kept.push_str(" ; ");
        }
    }
    kept
}

/// The name behind these words at the start, past the usual fillers.
fn after<'a>(words: &[&'a str], start: &[&'a str]) -> Option<&'a str> {
    let rest = words.strip_prefix(start)?;
    let fillers = ["if", "not", "exists", "only"];
    rest.iter().find(|word| !fillers.contains(word)).map(|name| name.trim_start_matches("public."))
}

fn danger(statement: &str, words: &[&str], created: &BTreeSet<String>) -> Option<String> {
    let is_new = |table: &str| created.contains(table);
    if statement.starts_with("create index") || statement.starts_with("create unique index") {
        let table = words.iter().skip_while(|word| **word != "on").nth(1)?;
        return (!is_new(table) || words.contains(&"concurrently"))
            .then(|| format!("an index on {table}, which exists: put it into `wanted.rs`"));
    }
    if let Some(table) = after(words, &["alter", "table"]) {
        if is_new(table) {
            return None;
        }
        return actions(statement).iter().find_map(|action| altering(action));
    }
    for (verb, start) in [("update", &["update"][..]), ("delete", &["delete", "from"])] {
        if let Some(table) = after(words, start) {
            return (!is_new(table))
                .then(|| format!("a {verb} of {table} that does not say `-- Bounded: why`"));
        }
    }
    for gone in [
        "drop table",
        "drop index",
        "drop type",
        "drop view",
        "truncate",
        "lock table",
        "reindex",
        "cluster ",
        "vacuum",
    ] {
        if statement.starts_with(gone) {
            return Some(match gone {
                "drop index" => "an index goes through `RETIRED` of `wanted.rs`".to_owned(),
                other => format!("{other}: the release before still runs"),
            });
        }
    }
    None
}

/// The actions of an ALTER TABLE, cut at commas outside of parentheses.
fn actions(statement: &str) -> Vec<String> {
    let mut actions = vec![String::new()];
    let mut depth = 0;
    for word in statement.split(' ') {
        match word {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if word == "," && depth == 0 {
            actions.push(String::new());
        } else if let Some(action) = actions.last_mut() {
            action.push(' ');
            action.push_str(word);
        }
    }
    actions
}

fn altering(action: &str) -> Option<String> {
    let says = |word: &str| action.contains(word);
    let scans =
        [" check ", " references ", " unique", " primary key", " exclude ", " foreign key "];
    let not_valid = says(" not valid") || says(" using index");
    let danger = if says(" validate constraint ") {
        "`migrate` validates afterwards; here it would hold the lock"
    } else if says(" set not null") {
        "SET NOT NULL reads the table"
    } else if (says(" alter ") && says(" type ")) || says(" set data type ") {
        "another type rewrites the table"
    } else if says(" drop column ") || says(" rename ") {
        "the release before still needs the old name"
    } else if says(" set logged") || says(" set unlogged") || says(" set tablespace") {
        "moves the whole table"
    } else if says(" add ") && scans.iter().any(|scan| says(scan)) && !not_valid {
        "a constraint that reads the table: ADD CONSTRAINT … NOT VALID"
    } else if says(" add column ") && VOLATILE.iter().any(|word| says(word)) {
        "a default that differs by row rewrites the table"
    } else if says(" add column ") && says(" not null") && !says(" default ") {
        "NOT NULL without a default fails on older rows"
    } else {
        return None;
    };
    Some(danger.to_owned())
}

#[test]
fn each_danger_is_seen() {
    let dangerous = [
        "CREATE INDEX a ON undolog_sessions (org_id);",
        "CREATE UNIQUE INDEX IF NOT EXISTS a ON undolog_effect_log (org_id);",
        "CREATE INDEX a\n  ON undolog_sessions\n (org_id);",
        "CREATE INDEX CONCURRENTLY a ON undolog_orgs (name);",
        "DO $$ BEGIN CREATE INDEX a ON undolog_sessions (org_id); END $$;",
        "CREATE FUNCTION f() RETURNS int AS $$ SELECT 1 $$; DELETE FROM undolog_sessions;",
        "DO $$ BEGIN EXECUTE format('CREATE INDEX a ON undolog_effect_log_%s (b)', m); END $$;",
        "ALTER TABLE undolog_sessions ADD CONSTRAINT a CHECK (org_id IS NOT NULL);",
        "ALTER TABLE undolog_sessions ADD COLUMN a int, ADD CONSTRAINT b CHECK (a > 0);",
        "ALTER TABLE undolog_sessions ADD COLUMN a int CHECK (a > 0);",
        "ALTER TABLE undolog_sessions ADD COLUMN a uuid REFERENCES undolog_orgs (org_id);",
        "ALTER TABLE undolog_sessions ADD CONSTRAINT b UNIQUE (external_run_id);",
        "ALTER TABLE undolog_sessions ADD COLUMN a timestamptz DEFAULT clock_timestamp();",
        "ALTER TABLE undolog_sessions ADD COLUMN a int GENERATED ALWAYS AS (1) STORED;",
        "ALTER TABLE undolog_sessions ADD COLUMN a int NOT NULL;",
        "ALTER TABLE undolog_sessions ALTER COLUMN agent_name SET NOT NULL;",
        "ALTER TABLE undolog_sessions ALTER COLUMN event_seq TYPE int;",
        "ALTER TABLE undolog_sessions VALIDATE CONSTRAINT a;",
        "ALTER TABLE public.undolog_sessions DROP COLUMN agent_name;",
        "ALTER TABLE undolog_sessions RENAME COLUMN a TO b;",
        "UPDATE undolog_sessions SET lease_ms = 1;",
        "DELETE FROM undolog_sessions;",
        "TRUNCATE undolog_sessions;",
        "DROP INDEX idx_undolog_sessions_org;",
        "DROP TABLE undolog_sessions;",
        "-- no-transaction\nSELECT 1;",
    ];
    for sql in dangerous {
        assert_eq!(dangers(sql).len(), 1, "{sql}: {:?}", dangers(sql));
    }
    let harmless = [
        "CREATE TABLE a (b int CHECK (b > 0)); CREATE INDEX c ON a (b); UPDATE a SET b = 1;",
        "ALTER TABLE undolog_orgs ADD COLUMN a int NOT NULL DEFAULT 1 CHECK (a > 0);",
        "ALTER TABLE undolog_sessions ADD COLUMN a int NOT NULL DEFAULT 1, ADD COLUMN b text;",
        "ALTER TABLE undolog_sessions ADD COLUMN a timestamptz NOT NULL DEFAULT now();",
        "ALTER TABLE undolog_sessions ADD CONSTRAINT a CHECK (lease_ms > 0) NOT VALID;",
        "-- CREATE INDEX a ON undolog_sessions (org_id);",
        "-- Bounded: those of ended partial rollbacks.\nUPDATE undolog_rollbacks SET fence = 1;",
        "INSERT INTO undolog_sessions VALUES (1) ON CONFLICT (a) DO UPDATE SET fence = 1;",
        "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           UPDATE undolog_sessions SET a = 1 WHERE session_id = NEW.b; RETURN NULL; END $$;",
    ];
    for sql in harmless {
        assert_eq!(dangers(sql), Vec::<String>::new(), "{sql}");
    }
}

//! Every statement file is planned by a real Postgres against the migrated schema, as a role that
//! runs it: a column that is gone, a wrong type or a missing grant is heard here.

use std::path::{Path, PathBuf};

use sqlx::{Connection, Executor, PgConnection};
use undolog_tests::pg::TestDb;

pub(crate) fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/sql");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the statements' folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "sql"))
        .collect();
    files.sort();
    files
}

/// Prepares a statement as `statement`; answers the types of its parameters.
pub(crate) async fn prepare(
    conn: &mut PgConnection,
    sql: &str,
) -> Result<Vec<String>, sqlx::Error> {
    let sql = sql.trim_end().trim_end_matches(';');
    conn.execute("DEALLOCATE ALL").await?;
    conn.execute(format!("PREPARE statement AS {sql}").as_str()).await?;
    sqlx::query_scalar(
        "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'statement'",
    )
    .persistent(false)
    .fetch_one(&mut *conn)
    .await
}

/// Plans a statement with nulls for its parameters. EXPLAIN checks the role's rights as well.
async fn plan(conn: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    let nulls = vec!["NULL"; prepare(conn, sql).await?.len()].join(", ");
    let call =
        if nulls.is_empty() { "statement".to_owned() } else { format!("statement({nulls})") };
    conn.execute(format!("EXPLAIN EXECUTE {call}").as_str()).await?;
    Ok(())
}

#[tokio::test]
async fn every_statement_file_is_planned() {
    let db = TestDb::new().await;
    let files = files();
    assert!(files.len() > 20, "the statements are found");
    let mut complaints = Vec::new();
    for file in files {
        let sql = std::fs::read_to_string(&file).expect("a statement");
        let mut errors = Vec::new();
        for role in ["undolog_app", "undolog_worker", "undolog_owner"] {
            let mut conn = PgConnection::connect(db.url()).await.expect("connect");
            conn.execute(format!("SET ROLE {role}").as_str()).await.expect("the role");
            match plan(&mut conn, &sql).await {
                Ok(()) => {
                    errors.clear();
                    break;
                }
                Err(error) => errors.push(format!("{role}: {error}")),
            }
        }
        if !errors.is_empty() {
            complaints.push(format!("{}: {}", file.display(), errors.join("; ")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn the_database_refuses_what_the_core_refuses() {
    use undolog_core::state::{EffectState, SessionState, UndoState};
    let db = TestDb::new().await;
    // The union of the core's table over all events and tiers, as pairs.
    let effects = pairs(EffectState::ALL, |from, to| {
        use undolog_core::{Tier, state::EffectEvent, state::effect::transition};
        EffectEvent::ALL.iter().any(|event| {
            [Tier::Compensable, Tier::Irreversible]
                .iter()
                .any(|tier| transition(Some(from), *event, *tier) == Some(to))
        })
    });
    compare(&db, "undolog_effect_move_ok", "undolog_effect_state", EffectState::ALL, &effects)
        .await;
    let sessions = pairs(SessionState::ALL, |from, to| {
        use undolog_core::state::{SessionEvent, session::transition};
        SessionEvent::ALL.iter().any(|event| transition(Some(from), *event) == Some(to))
    });
    compare(&db, "undolog_session_move_ok", "undolog_session_state", SessionState::ALL, &sessions)
        .await;
    let entries = pairs(UndoState::ALL, |from, to| {
        use undolog_core::state::{UndoEvent, undo::transition};
        UndoEvent::ALL.iter().any(|event| transition(Some(from), *event) == Some(to))
    });
    compare(&db, "undolog_undo_move_ok", "text", UndoState::ALL, &entries).await;
    let approvals = pairs(undolog_core::state::ApprovalState::ALL, |from, to| {
        use undolog_core::state::{ApprovalEvent, approval::transition};
        ApprovalEvent::ALL.iter().any(|event| transition(Some(from), *event) == Some(to))
    });
    let all = undolog_core::state::ApprovalState::ALL;
    compare(&db, "undolog_approval_move_ok", "undolog_approval_state", all, &approvals).await;
}

fn pairs<S: Copy + PartialEq + ToString>(
    all: &[S],
    allowed: impl Fn(S, S) -> bool,
) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for &from in all {
        for &to in all {
            if from != to && allowed(from, to) {
                pairs.push((from.to_string(), to.to_string()));
            }
        }
    }
    pairs
}

async fn compare<S: ToString>(
    db: &TestDb,
    function: &str,
    kind: &str,
    all: &[S],
    core: &[(String, String)],
) {
    let sql = format!("SELECT {function}($1::text::{kind}, $2::text::{kind})");
    for from in all {
        for to in all {
            let (from, to) = (from.to_string(), to.to_string());
            if from == to {
                continue;
            }
            let database: bool = sqlx::query_scalar(&sql)
                .bind(&from)
                .bind(&to)
                .fetch_one(db.pool())
                .await
                .expect(function);
            let core = core.contains(&(from.clone(), to.clone()));
            assert_eq!(database, core, "{function}: {from} to {to}");
        }
    }
}

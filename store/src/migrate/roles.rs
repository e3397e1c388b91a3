//! The four roles, which belong to the whole cluster: two databases may be migrated at once, and an
//! administrator may have made the roles beforehand.

use sqlx::{Executor, FromRow, PgConnection};

use super::{Logins, MigrateError, MigrateReport, session};

/// The role that owns every object of ours; never a runtime login.
const OWNER: &str = "undolog_owner";
/// The role that owns the few functions which look across tenants; nobody logs in as it.
const AUTH: &str = "undolog_auth";

/// Every role that the schema names.
pub const ROLES: [&str; 4] = [OWNER, "undolog_app", "undolog_worker", AUTH];
/// The roles that engine and worker run as.
pub const RUNTIME_ROLES: [&str; 2] = ["undolog_app", "undolog_worker"];

/// Another migration in the cluster may change the same shared row at the same moment.
const SHARED_ROW_TRIES_MAX: u32 = 20;

/// A role as the cluster knows it.
#[derive(Debug, FromRow)]
struct RoleRow {
    rolname: String,
    rolsuper: bool,
    rolbypassrls: bool,
    owns_by_membership: bool,
}

/// The roles that do not exist yet.
pub(super) async fn missing(conn: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, n)
         WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) ORDER BY n",
    )
    .bind(ROLES.as_slice())
    .fetch_all(conn)
    .await
}

/// Makes what is missing: roles, memberships, and the owner's rights in this database.
pub(super) async fn ensure(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    for role in missing(conn).await? {
        // Written out rather than left to defaults, for whoever reads the server's log.
        let statement = format!(
            "CREATE ROLE {role} \
             NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
        );
        if run_shared(conn, &statement, &["42710", "23505"], "create the roles").await? {
            report.roles_created.push(role);
        }
    }
    refuse_powerful(conn).await?;
    ensure_memberships(conn, report).await?;
    ensure_rights(conn, report).await
}

/// A role that sees through row-level security, or may become the one that does, is refused.
async fn refuse_powerful(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let rows: Vec<RoleRow> = sqlx::query_as(
        "SELECT rolname::text, rolsuper, rolbypassrls,
                rolname <> 'undolog_owner' AND NOT rolsuper
                    AND pg_has_role(oid, 'undolog_owner', 'MEMBER') AS owns_by_membership
         FROM pg_roles WHERE rolname = ANY($1)",
    )
    .bind(ROLES.as_slice())
    .fetch_all(conn)
    .await?;
    for row in rows {
        let attribute = if row.rolsuper {
            "SUPERUSER"
        } else if row.rolbypassrls {
            "BYPASSRLS"
        } else if row.owns_by_membership {
            "a member of undolog_owner"
        } else {
            continue;
        };
        return Err(MigrateError::RoleTooPowerful {
            role: row.rolname,
            attribute: attribute.to_owned(),
        });
    }
    Ok(())
}

/// The login must be able to act as the owner, and the owner to hand functions to `undolog_auth`. A
/// login that may also becomes a member of the runtime roles, so that one URL serves a developer
/// through the connection option `role=undolog_app`.
async fn ensure_memberships(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    let login = login(conn).await?;
    if !may_become(conn, &login, OWNER).await? {
        let statement = format!("GRANT {OWNER} TO {}", quote(&login));
        grant(conn, &statement, "act as undolog_owner", report).await?;
    }
    if !may_become(conn, OWNER, AUTH).await? {
        let statement = format!("GRANT {AUTH} TO {OWNER}");
        grant(conn, &statement, "let undolog_owner act as undolog_auth", report).await?;
    }
    for role in RUNTIME_ROLES.into_iter().chain([AUTH]) {
        if may_become(conn, &login, role).await? {
            continue;
        }
        let statement = format!("GRANT {role} TO {}", quote(&login));
        match grant(conn, &statement, "act as a runtime role", report).await {
            Ok(()) => {}
            // Only a convenience: where each role has a login of its own, nobody needs it.
            Err(MigrateError::NeedsAdministrator { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lets the logins of engines and workers act as their roles.
pub(super) async fn let_in(
    conn: &mut PgConnection,
    logins: &Logins,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    for (role, login) in logins.by_role() {
        let exists: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)")
                .bind(login)
                .fetch_one(&mut *conn)
                .await?;
        if !exists {
            return Err(MigrateError::NoLogin { login: login.to_owned() });
        }
        if !may_become(conn, login, role).await? {
            let statement = format!("GRANT {role} TO {}", quote(login));
            grant(conn, &statement, "let a login act as its role", report).await?;
        }
    }
    Ok(())
}

impl Logins {
    fn by_role(&self) -> impl Iterator<Item = (&'static str, &str)> {
        RUNTIME_ROLES
            .into_iter()
            .zip([&self.app, &self.worker])
            .filter_map(|(role, login)| Some((role, login.as_deref()?)))
    }

    /// What an administrator would have to run for them.
    pub(super) fn statements(&self) -> impl Iterator<Item = String> {
        self.by_role().map(|(role, login)| format!("GRANT {role} TO {};", quote(login)))
    }
}

/// `undolog_owner` creates tables in `public`, the schema `apalis` and the trusted extension that
/// apalis wants, and passes its right to use `public` on.
async fn ensure_rights(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    let (database, on_database, on_schema): (String, bool, bool) = sqlx::query_as(
        "SELECT current_database()::text,
                has_database_privilege('undolog_owner', current_database(), 'CREATE'),
                has_schema_privilege('undolog_owner', 'public', 'CREATE WITH GRANT OPTION')
                    AND has_schema_privilege('undolog_owner', 'public', 'USAGE WITH GRANT OPTION')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if !on_database {
        let statement = format!("GRANT CREATE ON DATABASE {} TO {OWNER}", quote(&database));
        grant(conn, &statement, "let undolog_owner create in this database", report).await?;
    }
    if !on_schema {
        let statement =
            format!("GRANT USAGE, CREATE ON SCHEMA public TO {OWNER} WITH GRANT OPTION");
        grant(conn, &statement, "let undolog_owner create in schema public", report).await?;
    }
    Ok(())
}

/// Runs one GRANT of the login's and notes it.
pub(super) async fn grant(
    conn: &mut PgConnection,
    statement: &str,
    reason: &str,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    run_shared(conn, statement, &[], reason).await?;
    report.grants.push(statement.to_owned());
    Ok(())
}

/// Runs a statement on rows that the whole cluster shares. False: somebody else was first (`done`
/// names the codes that say so). A missing right becomes the list of statements that would help.
async fn run_shared(
    conn: &mut PgConnection,
    statement: &str,
    done: &[&str],
    reason: &str,
) -> Result<bool, MigrateError> {
    let mut tries = 1;
    loop {
        let Err(error) = conn.execute(statement).await else {
            return Ok(true);
        };
        if session::code_is(&error, done) {
            return Ok(false);
        }
        // 0LP01: granting to a role that the other side has just made a member of; 42501: no right.
        if session::code_is(&error, &["42501", "0LP01"]) {
            return Err(needs_administrator(conn, reason).await?);
        }
        // XX000 is "tuple concurrently updated", 23505 a membership that appeared meanwhile.
        let raced = session::code_is(&error, &["XX000", "23505", "40P01", "55P03"]);
        if !raced || tries >= SHARED_ROW_TRIES_MAX {
            return Err(error.into());
        }
        tries += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Everything that an administrator would have to run, whatever part of it exists already.
async fn needs_administrator(
    conn: &mut PgConnection,
    reason: &str,
) -> Result<MigrateError, sqlx::Error> {
    let login = login(conn).await?;
    let database: String =
        sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut *conn).await?;
    let mut statements: Vec<String> = missing(conn)
        .await?
        .into_iter()
        .map(|role| format!("CREATE ROLE {role} NOLOGIN;"))
        .collect();
    statements.push(format!("GRANT {OWNER} TO {};", quote(&login)));
    statements.push(format!("GRANT {AUTH} TO {OWNER};"));
    statements.push(format!("GRANT CREATE ON DATABASE {} TO {OWNER};", quote(&database)));
    statements.push(format!("GRANT USAGE, CREATE ON SCHEMA public TO {OWNER} WITH GRANT OPTION;"));
    let shared: bool =
        sqlx::query_scalar("SELECT to_regclass('public._sqlx_migrations') IS NOT NULL")
            .fetch_one(conn)
            .await?;
    if shared {
        statements.push(format!(
            "GRANT SELECT, INSERT, UPDATE ON public._sqlx_migrations TO {OWNER} WITH GRANT OPTION;"
        ));
    }
    Ok(MigrateError::NeedsAdministrator { login, reason: reason.to_owned(), statements })
}

async fn login(conn: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT session_user::text").fetch_one(conn).await
}

/// Whether `member` may `SET ROLE role`. Since PostgreSQL 16 a membership can exist without that
/// right (a role's creator gets such a one), and has a privilege name of its own.
async fn may_become(
    conn: &mut PgConnection,
    member: &str,
    role: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT pg_has_role($1::name, $2::name,
             CASE WHEN current_setting('server_version_num')::int >= 160000
                  THEN 'SET' ELSE 'MEMBER' END)",
    )
    .bind(member)
    .bind(role)
    .fetch_one(conn)
    .await
}

fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_quote_in_a_name_is_doubled() {
        assert_eq!(quote(r#"a"b"#), r#""a""b""#);
    }
}

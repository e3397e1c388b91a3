//! Months to come: `migrate` makes those that are missing, like the ones that are there.

use undolog_store::migrate::{MONTHS_AHEAD, migrate};

use crate::kit::{Server, refusal, run};

/// What a partition is made of, with its month written as a sign.
const MADE_OF: &str = "
    WITH part AS (
        SELECT c.*
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        JOIN pg_class p ON p.oid = i.inhparent
        WHERE c.relname LIKE 'undolog\\_%' AND c.relkind = 'r' AND right(c.relname, 7) = $1
    )
    SELECT replace(line, $1, '#') FROM (
        SELECT format('%s owner %s rls %s %s acl %s options %s', relname, relowner::regrole,
            relrowsecurity, relforcerowsecurity, relacl, reloptions) AS line FROM part
        UNION ALL
        -- An index that comes with the table has whatever name the server gives it.
        SELECT format('%s index %s', part.relname,
            CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = indexrelid)
                THEN regexp_replace(pg_get_indexdef(indexrelid), 'INDEX \\S+ ON', 'INDEX ON')
                ELSE pg_get_indexdef(indexrelid) END)
        FROM part JOIN pg_index ON indrelid = part.oid
        UNION ALL
        SELECT format('%s policy %s %s %s %s %s', part.relname, polname, polcmd, polroles,
            pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
        FROM part JOIN pg_policy ON polrelid = part.oid
        UNION ALL
        SELECT format('%s trigger %s %s', part.relname, tgname, tgenabled)
        FROM part JOIN pg_trigger ON tgrelid = part.oid AND NOT tgisinternal
        UNION ALL
        SELECT format('%s constraint %s', part.relname, pg_get_constraintdef(c.oid))
        FROM part JOIN pg_constraint c ON conrelid = part.oid
        UNION ALL
        SELECT format('%s column %s %s %s %s', part.relname, attname, atttypid::regtype, attnotnull,
            pg_get_expr(adbin, adrelid))
        FROM part JOIN pg_attribute ON attrelid = part.oid AND attnum > 0
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    ) AS lines ORDER BY 1";

async fn made_of(conn: &mut sqlx::PgConnection, tag: &str) -> Vec<String> {
    sqlx::query_scalar(MADE_OF).bind(tag).fetch_all(conn).await.unwrap()
}

async fn tag(conn: &mut sqlx::PgConnection, ahead: i32) -> String {
    sqlx::query_scalar(
        "SELECT to_char(date_trunc('month', now() AT TIME ZONE 'UTC')
             + make_interval(months => $1), 'YYYY_MM')",
    )
    .bind(ahead)
    .fetch_one(conn)
    .await
    .unwrap()
}

#[tokio::test]
async fn missing_months_are_made_like_the_others_by_whoever_comes_first() {
    let (server, report) = Server::migrated("months").await;
    assert_eq!(report.months_made, Vec::<String>::new(), "the first migration makes its own");
    let mut conn = server.connect("postgres").await;
    let (kept, last) = (tag(&mut conn, MONTHS_AHEAD - 3).await, tag(&mut conn, MONTHS_AHEAD).await);
    let documented = made_of(&mut conn, &last).await;
    assert!(documented.len() > 60, "{documented:#?}");
    for ahead in [0, MONTHS_AHEAD - 2, MONTHS_AHEAD - 1, MONTHS_AHEAD] {
        let tag = tag(&mut conn, ahead).await;
        for parent in ["effect_log", "effect_events", "signatures"] {
            run(&mut conn, &format!("DROP TABLE undolog_{parent}_{tag}")).await;
        }
    }
    // A row of a month that is missing is refused by the table itself.
    let insert =
        "INSERT INTO undolog_signatures (session_month, org_id, session_id, call_signature,
        effect_id, step_index) VALUES (now()::date, gen_random_uuid(), gen_random_uuid(), 'x',
        gen_random_uuid(), 0)";
    assert_eq!(refusal(&mut conn, insert).await, "23514");

    let url = server.url("postgres");
    let (one, other) = tokio::join!(migrate(&url), migrate(&url));
    let mut made = [one.unwrap().months_made, other.unwrap().months_made];
    made.sort_by_key(Vec::len);
    assert_eq!((made[0].len(), made[1].len()), (0, 12), "{made:?}");
    assert_eq!(made_of(&mut conn, &last).await, documented);
    assert_eq!(made_of(&mut conn, &kept).await, documented);
    assert_eq!(migrate(&url).await.unwrap().months_made, Vec::<String>::new());
}

//! The database's clock in statements. `clock_timestamp()` may be another one at each row, so the
//! planner can never take it for a bound of an index: a condition on it reads every row. As
//! `(SELECT clock_timestamp())` it is read once and bounds a scan.

/// Statements whose row is found by its key, before its times are looked at.
const BY_KEY: [&str; 5] = [
    "gate_room.sql",
    "key_rotate.sql",
    "schedule_claim.sql",
    "schedules_due.sql",
    "walk_claim.sql",
];

/// Statements that are still to be changed.
const OPEN: [&str; 6] = [
    "probe_claim.sql",
    "probe_open.sql",
    "sweep_due_orgs.sql",
    "sweep_grants.sql",
    "sweep_idle.sql",
    "sweep_sessions.sql",
];

#[test]
fn no_condition_reads_the_clock_for_each_row() {
    let mut findings = Vec::new();
    for (name, text) in super::texts(".sql") {
        let Some(file) = name.strip_prefix("store/sql/") else { continue };
        if BY_KEY.contains(&file) || OPEN.contains(&file) {
            continue;
        }
        findings.extend(conditions(&text).into_iter().map(|line| format!("{name}: {line}")));
    }
    super::none("write (SELECT clock_timestamp())", &findings);
}

/// The clauses that a word can stand in.
#[derive(Clone, Copy, PartialEq)]
enum Clause {
    Condition,
    Other,
}

/// The lines with a clock that is read in a condition and not in a sub-select of its own.
fn conditions(sql: &str) -> Vec<String> {
    let mut clauses = vec![Clause::Other];
    let mut findings = Vec::new();
    for line in sql.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let spaced = line.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
        for word in spaced.split_whitespace() {
            let here = clauses.last().copied().unwrap_or(Clause::Other);
            match word.to_ascii_uppercase().as_str() {
                // What stands in parentheses belongs to the clause around them.
                "(" => clauses.push(here),
                ")" => {
                    clauses.pop();
                }
                "WHERE" | "ON" | "HAVING" => set(&mut clauses, Clause::Condition),
                "SELECT" | "SET" | "VALUES" | "RETURNING" | "FROM" | "ORDER" | "GROUP"
                | "LIMIT" => {
                    set(&mut clauses, Clause::Other);
                }
                "CLOCK_TIMESTAMP" if here == Clause::Condition => {
                    findings.push(line.trim().to_owned());
                }
                _ => {}
            }
        }
    }
    findings
}

fn set(clauses: &mut [Clause], clause: Clause) {
    if let Some(last) = clauses.last_mut() {
        *last = clause;
    }
}

#[test]
fn a_clock_in_a_condition_is_seen() {
    for (sql, is_seen) in [
        ("SELECT a FROM b WHERE c <= clock_timestamp()", true),
        ("SELECT a FROM b WHERE c <= clock_timestamp() - interval '1 day'", true),
        ("SELECT a FROM b JOIN d ON d.c > clock_timestamp()", true),
        ("SELECT a FROM b WHERE f(c, clock_timestamp())", true),
        ("SELECT a FROM b WHERE (c IS NULL OR c <= clock_timestamp())", true),
        ("SELECT a FROM b WHERE c <= (SELECT clock_timestamp())", false),
        ("SELECT clock_timestamp() - c FROM b WHERE c > 1 ORDER BY c", false),
        ("UPDATE b SET c = clock_timestamp() WHERE d = 1 RETURNING clock_timestamp()", false),
        ("INSERT INTO b VALUES (clock_timestamp())", false),
    ] {
        assert_eq!(!conditions(sql).is_empty(), is_seen, "{sql}");
    }
}

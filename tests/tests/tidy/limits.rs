//! A limit that nothing names binds nothing: each one in `core/src/limits.rs` is used by code, or a
//! test compares it with what the database has in its place.

use std::collections::BTreeSet;

const FILE: &str = "core/src/limits.rs";

/// The constants of a text.
fn constants(text: &str) -> Vec<&str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("pub const "));
    names.filter_map(|rest| Some(rest.split_once(':')?.0)).collect()
}

/// The words of a text's code.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')))
}

#[test]
fn every_limit_is_used_or_compared_with_the_database() {
    let mut limits = String::new();
    let mut used = BTreeSet::new();
    for (name, text) in super::texts(".rs") {
        if name == FILE {
            limits = text;
        } else {
            used.extend(words(&text).map(str::to_owned));
        }
    }
    let names = constants(&limits);
    assert!(names.len() > 40, "the limits are found");
    // One that others are computed from is used, too.
    used.extend(
        limits
            .lines()
            .filter_map(|line| line.split_once('='))
            .flat_map(|(_, value)| words(value).map(str::to_owned).collect::<Vec<_>>()),
    );
    let findings: Vec<String> =
        names.into_iter().filter(|name| !used.contains(*name)).map(str::to_owned).collect();
    super::none("limits that nothing names", &findings);
}

#[test]
fn a_limit_that_only_a_comment_names_is_seen() {
    let text = "/// Rows.\npub const ROWS_MAX: u32 = 1;\npub const BYTES_MAX: u64 = 2;\n";
    assert_eq!(constants(text), ["ROWS_MAX", "BYTES_MAX"]);
    let used: Vec<&str> = words("// ROWS_MAX\nlet x = limits::BYTES_MAX;").collect();
    assert!(used.contains(&"BYTES_MAX") && !used.contains(&"ROWS_MAX"), "{used:?}");
}

//! Style and architecture as tests: what a reviewer would otherwise have to look for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/clock.rs"]
mod clock;
#[path = "tidy/limits.rs"]
mod limits;
#[path = "tidy/migrations.rs"]
mod migrations;

/// Longest line of Rust, in characters.
const LINE_CHARS_MAX: usize = 100;
/// Longest Rust file.
const FILE_LINES_MAX: usize = 600;
/// Longest function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// The crates of the workspace and what each may depend on inside it. `tests` may use everything.
const MAY_USE: [(&str, &[&str]); 10] = [
    ("undolog-core", &[]),
    ("undolog-proto", &[]),
    ("undolog-embedded", &[]),
    ("undolog-listen", &["undolog-core"]),
    ("undolog-store", &["undolog-core"]),
    ("undolog-engine", &["undolog-core", "undolog-listen", "undolog-proto", "undolog-store"]),
    ("undolog-egress", &["undolog-core"]),
    ("undolog-workers", &["undolog-core", "undolog-egress", "undolog-listen", "undolog-store"]),
    ("undolog-proxy", &["undolog-core", "undolog-egress", "undolog-listen", "undolog-proto"]),
    (
        "undolog-cli",
        &[
            "undolog-core",
            "undolog-embedded",
            "undolog-engine",
            "undolog-proto",
            "undolog-proxy",
            "undolog-store",
            "undolog-workers",
        ],
    ),
];

/// The only crates that may speak to a database themselves.
const MAY_USE_SQLX: [&str; 2] = ["undolog-store", "undolog-tests"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// Every file that git knows or would take, by its path in the workspace.
fn files() -> Vec<(String, PathBuf)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("run git");
    assert!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    let files: Vec<_> = names
        .lines()
        .map(|name| (name.to_owned(), root().join(name)))
        .filter(|(_, path)| path.is_file())
        .collect();
    assert!(files.len() > 20, "git lists only {} files", files.len());
    files
}

/// The text files with this ending, by name.
fn texts(ending: &str) -> Vec<(String, String)> {
    files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(ending))
        .filter_map(|(name, path)| Some((name, std::fs::read_to_string(path).ok()?)))
        .collect()
}

/// Fails with all findings at once.
fn none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

#[test]
fn rust_lines_and_files_are_short() {
    let mut findings = Vec::new();
    for (name, text) in texts(".rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            let chars = line.chars().count();
            if chars > LINE_CHARS_MAX {
                findings.push(format!("{name}:{number}: {chars} characters"));
            }
        }
    }
    none("too long", &findings);
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for (name, text) in texts(".rs") {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            if !starts_function(line.trim_start()) || line.trim_end().ends_with('}') {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let Some(length) = lines[index..].iter().position(|l| **l == close) else { continue };
            if length >= FUNCTION_LINES_MAX {
                findings.push(format!("{name}:{}: {} lines", index + 1, length + 1));
            }
        }
    }
    none(&format!("functions longer than {FUNCTION_LINES_MAX} lines"), &findings);
}

fn starts_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.by_ref().find(|word| {
        !(word.starts_with("pub") || ["const", "async", "unsafe", "default"].contains(word))
    });
    first == Some("fn")
}

#[test]
fn tests_are_neither_ignored_nor_unfinished() {
    let unwanted = [concat!("#[igno", "re"), concat!("todo", "!("), concat!("unimplemented", "!(")];
    let mut findings = Vec::new();
    for (name, text) in texts(".rs") {
        for word in unwanted.iter().filter(|word| text.contains(**word)) {
            findings.push(format!("{name}: {word}"));
        }
    }
    none("unfinished", &findings);
}

#[test]
fn only_the_store_speaks_sql() {
    let findings: Vec<String> = texts(".rs")
        .into_iter()
        .filter(|(name, _)| !name.starts_with("store/") && !name.starts_with("tests/"))
        .filter(|(_, text)| text.contains("sqlx::"))
        .map(|(name, _)| name)
        .collect();
    none("sqlx outside store", &findings);
}

#[test]
fn the_oracle_shares_no_code_with_what_it_judges() {
    let mut files = 0;
    let mut findings = Vec::new();
    for (name, text) in texts(".rs") {
        if !name.starts_with("tests/tests/oracle/model/") {
            continue;
        }
        files += 1;
        let code = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            if ["undolog_", "crate::", "extern "].iter().any(|word| line.contains(word)) {
                findings.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(files > 10, "the oracle has only {files} files");
    none("the oracle names code outside itself", &findings);
}

#[test]
fn every_sql_file_is_used_and_says_what_it_promises() {
    let store: String = texts(".rs")
        .into_iter()
        .filter(|(name, _)| name.starts_with("store/"))
        .map(|(_, text)| text)
        .collect();
    let mut findings = Vec::new();
    for (name, text) in texts(".sql") {
        if !text.starts_with("-- ") {
            findings.push(format!("{name}: no header"));
        }
        if let Some(file) = name.strip_prefix("store/sql/") {
            let used = store.contains(&format!("sql/{file}\"")) || store.contains(&quoted(file));
            if !used {
                findings.push(format!("{name}: nothing includes it"));
            }
        }
    }
    none("SQL files", &findings);
}

/// How a macro that adds the folder names the file.
fn quoted(file: &str) -> String {
    format!("\"{}\"", file.trim_end_matches(".sql"))
}

#[test]
fn every_environment_variable_is_documented() {
    let documents = ["deploy/undolog.toml", "README.md", "ARCHITECTURE.md"];
    let documented: String = documents
        .iter()
        .filter_map(|name| std::fs::read_to_string(root().join(name)).ok())
        .collect();
    let mut used = BTreeSet::new();
    for (name, text) in texts(".rs").into_iter().chain(texts(".proto")) {
        if !name.starts_with("tests/") {
            used.extend(variables(&text).map(|variable| (variable, name.clone())));
        }
    }
    let findings: Vec<String> = used
        .into_iter()
        .filter(|(variable, _)| !documented.contains(variable.as_str()))
        .map(|(variable, name)| format!("{variable} ({name})"))
        .collect();
    none(&format!("variables that none of {documents:?} mentions"), &findings);
}

/// The quoted `UNDOLOG_…` names of a text.
fn variables(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("\"UNDOLOG_")
        .map(move |(at, _)| text[at + 1..].chars().take_while(|c| is_part(*c)).collect::<String>())
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let unwanted = [
        concat!("/wo", "rk/main"),
        concat!("/wo", "rk/shared"),
        concat!("/wo", "rk/.lib"),
        concat!("/op", "t/pg/"),
        concat!("/tm", "p/team"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
    ];
    let mut findings = Vec::new();
    for (name, path) in files() {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            if unwanted.iter().any(|word| line.contains(word)) {
                findings.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    none("machine paths", &findings);
}

#[test]
fn dependencies_point_one_way() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() >= 7, "only {} packages", packages.len());
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            // What only tests use ships nowhere.
            if dependency["kind"] == "dev" {
                continue;
            }
            let used = dependency["name"].as_str().expect("a name");
            if !may_use(name, used) {
                findings.push(format!("{name} → {used}"));
            }
        }
    }
    none("dependencies against the direction", &findings);
}

fn may_use(package: &str, used: &str) -> bool {
    if used == "sqlx" {
        return MAY_USE_SQLX.contains(&package);
    }
    if !used.starts_with("undolog-") || package == "undolog-tests" {
        return true;
    }
    MAY_USE.iter().any(|(name, allowed)| *name == package && allowed.contains(&used))
}

#[test]
fn the_direction_is_what_the_design_says() {
    assert!(may_use("undolog-engine", "undolog-store"));
    assert!(!may_use("undolog-workers", "undolog-engine"));
    assert!(!may_use("undolog-proxy", "undolog-store"));
    assert!(!may_use("undolog-proxy", "sqlx"));
    assert!(!may_use("undolog-core", "undolog-store"));
    assert!(!may_use("undolog-engine", "sqlx"));
}

//! Documents that say what the code says, checked against the code.

use std::{collections::BTreeSet, path::PathBuf};

use clap::{Arg, Command, CommandFactory as _};
use undolog_cli::{Cli, config};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The options of every subcommand that the environment can set.
fn settings(command: &Command, found: &mut BTreeSet<(String, String)>) {
    let setting = |arg: &Arg| {
        let variable = arg.get_env()?.to_string_lossy().into_owned();
        Some((arg.get_long()?.replace('-', "_"), variable))
    };
    found.extend(command.get_arguments().filter_map(setting));
    for sub in command.get_subcommands() {
        settings(sub, found);
    }
}

#[test]
fn the_manual_names_every_setting_and_its_variable() {
    let manual = read("deploy/undolog.toml");
    let mut found = BTreeSet::new();
    settings(&Cli::command(), &mut found);
    assert!(found.len() > 10, "only {} settings", found.len());
    let missing: Vec<_> = found
        .into_iter()
        .filter(|(key, variable)| {
            // The path of the file itself is no key of it.
            let has_key = key == "config" || manual.contains(&format!("# {key} = "));
            !has_key || !manual.contains(variable.as_str())
        })
        .collect();
    assert!(missing.is_empty(), "deploy/undolog.toml does not explain {missing:?}");
}

#[test]
fn the_manual_is_a_valid_file_also_with_every_example_switched_on() {
    let manual = read("deploy/undolog.toml");
    config::check(&manual).expect("the manual as it is");
    let is_example = |line: &str| {
        let name = line.split('=').next().unwrap_or_default().trim();
        line.contains(" = ") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let switched_on: Vec<&str> = manual
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| is_example(rest)).unwrap_or(line))
        .collect();
    config::check(&switched_on.join("\n")).expect("every example");
}

#[test]
fn the_pictures_of_the_states_are_those_of_the_tables() {
    let page = read("docs/state-machine.md");
    let (_, drawn) = page.split_once("<!-- drawn from the tables -->\n\n").expect("the mark");
    let tables = undolog_core::state::mermaid();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{}{tables}", &page[..page.len() - drawn.len()]);
        std::fs::write(path("docs/state-machine.md"), page).expect("write the page");
        return;
    }
    assert_eq!(drawn, tables, "run this test with UPDATE_DOCS=1 to draw them anew");
}

/// The names between backticks in the second column of the table of invariants.
fn guards(page: &str) -> Vec<String> {
    let table = page.split_once("## What must never happen").expect("the table").1;
    let table = table.split_once("\n## ").expect("the next part").0;
    let columns = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let guards = columns.filter_map(|line| line.split(" | ").nth(1).map(str::to_owned));
    guards
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// All Rust of the workspace's tests.
fn sources(folder: PathBuf, text: &mut String) {
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            sources(path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn every_invariant_names_a_test_that_exists() {
    let guards = guards(&read("ARCHITECTURE.md"));
    assert!(guards.len() > 15, "only {guards:?}");
    let mut text = String::new();
    sources(path("."), &mut text);
    // A guard is a test of ours, or a file of the SDK's.
    let exists = |name: &String| match name.ends_with(".py") {
        true => path(name).is_file(),
        false => text.contains(&format!("fn {name}()")),
    };
    let missing: Vec<&String> = guards.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

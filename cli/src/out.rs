//! What a subcommand prints: tables for people, or JSON.

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::error::CliError;

/// Standard output. A reader that went away ends the command quietly.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    json: bool,
}

impl Out {
    /// Output as JSON, or for people.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether the caller asked for JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes one line.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        let done = stdout
            .write_all(text.as_ref().as_bytes())
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush());
        written(done)
    }

    /// Writes bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
    }

    /// Writes a value as indented JSON.
    pub fn json(&self, value: &impl Serialize) -> Result<(), CliError> {
        self.line(serde_json::to_string_pretty(value).map_err(unserializable)?)
    }

    /// Writes a value as JSON on one line, as a stream's items are.
    pub fn json_line(&self, value: &impl Serialize) -> Result<(), CliError> {
        self.line(serde_json::to_string(value).map_err(unserializable)?)
    }

    /// Writes a table with a line for each row.
    pub fn table(&self, headers: &[&str], rows: Vec<Vec<String>>) -> Result<(), CliError> {
        let mut table = plain_table();
        table.set_header(headers.iter().map(|header| header.to_uppercase()));
        table.add_rows(rows);
        self.trimmed(&table)
    }

    /// Writes a record: a line for each field, empty fields left out.
    pub fn record(&self, fields: Vec<(&str, String)>) -> Result<(), CliError> {
        let mut table = plain_table();
        for (name, value) in fields {
            if !value.is_empty() {
                table.add_row(vec![name.to_owned(), value]);
            }
        }
        self.trimmed(&table)
    }

    fn trimmed(&self, table: &Table) -> Result<(), CliError> {
        for line in table.lines() {
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// A reader that went away is no failure.
fn written(done: io::Result<()>) -> Result<(), CliError> {
    done.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::ReaderGone,
        _ => CliError::Failed(format!("cannot write the output: {error}")),
    })
}

/// Columns apart by spaces, and never wrapped: ids stay whole, and every row is one line.
fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn unserializable(error: serde_json::Error) -> CliError {
    CliError::Failed(format!("cannot write the output as JSON: {error}"))
}

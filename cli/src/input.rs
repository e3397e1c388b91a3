//! What a verb reads: one JSON object or an array of them, from a file or from stdin.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::{json, value::RawValue};

use crate::{error::CliError, out::Out};

/// Where to read from.
#[derive(Debug, Clone, Args)]
pub struct FileArgs {
    /// A JSON file with one object or an array of them; `-` reads stdin.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

impl FileArgs {
    /// Reads and parses every object.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, CliError> {
        let text = self.text()?;
        parse(&text).map_err(|error| CliError::Usage(format!("{}: {error}", self.file.display())))
    }

    /// Reads one JSON value, byte by byte as it stands there.
    pub fn json(&self) -> Result<Vec<u8>, CliError> {
        let text = self.text()?;
        let parsed: Result<Box<RawValue>, _> = serde_json::from_str(text.trim());
        parsed
            .map(|value| value.get().as_bytes().to_vec())
            .map_err(|error| CliError::Usage(format!("{}: {error}", self.file.display())))
    }

    fn text(&self) -> Result<String, CliError> {
        if self.file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| CliError::Usage(format!("cannot read stdin: {error}")))?;
            return Ok(text);
        }
        std::fs::read_to_string(&self.file).map_err(|error| {
            CliError::Usage(format!("cannot read {}: {error}", self.file.display()))
        })
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        serde_json::from_str(text)
    } else {
        Ok(vec![serde_json::from_str(text)?])
    }
}

/// The bytes of an optional JSON field, as they stand in the file.
pub(crate) fn json_bytes(value: Option<Box<RawValue>>) -> Vec<u8> {
    value.map(|value| value.get().as_bytes().to_vec()).unwrap_or_default()
}

/// What is taken out of use, or brought back.
#[derive(Debug, Args)]
pub struct ActiveArgs {
    /// Its name.
    pub name: String,
    /// Only this version; every version if left out.
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
}

impl ActiveArgs {
    /// Says which versions changed.
    pub(crate) fn tell(
        &self,
        changed: &[String],
        left_out: u32,
        is_active: bool,
        out: &Out,
    ) -> Result<(), CliError> {
        if out.is_json() {
            return out.json(&json!({
                "name": self.name, "changed_versions": changed, "versions_left_out": left_out,
                "is_active": is_active,
            }));
        }
        let to = if is_active { "in use" } else { "out of use" };
        if changed.is_empty() {
            return out.line(format!("{} was {to} before", self.name));
        }
        out.line(format!("{} {} is {to} now", self.name, changed.join(", ")))?;
        if left_out == 0 {
            return Ok(());
        }
        out.line(format!("and {left_out} more versions: list shows them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_and_an_array_are_both_read() {
        assert_eq!(parse::<u32>("7").expect("parses"), [7]);
        assert_eq!(parse::<u32>(" [7, 8]").expect("parses"), [7, 8]);
        assert!(parse::<u32>("[7, true]").is_err());
    }

    #[test]
    fn a_json_field_keeps_its_bytes() {
        let raw: Vec<Box<RawValue>> = parse("[{\"n\": 1e400}]").expect("parses");
        let value = raw.into_iter().next();
        assert_eq!(json_bytes(value), b"{\"n\": 1e400}");
        assert!(json_bytes(None).is_empty());
    }
}

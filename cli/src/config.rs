//! Where a setting comes from: flags, then the environment, then the file, then the default.
//!
//! A key of the file is the long option of the same name, with underscores. Only options that the
//! environment can set are settings; the others belong to one invocation. A key at the top holds
//! for every subcommand that has the option; a key in the table of a subcommand holds for that one.
//! The file's values become clap's defaults, so that clap alone knows the order of precedence.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Arg, CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;

/// Why there is no command to run.
#[derive(Debug)]
pub enum ParseError {
    /// A wrong command line, or a question (help, version).
    Clap(clap::Error),
    /// The configuration file cannot be used.
    File(String),
}

impl From<clap::Error> for ParseError {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

/// Parses the command line over the environment and the configuration file.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, ParseError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut command = Cli::command();
    if let Some(path) = config_path(&args) {
        let mut settings = Settings::read(&path).map_err(ParseError::File)?;
        command = settings.apply(command, None);
        settings.refuse_unknown(&path).map_err(ParseError::File)?;
    }
    Ok(Cli::from_arg_matches(&command.try_get_matches_from(args)?)?)
}

/// Whether a file's text could be used: it parses, and every key is a setting.
pub fn check(text: &str) -> Result<(), String> {
    let mut settings = Settings::from_text(text)?;
    settings.apply(Cli::command(), None);
    settings.refuse_unknown(Path::new("the file"))
}

/// The file is needed before clap can parse, so its option is looked for by hand.
fn config_path(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter().skip(1).take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("UNDOLOG_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A key of the file: the subcommand's table, if it stands in one, and its name.
type Key = (Option<String>, String);

/// The values of a file, and which of them found an option.
#[derive(Debug, Default)]
struct Settings {
    values: BTreeMap<Key, Vec<String>>,
    used: BTreeSet<Key>,
}

impl Settings {
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::from_text(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut settings = Self::default();
        for (name, value) in table {
            if let toml::Value::Table(section) = value {
                for (key, value) in section {
                    settings.put(Some(name.clone()), key, &value)?;
                }
            } else {
                settings.put(None, name, &value)?;
            }
        }
        Ok(settings)
    }

    fn put(
        &mut self,
        section: Option<String>,
        key: String,
        value: &toml::Value,
    ) -> Result<(), String> {
        let values = match value {
            toml::Value::Array(items) => items.iter().map(plain).collect::<Option<Vec<_>>>(),
            one => plain(one).map(|text| vec![text]),
        };
        let values = values.ok_or_else(|| format!("{key}: a text, number or yes/no is needed"))?;
        self.values.insert((section, key), values);
        Ok(())
    }

    /// Sets the defaults of a command's options, and of its subcommands'.
    fn apply(&mut self, command: clap::Command, section: Option<&str>) -> clap::Command {
        let names: Vec<String> =
            command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let mut command = command.mut_args(|arg| self.with_default(arg, section));
        for name in names {
            let section = section.unwrap_or(&name).to_owned();
            command = command.mut_subcommand(&name, |sub| self.apply(sub, Some(&section)));
        }
        command
    }

    fn with_default(&mut self, arg: Arg, section: Option<&str>) -> Arg {
        let Some(name) = setting_name(&arg) else { return arg };
        let own = (section.map(str::to_owned), name.clone());
        for key in [own, (None, name)] {
            if let Some(values) = self.values.get(&key) {
                self.used.insert(key);
                return arg.default_values(values.clone());
            }
        }
        arg
    }

    /// A key that no option answers to is a mistake, not a wish for later.
    fn refuse_unknown(&self, path: &Path) -> Result<(), String> {
        let is_unknown = |key: &&Key| !self.used.contains(*key) && !self.is_shadowed(key);
        match self.values.keys().find(is_unknown) {
            None => Ok(()),
            Some((Some(section), key)) => {
                Err(format!("{}: [{section}] has no setting {key}", path.display()))
            }
            Some((None, key)) => Err(format!("{}: there is no setting {key}", path.display())),
        }
    }

    /// A key at the top that every subcommand's own table overrides is known all the same.
    fn is_shadowed(&self, (section, name): &Key) -> bool {
        section.is_none() && self.used.iter().any(|(_, used)| used == name)
    }
}

/// The file's key for an option that is a setting.
fn setting_name(arg: &Arg) -> Option<String> {
    arg.get_env()?;
    arg.get_long().map(|long| long.replace('-', "_"))
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that an option ends with, from a file's text and a command line.
    fn value_of(text: &str, line: &[&str], id: &str) -> Result<String, String> {
        let mut settings = Settings::from_text(text)?;
        let command = settings.apply(Cli::command(), None);
        settings.refuse_unknown(Path::new("undolog.toml"))?;
        let matches = command.try_get_matches_from(line).map_err(|error| error.to_string())?;
        let mut inner = &matches;
        while let Some((_, sub)) = inner.subcommand() {
            inner = sub;
        }
        let raw = inner.get_raw(id).and_then(|mut values| values.next());
        Ok(raw.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default())
    }

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let line = ["undolog", "engine", "--database-url", "postgres://x"];
        let default = value_of("", &line, "listen").expect("parses");
        let file = "[engine]\nlisten = \"127.0.0.1:7\"\n";
        assert_ne!(default, "127.0.0.1:7");
        assert_eq!(value_of(file, &line, "listen").as_deref(), Ok("127.0.0.1:7"));
        let line = [&line[..], &["--listen", "127.0.0.1:8"]].concat();
        assert_eq!(value_of(file, &line, "listen").as_deref(), Ok("127.0.0.1:8"));
    }

    #[test]
    fn a_table_is_stronger_than_the_top_and_reaches_nested_subcommands() {
        let file = "engine_url = \"http://a\"\n[sessions]\nengine_url = \"http://b\"\n";
        let sessions = ["undolog", "sessions", "list"];
        assert_eq!(value_of(file, &sessions, "engine_url").as_deref(), Ok("http://b"));
        let tools = ["undolog", "tools", "list"];
        assert_eq!(value_of(file, &tools, "engine_url").as_deref(), Ok("http://a"));
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let line = ["undolog", "tools", "list"];
        let error = value_of("[engine]\nlistne = \"x\"\n", &line, "engine_url");
        assert_eq!(error, Err("undolog.toml: [engine] has no setting listne".to_owned()));
        let error = value_of("nothing = 1\n", &line, "engine_url");
        assert_eq!(error, Err("undolog.toml: there is no setting nothing".to_owned()));
    }

    #[test]
    fn the_option_is_found_in_both_spellings_and_not_behind_the_dashes() {
        let path =
            |line: &[&str]| config_path(&line.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(path(&["undolog", "--config", "a"]), Some(PathBuf::from("a")));
        assert_eq!(path(&["undolog", "dev", "--config=b"]), Some(PathBuf::from("b")));
        assert_eq!(path(&["undolog", "--", "--config", "c"]), None);
    }
}

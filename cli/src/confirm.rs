//! A question before much is changed at once.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::error::CliError;

/// Goes on when the caller said `--yes`, or says so now. Where nobody can be asked, nothing is
/// changed.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let why = format!("{question}: say --yes, since there is no terminal to ask at");
        return Err(CliError::Usage(why));
    }
    let mut stderr = io::stderr();
    let asked = write!(stderr, "{question}? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let heard = asked.and_then(|()| stdin.lock().read_line(&mut answer));
    heard.map_err(|error| CliError::Failed(format!("cannot ask: {error}")))?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(());
    }
    Err(CliError::Failed("nothing was changed".to_owned()))
}

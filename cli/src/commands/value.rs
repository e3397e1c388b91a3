//! `undolog sessions value`: one field of a row, as it was recorded; and the hint that leads here.

use clap::Args;
use undolog_proto::v1::GetValueRequest;

use crate::{api::Api, error::CliError, out::Out};

/// Hints that are printed; all of them have the same form.
const HINTS_MAX: usize = 20;

/// Which value.
#[derive(Debug, Args)]
pub struct ValueArgs {
    /// effect, undo_entry, next_call, dead_letter, approval or approval_event.
    pub of: String,
    /// The row's id; of a next_call that of its undo entry.
    pub id: String,
    /// The field, as `fields_left_out` names it.
    pub field: String,
}

/// Writes the value, part after part.
pub(super) async fn run(api: &Api, args: ValueArgs, out: &Out) -> Result<(), CliError> {
    let (mut offset, mut digest) = (0, String::new());
    loop {
        let request = GetValueRequest {
            org_id: api.org(),
            of: args.of.clone(),
            id: args.id.clone(),
            field: args.field.clone(),
            offset,
        };
        let answer = api.sessions().get_value(api.request(request)).await?.into_inner();
        if offset > 0 && answer.digest != digest {
            return Err(CliError::Failed("the value changed while it was read".to_owned()));
        }
        out.bytes(&answer.part)?;
        offset += answer.part.len() as u64;
        digest = answer.digest;
        if answer.part.is_empty() || offset >= answer.total_bytes {
            return out.line("");
        }
    }
}

/// Says how what was left out is read.
pub(super) fn hint(commands: &[String], out: &Out) -> Result<(), CliError> {
    if commands.is_empty() {
        return Ok(());
    }
    out.line("\nleft out, because it is too large; read it with")?;
    for command in commands.iter().take(HINTS_MAX) {
        out.line(format!("  {command}"))?;
    }
    match commands.len().saturating_sub(HINTS_MAX) {
        0 => Ok(()),
        more => out.line(format!("  (and {more} more, under the same names)")),
    }
}

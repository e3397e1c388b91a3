//! stub
use crate::{error::CliError, out::Out};
use clap::Args;
/// Arguments.
#[derive(Debug, Args)]
pub struct DevArgs {}
/// Runs.
pub async fn run(_args: DevArgs, _out: &Out) -> Result<(), CliError> {
    Err(CliError::Failed("not yet".to_owned()))
}

//! stub
use crate::{error::CliError, out::Out};
use clap::Args;
/// Arguments.
#[derive(Debug, Args)]
pub struct DemoArgs {}
/// Runs.
pub async fn run(_args: DemoArgs, _out: &Out) -> Result<(), CliError> {
    Err(CliError::Failed("not yet".to_owned()))
}

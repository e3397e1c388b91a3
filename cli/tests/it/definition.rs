//! The command line as a whole.

use clap::CommandFactory as _;
use undolog_cli::Cli;

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

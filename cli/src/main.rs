//! The `undolog` command: everything lives in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    undolog_cli::run()
}

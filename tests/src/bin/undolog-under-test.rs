//! The command `undolog` with crash points and guard switches built in. It dies with the test that
//! started it, so that a killed test leaves nothing behind.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("TEST_DIES_WITH_PARENT").is_some() {
        let kill = Some(rustix::process::Signal::KILL);
        if let Err(error) = rustix::process::set_parent_process_death_signal(kill) {
            eprintln!("this process may outlive its test: {error}");
        }
    }
    undolog_cli::run()
}

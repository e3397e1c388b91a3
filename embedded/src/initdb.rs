//! Makes a new cluster. It is made beside its place and renamed into it, so that a process killed
//! in the middle leaves nothing that looks like a cluster.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::EmbeddedError;
use crate::files::{DataDir, remove_if_there, write_private};
use crate::find::Installation;
use crate::options::Auth;
use crate::user::RunAs;

/// The superuser of every cluster made here.
pub(crate) const SUPERUSER: &str = "postgres";

/// Runs initdb as `user` and puts the finished cluster in its place.
pub(crate) fn initdb(
    dir: &DataDir,
    installation: &Installation,
    user: &RunAs,
    auth: Auth,
    fsync: bool,
) -> Result<(), EmbeddedError> {
    let new = dir.pgdata_new();
    if new.exists() {
        std::fs::remove_dir_all(&new).map_err(EmbeddedError::io("cannot remove", &new))?;
    }
    std::fs::create_dir(&new).map_err(EmbeddedError::io("cannot create", &new))?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o700))
        .map_err(EmbeddedError::io("cannot protect", &new))?;
    user.own(&new)?;

    let password = match auth {
        Auth::Password => Some(random_password(dir)?),
        Auth::Trust => None,
    };
    let mut command = Command::new(installation.program("initdb"));
    // initdb would sync each of about a thousand files by itself, which takes seconds on a busy
    // disk; one sync of the whole file system before the cluster is put in place takes a fraction.
    command.arg("-D").arg(&new).args(["-U", SUPERUSER, "-E", "UTF8", "--no-locale", "--no-sync"]);
    let handover = dir.root().join("password.initdb");
    match &password {
        Some(password) => {
            // initdb opens this file as the server's user, who may not read ours.
            write_private(&handover, password)?;
            user.own(&handover)?;
            command.args(["-A", "scram-sha-256"]).arg("--pwfile").arg(&handover);
        }
        None => {
            command.args(["-A", "trust"]);
        }
    }
    let outcome = run(command, dir, user);
    remove_if_there(&handover)?;
    outcome?;
    if fsync {
        sync(&new)?;
    }

    dir.keep_password(password.as_deref())?;
    std::fs::rename(&new, dir.pgdata()).map_err(EmbeddedError::io("cannot put in place", &new))
}

/// Writes everything of a folder to the disk.
fn sync(folder: &Path) -> Result<(), EmbeddedError> {
    let opened = File::open(folder).map_err(EmbeddedError::io("cannot open", folder))?;
    rustix::fs::syncfs(&opened)
        .map_err(|errno| EmbeddedError::io("cannot sync", folder)(errno.into()))
}

/// Runs initdb and turns its failure into an error that quotes it.
fn run(mut command: Command, dir: &DataDir, user: &RunAs) -> Result<(), EmbeddedError> {
    let program = command.get_program().to_owned();
    clean_environment(&mut command, dir);
    user.apply(&mut command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(EmbeddedError::io("cannot run", program.as_ref()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Err(EmbeddedError::Initdb { data_dir: dir.root().to_owned(), output: text })
}

/// Nothing of our environment may steer the server: `PGDATA`, `PGPORT` and their kin would.
pub(crate) fn clean_environment(command: &mut Command, dir: &DataDir) {
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.env("LC_ALL", "C").env("TZ", "UTC").env("HOME", dir.root()).current_dir(dir.root());
}

fn random_password(dir: &DataDir) -> Result<String, EmbeddedError> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(|error| {
        EmbeddedError::io("no randomness for", dir.root())(std::io::Error::other(error.to_string()))
    })?;
    Ok(hex::encode(bytes))
}

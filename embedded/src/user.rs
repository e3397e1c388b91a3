//! Whom the server runs as: ourselves, or an unprivileged user when we are root.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::EmbeddedError;

/// Users tried in this order when we are root and none is named.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The user that owns the data and runs the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAs {
    /// Its name, for messages.
    pub(crate) name: String,
    /// Its user id.
    pub(crate) uid: u32,
    /// Its primary group.
    pub(crate) gid: u32,
    /// Whether it is another user than ourselves.
    switch: bool,
}

impl RunAs {
    /// Ourselves when unprivileged; as root the named user, else `postgres`, else `nobody`.
    pub(crate) fn choose(wanted: Option<&str>) -> Result<Self, EmbeddedError> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid != 0 {
            let name = std::env::var("USER").unwrap_or_else(|_| uid.to_string());
            return Ok(Self { name, uid, gid, switch: false });
        }
        let names = wanted.map_or(UNPRIVILEGED.to_vec(), |name| vec![name]);
        let mut last = None;
        for name in names {
            match look_up(name) {
                Ok(found) => return Ok(found),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| refused("", "no user was named")))
    }

    /// Makes a command run as this user, without our supplementary groups.
    pub(crate) fn apply(&self, command: &mut Command) {
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
    }

    /// Gives a file or folder to this user.
    pub(crate) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        if !self.switch {
            return Ok(());
        }
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(EmbeddedError::io("cannot give away", path))
    }

    /// Checks that this user may pass every folder from the root down to `target` itself.
    pub(crate) fn may_reach(&self, target: &Path) -> Result<(), EmbeddedError> {
        if !self.switch {
            return Ok(());
        }
        let mut folders: Vec<&Path> = target.ancestors().collect();
        folders.reverse();
        for folder in folders {
            let meta = folder.metadata().map_err(EmbeddedError::io("cannot look at", folder))?;
            if !self.may_pass(meta.uid(), meta.gid(), meta.mode()) {
                return Err(EmbeddedError::Impassable {
                    user: self.name.clone(),
                    blocked_at: folder.to_owned(),
                    target: target.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The kernel's rule: the first class that fits decides, alone.
    fn may_pass(&self, uid: u32, gid: u32, mode: u32) -> bool {
        let bit = if uid == self.uid {
            0o100
        } else if gid == self.gid {
            0o010
        } else {
            0o001
        };
        mode & bit != 0
    }
}

/// Asks the system's user database, which may be more than `/etc/passwd`.
fn look_up(name: &str) -> Result<RunAs, EmbeddedError> {
    let uid = id("-u", name)?;
    let gid = id("-g", name)?;
    if uid == 0 {
        return Err(refused(name, "it is root"));
    }
    Ok(RunAs { name: name.to_owned(), uid, gid, switch: true })
}

/// One number from `id`.
fn id(flag: &str, name: &str) -> Result<u32, EmbeddedError> {
    let output = Command::new("id")
        .args([flag, "--", name])
        .output()
        .map_err(EmbeddedError::io("cannot run", Path::new("id")))?;
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .map_err(|_| refused(name, String::from_utf8_lossy(&output.stderr).trim()))
}

fn refused(name: &str, why: &str) -> EmbeddedError {
    EmbeddedError::User { name: name.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_decides_alone() {
        let user = RunAs { name: "pg".into(), uid: 7, gid: 8, switch: true };
        assert!(user.may_pass(0, 0, 0o755));
        assert!(!user.may_pass(0, 0, 0o700));
        assert!(user.may_pass(7, 0, 0o700));
        assert!(!user.may_pass(7, 0, 0o077), "the owner's own bits count, not the others'");
        assert!(user.may_pass(0, 8, 0o710));
    }

    #[test]
    fn a_user_that_does_not_exist_is_named() {
        let error = look_up("no-such-user-here").expect_err("refused").to_string();
        assert!(error.contains("no-such-user-here"), "{error}");
    }
}

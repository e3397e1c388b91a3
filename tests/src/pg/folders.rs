//! Where the test servers live.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use undolog_embedded::{Installation, find_installation};

/// The folder of the whole workspace.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// The folder of all test servers of one Postgres version, created if need be.
///
/// It lies in the build's target folder. As root the server runs as another user, who may be
/// unable to go there; then it lies in the temporary folder.
pub(crate) fn base() -> PathBuf {
    let root = workspace_root();
    let name = format!("undolog-pg{}", installation().major);
    let base = if everybody_may_pass(root) {
        root.join("target").join(name)
    } else {
        let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        std::env::temp_dir().join(format!("{name}-{}", &hash[..8]))
    };
    std::fs::create_dir_all(&base).unwrap_or_else(|e| panic!("create {}: {e}", base.display()));
    base
}

/// The Postgres that this run tests with.
pub(crate) fn installation() -> Installation {
    find_installation(None, None).unwrap_or_else(|error| panic!("{error}"))
}

fn everybody_may_pass(folder: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    folder.ancestors().all(|dir| dir.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

/// Waits for an exclusive lock among all test processes; it ends when the file is dropped.
pub(crate) fn lock(path: &Path) -> File {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .unwrap_or_else(|error| panic!("lock {}: {error}", path.display()));
    file
}

/// Makes a folder that everybody may enter, whatever the umask.
pub(crate) fn open_folder(path: &Path) {
    let made = std::fs::create_dir_all(path)
        .and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)));
    made.unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
}

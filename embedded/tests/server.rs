//! The private server, seen from outside: a real Postgres is started in every test.
//! Which one is chosen by `UNDOLOG_PG_BIN`, or found on the machine.

#![expect(clippy::unwrap_used)]

mod wire;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use undolog_embedded::{Auth, Cluster, ClusterOptions, EmbeddedError, running};
use wire::{ask, greeting};

/// A folder of its own that the server's user may pass, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("undolog-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}

fn quick(folder: &Folder) -> ClusterOptions {
    ClusterOptions::new(folder.0.join("data")).auth(Auth::Trust).fsync(false)
}

fn owner_uid(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).unwrap().uid()
}

fn is_root() -> bool {
    owner_uid("/proc/self") == 0
}

#[test]
fn a_restart_keeps_the_data_and_the_address() {
    let folder = Folder::new("restart");
    let cluster = quick(&folder).start().unwrap();
    let port = cluster.port();
    ask(port, "CREATE TABLE kept AS SELECT 42 AS answer").unwrap();
    cluster.stop().unwrap();
    assert!(greeting(port, "postgres").is_err(), "the server still answers after stop");

    let cluster = quick(&folder).start().unwrap();
    assert_eq!(cluster.port(), port);
    assert_eq!(ask(port, "SELECT answer FROM kept").unwrap(), ["42"]);
}

#[test]
fn dropping_it_stops_the_server() {
    let folder = Folder::new("drop");
    let cluster = quick(&folder).start().unwrap();
    let (port, pid) = (cluster.port(), cluster.pid().unwrap());
    assert_eq!(running(cluster.data_dir()).unwrap().unwrap().pid, pid);
    drop(cluster);
    assert!(greeting(port, "postgres").is_err());
    assert_eq!(running(&folder.0.join("data")).unwrap(), None);
}

#[test]
fn a_folder_in_use_is_refused_with_the_holder() {
    let folder = Folder::new("in-use");
    let cluster = quick(&folder).start().unwrap();
    let error = quick(&folder).start().unwrap_err();
    assert!(matches!(error, EmbeddedError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    assert_eq!(ask(cluster.port(), "SELECT 1").unwrap(), ["1"], "the holder's server suffered");
}

#[test]
fn a_server_left_behind_is_stopped_and_replaced() {
    let folder = Folder::new("orphan");
    let first = quick(&folder).start().unwrap();
    ask(first.port(), "CREATE TABLE kept AS SELECT 1 AS n").unwrap();
    let orphan = first.detach().unwrap();
    let left = running(&folder.0.join("data")).unwrap().unwrap();
    assert_eq!(left.pid, orphan);

    let second = quick(&folder).start().unwrap();
    assert_ne!(second.pid(), Some(orphan));
    assert_eq!(ask(second.port(), "SELECT n FROM kept").unwrap(), ["1"]);
}

#[test]
fn a_pid_file_that_names_a_stranger_does_not_stop_the_start() {
    let folder = Folder::new("stale");
    quick(&folder).start().unwrap().stop().unwrap();
    let stale = folder.0.join("data/pgdata/postmaster.pid");
    let server_uid = owner_uid(stale.parent().unwrap());
    // The server takes only processes of its own user for another postmaster.
    let mut command = std::process::Command::new("sleep");
    command.arg("60");
    if is_root() {
        command.uid(server_uid);
    }
    let mut stranger = command.spawn().unwrap();
    let text = format!("{}\n/elsewhere\n1\n1\n\n127.0.0.1\n1 1\nready   \n", stranger.id());
    std::fs::write(&stale, text).unwrap();
    std::os::unix::fs::chown(&stale, Some(server_uid), None).unwrap();
    let outcome = quick(&folder).start();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let cluster = outcome.unwrap();
    assert_eq!(ask(cluster.port(), "SELECT 1").unwrap(), ["1"]);
}

#[test]
fn a_crashed_server_replays_what_was_committed() {
    let folder = Folder::new("crash");
    let mut cluster = ClusterOptions::new(folder.0.join("data")).auth(Auth::Trust).start().unwrap();
    ask(cluster.port(), "CREATE TABLE kept AS SELECT 7 AS n").unwrap();
    cluster.crash_and_restart().unwrap();
    assert!(cluster.is_running());
    assert_eq!(ask(cluster.port(), "SELECT n FROM kept").unwrap(), ["7"]);
}

#[test]
fn the_password_is_private_and_needed() {
    let folder = Folder::new("password");
    let cluster = ClusterOptions::new(folder.0.join("data")).fsync(false).start().unwrap();
    assert_eq!(greeting(cluster.port(), "postgres").unwrap(), 10, "SASL is not asked for");
    let file = cluster.data_dir().join("password");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let password = std::fs::read_to_string(&file).unwrap();
    assert!(cluster.url("x").contains(password.trim()));
    assert!(!folder.0.join("data/password.initdb").exists());
    let mode = std::fs::metadata(folder.0.join("data/pgdata")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_server_has_its_own_process_group_and_is_never_root() {
    let folder = Folder::new("group");
    let cluster = quick(&folder).start().unwrap();
    let pid = cluster.pid().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group: u32 =
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(group, pid, "Ctrl-C would reach the server before the engine has drained");
    assert_ne!(owner_uid(format!("/proc/{pid}")), 0);
}

#[test]
fn a_folder_that_the_server_may_not_pass_is_named() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("impassable");
    let closed = folder.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = ClusterOptions::new(closed.join("data")).start().unwrap_err();
    assert!(matches!(&error, EmbeddedError::Impassable { .. }), "{error}");
    assert!(error.to_string().contains(&closed.display().to_string()), "{error}");
}

#[test]
fn a_taken_port_fails_with_the_servers_own_words() {
    let folder = Folder::new("port");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = quick(&folder).port(port).start().unwrap_err();
    assert!(matches!(error, EmbeddedError::Start { .. }), "{error}");
    assert!(error.to_string().contains("could not bind"), "{error}");
    let again: Result<Cluster, _> = quick(&folder).start();
    assert!(again.is_ok(), "the failed start left the folder unusable");
}

#[test]
fn a_cluster_of_another_version_is_refused_by_name() {
    let folder = Folder::new("version");
    quick(&folder).start().unwrap().stop().unwrap();
    std::fs::write(folder.0.join("data/pgdata/PG_VERSION"), "99\n").unwrap();
    let error = quick(&folder).start().unwrap_err();
    assert!(matches!(error, EmbeddedError::WrongVersion { .. }), "{error}");
    assert!(error.to_string().contains("made by PostgreSQL 99"), "{error}");
}

#[test]
fn a_removed_folder_takes_its_left_behind_server_with_it() {
    let folder = Folder::new("remove");
    let cluster = quick(&folder).start().unwrap();
    let data_dir = cluster.data_dir().to_owned();
    assert!(undolog_embedded::remove(&data_dir).is_err(), "a folder in use was removed");
    let port = cluster.port();
    cluster.detach().unwrap();
    undolog_embedded::remove(&data_dir).unwrap();
    assert!(greeting(port, "postgres").is_err(), "the server outlived its folder");
    assert!(!data_dir.exists());
    undolog_embedded::remove(&data_dir).unwrap();
}

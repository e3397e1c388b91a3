//! Python clients: generated from the `.proto` file by Python's own tools, our own SDK, and the
//! independent HTTP client of the package index, each in an environment of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::pg::{lock, workspace_root};

/// Runs a script of `tests/python` and returns the JSON that it prints. Its first argument is the
/// folder of the generated modules.
pub async fn run(script: &str, arguments: &[&str]) -> Value {
    let script = workspace_root().join("tests/python").join(script);
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let task = tokio::task::spawn_blocking(move || {
        let environment = environment();
        let mut command = Command::new(environment.join("bin/python"));
        command.arg(script).arg(environment.join("stubs")).args(arguments);
        serde_json::from_str(&output(&mut command)).expect("the script prints JSON")
    });
    task.await.expect("the script succeeds")
}

/// Runs a script of `tests/python` with the independent client `undolog-sdk` and returns the JSON
/// that it prints.
pub async fn run_with_independent_client(script: &str, arguments: &[&str]) -> Value {
    let script = workspace_root().join("tests/python").join(script);
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let task = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(independent_client().join("bin/python"));
        command.arg(script).args(arguments);
        serde_json::from_str(&output(&mut command)).expect("the script prints JSON")
    });
    task.await.expect("the script succeeds")
}

/// The Python of an environment in which `undolog_sdk` is the package of this checkout.
pub fn with_sdk() -> PathBuf {
    let package = workspace_root().join("sdk/python");
    let editable = ["--editable".as_ref(), package.as_os_str()];
    made("sdk-editable", &package.join("pyproject.toml"), &editable).join("bin/python")
}

/// A virtual environment with the independent client.
fn independent_client() -> PathBuf {
    let requirements = workspace_root().join("tests/python/independent-client.txt");
    made("pypi", &requirements, &["-r".as_ref(), requirements.as_os_str()])
}

/// A virtual environment with what pip is asked for; made again when the file changes.
fn made(name: &str, of: &Path, asked: &[&OsStr]) -> PathBuf {
    let root = workspace_root();
    let text = std::fs::read(of).expect("read what the environment is made of");
    let path = root.join(format!("target/undolog-{name}-{}", &blake3::hash(&text).to_hex()[..12]));
    let _one_at_a_time = lock(&root.join("target/undolog-py.lock"));
    let finished = path.join("finished");
    if !finished.exists() {
        let _an_unfinished_one = std::fs::remove_dir_all(&path);
        output(Command::new("python3").args(["-m", "venv"]).arg(&path));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        output(Command::new(path.join("bin/python")).args(pip).args(asked));
        std::fs::write(&finished, "").expect("finish the environment");
    }
    path
}

/// A virtual environment with the pinned packages and the stubs; made again when either changes.
fn environment() -> PathBuf {
    let root = workspace_root();
    let requirements = root.join("tests/python/requirements.txt");
    let proto = root.join("proto/undolog.proto");
    let mut hasher = blake3::Hasher::new();
    for file in [&requirements, &proto] {
        hasher.update(&std::fs::read(file).expect("read what the stubs are made of"));
    }
    let path = root.join(format!("target/undolog-py-{}", &hasher.finalize().to_hex()[..12]));
    let _one_at_a_time = lock(&root.join("target/undolog-py.lock"));
    let finished = path.join("finished");
    if !finished.exists() {
        let _an_unfinished_one = std::fs::remove_dir_all(&path);
        output(Command::new("python3").args(["-m", "venv"]).arg(&path));
        let python = path.join("bin/python");
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        output(Command::new(&python).args(pip).arg(&requirements));
        generate(&python, &proto, &path.join("stubs"));
        std::fs::write(&finished, "").expect("finish the environment");
    }
    path
}

fn generate(python: &Path, proto: &Path, stubs: &Path) {
    std::fs::create_dir_all(stubs).expect("a folder for the stubs");
    let folder = proto.parent().expect("the file's folder");
    output(
        Command::new(python)
            .args(["-m", "grpc_tools.protoc"])
            .arg(format!("-I{}", folder.display()))
            .arg(format!("--python_out={}", stubs.display()))
            .arg(format!("--grpc_python_out={}", stubs.display()))
            .arg(proto),
    );
}

/// Runs a command that must succeed.
fn output(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{stderr}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

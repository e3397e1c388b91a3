//! Looks for a Postgres server on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::EmbeddedError;

/// The oldest major version that UndoLog works with.
pub const MAJOR_MIN: u32 = 15;

/// Names the folder of the server's binaries; when set, no other place is looked at.
pub const BIN_DIR_VARIABLE: &str = "UNDOLOG_PG_BIN";

/// Folders in which packages put the server, `*` standing for a version. Among the matches of one
/// pattern the newest version comes first.
const USUAL_FOLDERS: [&str; 10] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/lib64/pgsql/bin",
    "/usr/libexec/postgresql*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/opt/local/lib/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/usr/local/bin",
];

/// The server's binaries of one Postgres version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The folder that holds `postgres` and `initdb`.
    pub bin_dir: PathBuf,
    /// The major version, for example 18.
    pub major: u32,
    /// The whole version as the server prints it, for example `18.4`.
    pub version: String,
}

impl Installation {
    /// Checks that `bin_dir` holds a server that is new enough.
    pub fn inspect(bin_dir: &Path) -> Result<Self, EmbeddedError> {
        let unusable = |why: String| EmbeddedError::Unusable { bin_dir: bin_dir.to_owned(), why };
        for name in ["postgres", "initdb"] {
            if !bin_dir.join(name).is_file() {
                return Err(unusable(format!("there is no `{name}` in it")));
            }
        }
        let output = Command::new(bin_dir.join("postgres"))
            .arg("--version")
            .output()
            .map_err(EmbeddedError::io("cannot run", &bin_dir.join("postgres")))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let Some((version, major)) = parse_version(&text) else {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(unusable(format!("`postgres --version` said {text:?} {error}")));
        };
        if major < MAJOR_MIN {
            return Err(unusable(format!("version {version} is older than {MAJOR_MIN}")));
        }
        Ok(Self { bin_dir: bin_dir.to_owned(), major, version })
    }

    /// The path of one of its programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// Finds a server: `bin_dir` if given, else [`BIN_DIR_VARIABLE`], else PATH, `pg_config`, and the
/// usual folders. With `major` (an existing data folder's) only that version will do.
pub fn find_installation(
    bin_dir: Option<&Path>,
    major: Option<u32>,
) -> Result<Installation, EmbeddedError> {
    let named =
        bin_dir.map(Path::to_owned).or_else(|| variable(BIN_DIR_VARIABLE).map(PathBuf::from));
    if let Some(dir) = named {
        return Installation::inspect(&dir);
    }
    choose(candidates(), major)
}

/// The first usable candidate of the wanted version; the error tells what was seen.
fn choose(candidates: Vec<PathBuf>, major: Option<u32>) -> Result<Installation, EmbeddedError> {
    let mut seen = Vec::new();
    for dir in candidates {
        match Installation::inspect(&dir) {
            Ok(found) if major.is_none_or(|wanted| wanted == found.major) => return Ok(found),
            Ok(found) => seen.push(format!("{} is {}", dir.display(), found.version)),
            Err(EmbeddedError::Unusable { why, .. }) => {
                seen.push(format!("{}: {why}", dir.display()));
            }
            Err(other) => seen.push(other.to_string()),
        }
    }
    let looked_at = if seen.is_empty() {
        "looked at PATH, pg_config and the usual folders".to_owned()
    } else {
        seen.join("; ")
    };
    Err(EmbeddedError::NotFound { looked_at })
}

/// Every folder that might hold a server and does hold a `postgres`, in order of preference.
fn candidates() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    for pattern in USUAL_FOLDERS {
        dirs.extend(expand(pattern));
    }
    let mut known = Vec::new();
    for dir in dirs {
        if dir.is_absolute() && dir.join("postgres").is_file() && !known.contains(&dir) {
            known.push(dir);
        }
    }
    known
}

/// Expands the one `*` of a pattern; newest version first.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("/", before));
    let Ok(entries) = std::fs::read_dir(if parent.is_empty() { "/" } else { parent }) else {
        return Vec::new();
    };
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?;
            let order = version.split('.').filter_map(|part| part.parse().ok()).collect();
            Some((order, PathBuf::from(format!("{parent}/{name}{after}"))))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Reads `postgres (PostgreSQL) 18.4 (Debian 18.4-1)` as ("18.4", 18).
fn parse_version(text: &str) -> Option<(String, u32)> {
    let word = text.strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
    let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
    Some((word.to_owned(), digits.parse().ok()?))
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_all_the_ways_they_are_printed() {
        let read = |text| parse_version(text).map(|(_, major)| major);
        assert_eq!(read("postgres (PostgreSQL) 18.4"), Some(18));
        assert_eq!(read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(read("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(read("postgres (EnterpriseDB) 18"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn a_folder_without_a_server_says_what_is_missing() {
        let error = Installation::inspect(Path::new("/nowhere")).expect_err("refused").to_string();
        assert_eq!(error, "/nowhere holds no usable PostgreSQL: there is no `postgres` in it");
    }

    #[test]
    fn nothing_found_says_what_to_install() {
        let error = choose(Vec::new(), None).expect_err("refused").to_string();
        for word in ["apt install postgresql", "dnf install", "brew install", "DATABASE_URL"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn patterns_list_the_newest_version_first() {
        let root = std::env::temp_dir().join(format!("undolog-find-{}", std::process::id()));
        for version in ["9.6", "15", "18", "17"] {
            std::fs::create_dir_all(root.join(version).join("bin")).expect("works");
        }
        let found = expand(&format!("{}/*/bin", root.display()));
        let names: Vec<_> = found
            .iter()
            .map(|dir| dir.strip_prefix(&root).expect("works").display().to_string())
            .collect();
        std::fs::remove_dir_all(&root).expect("works");
        assert_eq!(names, ["18/bin", "17/bin", "15/bin", "9.6/bin"]);
    }
}

//! The database as a running process reaches it.

use clap::Args;
use secrecy::SecretString;
use undolog_store::StoreOptions;

/// Taken for `--database-role`: the login itself.
const NO_ROLE: &str = "none";

/// Where the journal is, and with which rights.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Database URL of this process' login.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
    /// Role to take on after connecting; `none` keeps the login's own rights [default:
    /// undolog_app for an engine, undolog_worker for a worker].
    #[arg(long, env = "UNDOLOG_DATABASE_ROLE", value_name = "ROLE")]
    pub database_role: Option<String>,
    /// Connections at most. More than about four per core of the database make it slower.
    #[arg(long, env = "UNDOLOG_DATABASE_CONNECTIONS", value_name = "COUNT")]
    #[arg(default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub database_connections: u32,
}

impl DatabaseArgs {
    /// How to connect, with the role that this kind of process takes on.
    #[must_use]
    pub fn store_options(&self, own_role: &str, application_name: &str) -> StoreOptions {
        let role = self.database_role.as_deref().filter(|role| !role.is_empty());
        let role = match role.unwrap_or(own_role) {
            NO_ROLE => None,
            role => Some(role),
        };
        let mut options = StoreOptions::new(self.database_url.clone(), role, application_name);
        options.connections_max = self.database_connections;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_its_own_role_on_unless_told_otherwise() {
        let role = |given: Option<&str>| {
            let args = DatabaseArgs {
                database_url: SecretString::from("postgres://localhost/x"),
                database_role: given.map(str::to_owned),
                database_connections: 3,
            };
            args.store_options("undolog_app", "undolog-engine").role
        };
        assert_eq!(role(None).as_deref(), Some("undolog_app"));
        assert_eq!(role(Some("")).as_deref(), Some("undolog_app"));
        assert_eq!(role(Some("other")).as_deref(), Some("other"));
        assert_eq!(role(Some("none")), None);
    }
}

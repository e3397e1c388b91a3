//! `undolog keys`: API keys. A key is printed once, when it is made.

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use undolog_core::role::Role;
use undolog_store::owner::{KeyRow, NewKey};
use uuid::Uuid;

use crate::{error::CliError, out::Out, owner::OwnerArgs};

/// Arguments of `undolog keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The database.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: KeysVerb,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysVerb {
    /// Make a key and print it, once.
    Create {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
        /// What the key may do.
        #[arg(long, value_parser = roles())]
        role: String,
        /// Who acts with it; sessions belong to principals.
        #[arg(long)]
        principal: String,
        /// How long it is good for; for ever if left out.
        #[arg(long, value_name = "SECONDS")]
        expires_in_seconds: Option<u32>,
    },
    /// List an organisation's keys, without the keys themselves.
    List {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
    },
    /// End a key now.
    Revoke {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
        /// The key's id.
        key_id: Uuid,
    },
    /// Make a key with the role and principal of another, and end that one.
    Rotate {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
        /// The old key's id.
        key_id: Uuid,
        /// How long the old key stays good.
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        grace_seconds: u32,
    },
}

fn roles() -> PossibleValuesParser {
    PossibleValuesParser::new(Role::ALL.iter().map(|role| role.as_str()))
}

/// Runs the verb.
pub async fn run(args: KeysArgs, out: &Out) -> Result<(), CliError> {
    let mut owner = args.owner.connect().await?;
    match args.verb {
        KeysVerb::Create { org, role, principal, expires_in_seconds } => {
            let org_id = owner.org(&org).await?.org_id;
            let role: Role = role
                .parse()
                .map_err(|_| CliError::Usage(format!("--role: there is no role {role}")))?;
            let expires = expires_in_seconds.map(i64::from);
            print_new(&owner.create_key(org_id, role, &principal, expires).await?, out)?;
        }
        KeysVerb::List { org } => {
            let org_id = owner.org(&org).await?.org_id;
            list(&owner.keys(org_id).await?, out)?;
        }
        KeysVerb::Revoke { org, key_id } => {
            let org_id = owner.org(&org).await?.org_id;
            list(&[owner.revoke_key(org_id, key_id).await?], out)?;
        }
        KeysVerb::Rotate { org, key_id, grace_seconds } => {
            let org_id = owner.org(&org).await?.org_id;
            let key = owner.rotate_key(org_id, key_id, i64::from(grace_seconds)).await?;
            print_new(&key, out)?;
        }
    }
    Ok(owner.close().await?)
}

fn print_new(key: &NewKey, out: &Out) -> Result<(), CliError> {
    let secret = key.secret.expose_secret();
    if out.is_json() {
        let mut value = as_json(&key.row);
        value["key"] = json!(secret);
        return out.json(&value);
    }
    out.record(vec![
        ("key", secret.to_owned()),
        ("id", key.row.key_id.to_string()),
        ("role", key.row.role.clone()),
        ("principal", key.row.principal.clone()),
        ("expires", key.row.expires_at.map(|time| time.to_rfc3339()).unwrap_or_default()),
    ])?;
    out.line("\nThis key is shown only now; its digest alone is kept.")
}

fn list(rows: &[KeyRow], out: &Out) -> Result<(), CliError> {
    if out.is_json() {
        return out.json(&rows.iter().map(as_json).collect::<Vec<_>>());
    }
    let cells = |row: &KeyRow| {
        let state = match (row.revoked_at, row.expires_at) {
            (Some(time), _) => format!("revoked {}", time.format("%Y-%m-%d %H:%M:%S")),
            (None, Some(time)) => format!("until {}", time.format("%Y-%m-%d %H:%M:%S")),
            (None, None) => "good".to_owned(),
        };
        vec![
            row.key_id.to_string(),
            row.key_hint.clone(),
            row.role.clone(),
            row.principal.clone(),
            row.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            state,
        ]
    };
    let headers = ["id", "key", "role", "principal", "created", "state"];
    out.table(&headers, rows.iter().map(cells).collect())
}

fn as_json(row: &KeyRow) -> Value {
    json!({
        "key_id": row.key_id.to_string(),
        "org_id": row.org_id.to_string(),
        "key_hint": row.key_hint,
        "role": row.role,
        "principal": row.principal,
        "created_at": row.created_at.to_rfc3339(),
        "created_by": row.created_by,
        "expires_at": row.expires_at.map(|time| time.to_rfc3339()),
        "revoked_at": row.revoked_at.map(|time| time.to_rfc3339()),
    })
}

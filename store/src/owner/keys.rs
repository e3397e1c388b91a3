//! API keys. A key is shown once, when it is made; only its digest is kept.

use std::fmt;

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use undolog_core::{reason::Reason, role::Role};
use uuid::Uuid;

use super::{Owner, refuse_violation};
use crate::error::StepError;

/// What every key begins with, so that people and scanners of leaked secrets know it.
const PREFIX: &str = "ulk_";

/// Random bytes of a key.
const RANDOM_BYTES: usize = 24;

/// A key, without what would let anybody use it.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct KeyRow {
    pub key_id: Uuid,
    pub org_id: Uuid,
    pub key_hint: String,
    pub role: String,
    pub principal: String,
    pub created_at: DateTime<Utc>,
    pub created_by: String,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A key that was just made.
#[derive(Debug)]
pub struct NewKey {
    /// The key itself: shown once, kept nowhere.
    pub secret: SecretString,
    /// What is kept.
    pub row: KeyRow,
}

/// The SHA-256 under which a key is kept. A key is 192 random bits, so a fast hash is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// The digest of a presented key; `None` when it has not the form of one.
    #[must_use]
    pub fn of(presented: &str) -> Option<Self> {
        let random = presented.strip_prefix(PREFIX)?;
        let is_hex = random.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let is_whole = random.len() == 2 * RANDOM_BYTES;
        (is_hex && is_whole).then(|| Self(Sha256::digest(presented.as_bytes()).into()))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

impl Owner {
    /// Makes a key. Its sessions belong to `principal`, whichever key of it calls.
    pub async fn create_key(
        &mut self,
        org_id: Uuid,
        role: Role,
        principal: &str,
        expires_in_seconds: Option<i64>,
    ) -> Result<NewKey, StepError> {
        let (secret, hash, hint) = random_key()?;
        let made = sqlx::query_as(include_str!("../../sql/key_create.sql"))
            .bind(org_id)
            .bind(hash.0.as_slice())
            .bind(hint)
            .bind(role.as_str())
            .bind(principal)
            .bind(expires_in_seconds)
            .fetch_one(&mut self.conn)
            .await;
        let words =
            [("undolog_api_keys_principal", Reason::InvalidArgument, "a principal has a name")];
        Ok(NewKey { secret, row: made.map_err(|error| refuse_violation(error, &words))? })
    }

    /// An organisation's keys, oldest first.
    pub async fn keys(&mut self, org_id: Uuid) -> Result<Vec<KeyRow>, StepError> {
        let rows = sqlx::query_as(
            "SELECT key_id, org_id, key_hint, role, principal, created_at, created_by, \
               expires_at, revoked_at \
             FROM undolog_api_keys WHERE org_id = $1 ORDER BY created_at, key_id",
        );
        Ok(rows.bind(org_id).fetch_all(&mut self.conn).await?)
    }

    /// Ends a key now. A second time changes nothing.
    pub async fn revoke_key(&mut self, org_id: Uuid, key_id: Uuid) -> Result<KeyRow, StepError> {
        let row: Option<KeyRow> = sqlx::query_as(
            "UPDATE undolog_api_keys SET revoked_at = COALESCE(revoked_at, clock_timestamp()) \
             WHERE org_id = $1 AND key_id = $2 \
             RETURNING key_id, org_id, key_hint, role, principal, created_at, created_by, \
               expires_at, revoked_at",
        )
        .bind(org_id)
        .bind(key_id)
        .fetch_optional(&mut self.conn)
        .await?;
        row.ok_or_else(|| no_key(key_id))
    }

    /// Makes a key with the role and principal of another, which ends after `grace_seconds`.
    pub async fn rotate_key(
        &mut self,
        org_id: Uuid,
        key_id: Uuid,
        grace_seconds: i64,
    ) -> Result<NewKey, StepError> {
        let (secret, hash, hint) = random_key()?;
        let row: Option<KeyRow> = sqlx::query_as(include_str!("../../sql/key_rotate.sql"))
            .bind(org_id)
            .bind(key_id)
            .bind(hash.0.as_slice())
            .bind(hint)
            .bind(grace_seconds)
            .fetch_optional(&mut self.conn)
            .await?;
        Ok(NewKey { secret, row: row.ok_or_else(|| no_key(key_id))? })
    }
}

fn no_key(key_id: Uuid) -> StepError {
    StepError::refuse(Reason::InvalidArgument, format!("there is no usable key {key_id}"))
}

/// A new key, its digest, and the end of it that people may see.
fn random_key() -> Result<(SecretString, KeyHash, String), StepError> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| StepError::Corrupt(format!("no random bytes: {error}")))?;
    let key = format!("{PREFIX}{}", hex::encode(bytes));
    let hint = format!("…{}", &key[key.len() - 4..]);
    let hash = KeyHash::of(&key)
        .ok_or_else(|| StepError::Corrupt("a new key has not the form of one".to_owned()))?;
    Ok((SecretString::from(key), hash, hint))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn keys_differ_and_debug_does_not_show_them() {
        let (one, hash, hint) = random_key().expect("random");
        let (two, ..) = random_key().expect("random");
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert!(one.expose_secret().ends_with(hint.trim_start_matches('…')));
        assert!(!format!("{one:?}").contains(one.expose_secret()));
        assert_eq!(format!("{hash:?}"), "KeyHash(…)");
    }

    #[test]
    fn only_whole_keys_are_looked_up() {
        let (key, ..) = random_key().expect("random");
        let key = key.expose_secret();
        for bad in ["", "ulk_", &key[..51], &key.to_uppercase(), &format!("{key}0"), &key[4..]] {
            assert!(KeyHash::of(bad).is_none(), "{bad}");
        }
    }
}

//! API keys: made once, shown once, kept as a digest.

use std::fmt;

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use undolog_core::{reason::Reason, role::Role};
use uuid::Uuid;

use crate::{
    error::StepError,
    orgs::{self, is_name},
    owner::OwnerStore,
};

/// How every key of this kind begins; it never changes, so that scanners find leaked ones.
pub const KEY_PREFIX: &str = "ulk_";

/// Random bytes of a key: 192 bits, so that a fast hash is enough to keep it.
const KEY_RANDOM_BYTES: usize = 24;

/// The longest overlap of a rotated key with its successor: a week.
const OVERLAP_SECONDS_MAX: u32 = 604_800;

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// The digest of a presented key; `None` when it has not the form of one.
    #[must_use]
    pub fn of(presented: &str) -> Option<Self> {
        let random = presented.strip_prefix(KEY_PREFIX)?;
        let is_hex = random.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let is_whole = random.len() == 2 * KEY_RANDOM_BYTES;
        (is_hex && is_whole).then(|| Self(Sha256::digest(presented.as_bytes()).into()))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// A key as it is stored: what can be shown of it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct KeyRow {
    pub key_id: Uuid,
    pub org_id: Uuid,
    /// The key's first characters, to tell keys apart.
    pub key_hint: String,
    pub role: String,
    pub principal: String,
    pub created_at: DateTime<Utc>,
    pub created_by: String,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A key that was just made: the only time that it can be read.
#[derive(Debug)]
pub struct NewKey {
    /// The key itself.
    pub key: SecretString,
    /// Its row.
    pub row: KeyRow,
}

/// What a new key is to be.
#[derive(Debug, Clone)]
pub struct KeyRequest {
    /// What it may do.
    pub role: Role,
    /// Who acts with it.
    pub principal: String,
    /// How long it lives; `None`: until it is revoked.
    pub expires_in_seconds: Option<u32>,
    /// Who made it.
    pub created_by: String,
}

/// Makes a key for an organisation that is named by uuid or slug.
pub async fn create(
    owner: &OwnerStore,
    org: &str,
    request: &KeyRequest,
) -> Result<NewKey, StepError> {
    if !is_name(&request.principal) || !is_name(&request.created_by) {
        return Err(StepError::refuse(
            Reason::InvalidArgument,
            "the principal or the maker of a key is blank, too long, or holds NUL",
        ));
    }
    let org = orgs::show(owner, org).await?;
    let key = generate()?;
    let hash = KeyHash::of(key.expose_secret()).ok_or_else(|| unusable("form"))?;
    let row: KeyRow = sqlx::query_as(include_str!("../sql/key_create.sql"))
        .bind(org.org_id)
        .bind(hash.0.as_slice())
        .bind(&key.expose_secret()[..KEY_PREFIX.len() + 6])
        .bind(request.role.as_str())
        .bind(&request.principal)
        .bind(&request.created_by)
        .bind(request.expires_in_seconds.map(f64::from))
        .fetch_one(owner.pool())
        .await?;
    Ok(NewKey { key, row })
}

/// The keys of an organisation, newest first.
pub async fn list(owner: &OwnerStore, org: &str) -> Result<Vec<KeyRow>, StepError> {
    let org = orgs::show(owner, org).await?;
    Ok(sqlx::query_as(
        "SELECT key_id, org_id, key_hint, role, principal, created_at, created_by, expires_at, \
         revoked_at FROM undolog_api_keys WHERE org_id = $1 ORDER BY created_at DESC, key_id DESC",
    )
    .bind(org.org_id)
    .fetch_all(owner.pool())
    .await?)
}

/// Revokes a key. Engines refuse it within a few seconds.
pub async fn revoke(owner: &OwnerStore, org: &str, key_id: Uuid) -> Result<KeyRow, StepError> {
    end(owner, org, key_id, 0).await
}

/// Replaces a key by a new one of the same principal and role. The old one lives for
/// `overlap_seconds` more, so that a fleet can change over.
pub async fn rotate(
    owner: &OwnerStore,
    org: &str,
    key_id: Uuid,
    overlap_seconds: u32,
    created_by: &str,
) -> Result<NewKey, StepError> {
    if overlap_seconds > OVERLAP_SECONDS_MAX {
        return Err(StepError::refuse(
            Reason::LimitExceeded,
            format!("an overlap is at most {OVERLAP_SECONDS_MAX} seconds"),
        ));
    }
    let keys = list(owner, org).await?;
    let old = keys
        .into_iter()
        .find(|key| key.key_id == key_id && key.revoked_at.is_none())
        .ok_or_else(|| no_key(key_id))?;
    let role = old.role.parse().map_err(|_| unusable("role"))?;
    let request = KeyRequest {
        role,
        principal: old.principal,
        expires_in_seconds: None,
        created_by: created_by.to_owned(),
    };
    // The new key first: when this is interrupted in between, both live and nobody is locked out.
    let made = create(owner, org, &request).await?;
    end(owner, org, key_id, overlap_seconds).await?;
    Ok(made)
}

async fn end(
    owner: &OwnerStore,
    org: &str,
    key_id: Uuid,
    overlap_seconds: u32,
) -> Result<KeyRow, StepError> {
    let org = orgs::show(owner, org).await?;
    let row: Option<KeyRow> = sqlx::query_as(include_str!("../sql/key_end.sql"))
        .bind(org.org_id)
        .bind(key_id)
        .bind(f64::from(overlap_seconds))
        .fetch_optional(owner.pool())
        .await?;
    row.ok_or_else(|| no_key(key_id))
}

/// A new key: the prefix and random hex.
fn generate() -> Result<SecretString, StepError> {
    let mut random = [0_u8; KEY_RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| unusable("randomness"))?;
    Ok(SecretString::from(format!("{KEY_PREFIX}{}", hex::encode(random))))
}

fn unusable(what: &str) -> StepError {
    StepError::Corrupt(format!("a key's {what} is not usable"))
}

fn no_key(key_id: Uuid) -> StepError {
    StepError::refuse(Reason::InvalidArgument, format!("there is no live key {key_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_different_and_never_shown_by_debug() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert_eq!(one.expose_secret().len(), KEY_PREFIX.len() + 48);
        assert!(!format!("{one:?}").contains(&one.expose_secret()[4..]));
        let hash = KeyHash::of(one.expose_secret()).unwrap();
        assert_eq!(format!("{hash:?}"), "KeyHash(…)");
    }

    #[test]
    fn only_whole_keys_are_looked_up() {
        let key = generate().unwrap();
        let key = key.expose_secret();
        for bad in ["", "ulk_", &key[..51], &key.to_uppercase(), &format!("{key}0"), &key[4..]] {
            assert!(KeyHash::of(bad).is_none(), "{bad}");
        }
    }
}

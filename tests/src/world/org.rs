//! An organisation and its keys, made as the owner makes them.

use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

/// An organisation.
#[derive(Clone, Debug)]
pub struct Org {
    /// Its id.
    pub id: Uuid,
    /// Its slug.
    pub slug: String,
}

impl Org {
    /// Makes an organisation with the documented defaults.
    pub async fn create(pool: &PgPool, slug: &str) -> Self {
        let id = sqlx::query_scalar(
            "INSERT INTO undolog_orgs (name, slug) VALUES ($1, $1) RETURNING org_id",
        )
        .bind(slug)
        .fetch_one(pool)
        .await
        .expect("make an organisation");
        Self { id, slug: slug.to_owned() }
    }

    /// Makes a key and returns its text.
    pub async fn key(&self, pool: &PgPool, role: &str, principal: &str) -> String {
        // The form of every key: the prefix and 24 random bytes.
        let random = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let key = format!("ulk_{}", &random[..48]);
        sqlx::query(
            "INSERT INTO undolog_api_keys (org_id, key_hash, key_hint, role, principal)
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(self.id)
        .bind(Sha256::digest(key.as_bytes()).as_slice())
        .bind("test")
        .bind(role)
        .bind(principal)
        .execute(pool)
        .await
        .expect("make a key");
        key
    }

    /// Sets one of its settings, for example `on_tool_failure` to `continue`.
    pub async fn set(&self, pool: &PgPool, column: &str, value: &str) {
        // The cast makes one statement serve columns of every type.
        let sql = format!(
            "UPDATE undolog_orgs SET {column} = (jsonb_populate_record(NULL::undolog_orgs,
             jsonb_build_object('{column}', $2::text))).{column} WHERE org_id = $1"
        );
        sqlx::query(&sql).bind(self.id).bind(value).execute(pool).await.expect("set an option");
    }
}

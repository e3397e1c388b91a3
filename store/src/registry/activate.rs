//! Versions of tools and compensations are taken out of use, and back into it.
//!
//! What is out of use begins nothing new: calls of the tool are refused as if it were not
//! registered, and no new call is bound to the compensation. What was bound before is undone all
//! the same.

use std::marker::PhantomData;

use undolog_core::{
    reason::Reason,
    role::{Rpc, allows},
};
use uuid::Uuid;

use super::list::{self, CompensationRow, Registration, ToolRow};
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
};

/// Takes versions out of use, or back into it.
#[derive(Debug, Clone)]
pub struct SetActive<R> {
    caller: Caller,
    name: String,
    version: String,
    is_active: bool,
    rpc: Rpc,
    kind: PhantomData<fn() -> R>,
}

impl SetActive<ToolRow> {
    /// Versions of a tool; an empty version means every one.
    #[must_use]
    pub fn tool(caller: Caller, name: String, version: String, is_active: bool) -> Self {
        let rpc = Rpc::SetToolActive;
        Self { caller, name, version, is_active, rpc, kind: PhantomData }
    }
}

impl SetActive<CompensationRow> {
    /// Versions of a compensation; an empty version means every one.
    #[must_use]
    pub fn compensation(caller: Caller, name: String, version: String, is_active: bool) -> Self {
        let rpc = Rpc::SetCompensationActive;
        Self { caller, name, version, is_active, rpc, kind: PhantomData }
    }
}

impl<R: Registration + Clone + 'static> Step for SetActive<R> {
    /// The versions that stood differently before.
    type Reply = Vec<String>;
    const NAME: &'static str = "set_active";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Vec<String>>, StepError> {
        if !allows(self.caller.role, self.rpc) && crate::guard!("registry.active.role") {
            let why = format!("the role {} may not do this", self.caller.role);
            return Err(StepError::refuse(Reason::PermissionDenied, why));
        }
        super::lock_org(tx).await?;
        let standing = list::versions::<R>(tx, &self.name).await?;
        let is_meant = |version: &str| self.version.is_empty() || version == self.version;
        if !standing.iter().any(|(version, _)| is_meant(version)) {
            return Err(R::not_found(&self.name));
        }
        let org_id = tx.org_id();
        let mut changed: Vec<String> = sqlx::query_scalar(R::SET_ACTIVE)
            .bind(org_id)
            .bind(&self.name)
            .bind(&self.version)
            .bind(self.is_active)
            .bind(&self.caller.principal)
            .fetch_all(tx.conn())
            .await?;
        changed.sort_unstable();
        if !changed.is_empty() {
            super::raise_epoch(tx).await?;
            tracing::warn!(
                %org_id, by = self.caller.principal, list = R::LIST, name = self.name,
                versions = ?changed, is_active = self.is_active, "a registration changed its use"
            );
        }
        Ok(Ok(changed))
    }
}

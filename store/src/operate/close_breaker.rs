//! Closing breakers by hand: the operator knows that an endpoint is back, and what waited for it
//! goes on without waiting for the trial call.

use undolog_core::{reason::Reason, role::Rpc};
use uuid::Uuid;

use super::{check_text, pause::wake, require_role};
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
};

/// Closes the breakers of a compensation, of a host, or of one at the other.
#[derive(Debug, Clone)]
pub struct CloseBreaker {
    /// Who decides.
    pub caller: Caller,
    /// Of this compensation; empty: of any.
    pub compensation_fn: String,
    /// At this host (scheme, host and port); empty: at any.
    pub host: String,
}

impl Step for CloseBreaker {
    /// How many were not closed.
    type Reply = u64;
    const NAME: &'static str = "close_breaker";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<u64>, StepError> {
        require_role(&self.caller, Rpc::CloseBreaker)?;
        check_text("compensation_fn", &self.compensation_fn)?;
        check_text("host", &self.host)?;
        if self.compensation_fn.is_empty() && self.host.is_empty() {
            let why = "compensation_fn or host is required: which breaker is to be closed?";
            return Err(StepError::refuse(Reason::InvalidArgument, why));
        }
        let closed = sqlx::query(include_str!("../../sql/operate_close_breaker.sql"))
            .bind(self.caller.org_id)
            .bind(&self.compensation_fn)
            .bind(self.host.to_ascii_lowercase())
            .execute(tx.conn())
            .await?
            .rows_affected();
        if closed > 0 {
            wake(tx).await?;
            tracing::warn!(
                org.id = %self.caller.org_id, by = self.caller.principal,
                compensation = self.compensation_fn, host = self.host, closed,
                "breakers were closed by hand"
            );
        }
        Ok(Ok(closed))
    }
}

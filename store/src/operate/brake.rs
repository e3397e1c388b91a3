//! An operator's word on the brake of a mass expiry.

use undolog_core::role::Rpc;
use uuid::Uuid;

use super::require_role;
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
};

/// What an operator says about the brake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrakeOrder {
    /// No session fails by its lease until this is taken back.
    Stopped,
    /// Every session whose lease is over fails, however many.
    Forced,
    /// The sweep decides again.
    Released,
}

impl BrakeOrder {
    /// The name on the wire and in the row.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Forced => "forced",
            Self::Released => "released",
        }
    }

    /// From the name on the wire.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        [Self::Stopped, Self::Forced, Self::Released].into_iter().find(|o| o.as_str() == text)
    }
}

/// Stops, forces or releases the brake of the organisation.
#[derive(Debug, Clone)]
pub struct SetBrake {
    /// Who decides.
    pub caller: Caller,
    /// What holds from now on.
    pub order: BrakeOrder,
}

impl Step for SetBrake {
    type Reply = ();
    const NAME: &'static str = "set_brake";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<()>, StepError> {
        require_role(&self.caller, Rpc::SetBrake)?;
        sqlx::query(include_str!("../../sql/operate_brake.sql"))
            .bind(self.caller.org_id)
            .bind(self.order.as_str())
            .bind(&self.caller.principal)
            .execute(tx.conn())
            .await?;
        Ok(Ok(()))
    }
}

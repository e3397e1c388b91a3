//! Reads for people and programs: shows, lists and their pages. Nothing here writes or locks.
//!
//! Every read runs in a transaction of its organisation and names the organisation in the query as
//! well; an agent finds only the sessions of its own principal.

mod approvals;
pub(crate) mod effects;
pub mod page;
mod session_detail;
pub(crate) mod sessions;
mod value;
mod waited;

pub use approvals::{
    ApprovalEventView, ApprovalFilter, ApprovalMark, ApprovalView, approval_marks, get_approval,
    list_approvals, show_approval,
};
pub use effects::{EffectView, list_effects};
pub use page::{Page, Paging};
pub use session_detail::{DetailPages, SessionDetail, get_session};
pub use sessions::{
    DeadLetterView, RollbackView, SessionFilter, SessionView, UndoView, list_sessions,
};
pub use value::{next_call, one_approval_event, one_dead_letter, one_effect, one_undo_entry};
pub use waited::{Waited, waited};

use crate::step::Caller;

/// The principal whose sessions alone this caller may see; `None`: all of the organisation.
pub(crate) fn only_of(caller: &Caller) -> Option<&str> {
    let bound = caller.role.is_bound_to_own_sessions() && crate::guard!("read.principal");
    bound.then_some(caller.principal.as_str())
}

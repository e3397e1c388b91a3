//! The pure domain of UndoLog: tiers, states, canonical JSON, signatures, templates and plans.
//!
//! Nothing in this crate does IO, reads a clock or makes a random number: whoever calls it passes
//! times, ids and jitter in. The tables of the design are functions over plain data here, so that
//! every cell of them is a unit test.

mod names;

pub mod answer;
pub mod commit;
pub mod fail;
pub mod fn_body;
pub mod intercept;
pub mod json;
pub mod limits;
pub mod networks;
pub mod plan;
pub mod presented;
pub mod probe;
pub mod reason;
pub mod retry;
pub mod role;
pub mod signature;
pub mod state;
pub mod template;
pub mod tier;
pub mod tool_schema;
pub mod upstream;
pub mod version;

pub use reason::{Reason, Refusal};
pub use tier::Tier;

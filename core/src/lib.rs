//! The pure domain of UndoLog: tiers, states, canonical JSON, signatures, templates and plans.

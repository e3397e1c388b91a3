//! The journal of UndoLog in Postgres; the only crate that writes SQL.

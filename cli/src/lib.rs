//! The undolog command.

//! The command as people use it: its definition, its documents, its verbs and its servers.

mod definition;
mod demo;
mod dev;
mod docs;
mod kit;
mod operators;
mod sessions;
mod verbs;

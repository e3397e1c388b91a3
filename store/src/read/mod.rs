//! Reads for people and programs: shows, lists and their pages. Nothing here writes or locks.

pub mod page;

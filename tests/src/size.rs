//! How much a test does: little with every change, all of it in the long runs.

/// The number that this variable of the environment says, else the smaller one for every change.
/// The long runs of `docs/testing.md` set the variables.
pub fn size(variable: &str, for_every_change: usize) -> usize {
    let Ok(said) = std::env::var(variable) else { return for_every_change };
    said.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {said:?}"))
}

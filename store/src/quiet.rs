//! Says the same thing once in a while instead of a thousand times.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often the same message may be said.
const EVERY: Duration = Duration::from_secs(30);
/// Messages that are told apart; what is more counts as one.
const MESSAGES_MAX: usize = 32;

/// What was said at one place, and when.
#[derive(Debug)]
pub struct Quiet(Mutex<Vec<Said>>);

#[derive(Debug)]
struct Said {
    message: String,
    at: Instant,
    kept_back: u64,
}

impl Quiet {
    /// Nothing was said yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether this message may be said now; if so, how often it was kept back since the last time.
    pub fn may_say(&self, message: &str) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = all.iter().position(|said| said.message == message);
        if known.is_none() && all.len() >= MESSAGES_MAX {
            all.retain(|said| said.at.elapsed() < EVERY);
            known = (all.len() >= MESSAGES_MAX).then_some(0);
        }
        match known {
            None => {
                let message = message.to_owned();
                all.push(Said { message, at: Instant::now(), kept_back: 0 });
                Some(0)
            }
            Some(n) if all[n].at.elapsed() < EVERY => {
                all[n].kept_back += 1;
                None
            }
            Some(n) => {
                all[n].at = Instant::now();
                Some(std::mem::take(&mut all[n].kept_back))
            }
        }
    }
}

impl Default for Quiet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while_and_others_meanwhile() {
        let quiet = Quiet::new();
        assert_eq!(quiet.may_say("away"), Some(0));
        assert_eq!((quiet.may_say("away"), quiet.may_say("away")), (None, None));
        assert_eq!(quiet.may_say("full"), Some(0));
        for said in quiet.0.lock().expect("no holder panics").iter_mut() {
            said.at -= EVERY;
        }
        assert_eq!(quiet.may_say("away"), Some(2));
        for n in 0..100 {
            quiet.may_say(&format!("message {n}"));
        }
        assert!(quiet.0.lock().expect("no holder panics").len() <= MESSAGES_MAX);
    }
}

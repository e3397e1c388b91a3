//! A report that the engine has not taken yet: what is tried next, and when.

use std::time::{Duration, Instant};

use http::StatusCode;
use undolog_proto::v1;

use crate::error::Refused;

/// The first and the longest pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long an outcome is kept for an engine that does not take it.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);

/// What is committed instead of a result that is larger than a result may be: the call was made,
/// and must not be taken for one that failed.
pub(super) fn left_out(duration_ms: u64) -> v1::ToolResult {
    v1::ToolResult {
        success: true,
        output: b"null".to_vec(),
        error: "the result is larger than a result may be, and was left out".to_owned(),
        duration_ms,
    }
}

/// One undelivered report.
#[derive(Debug)]
pub(super) struct Undelivered {
    began: Instant,
    result: v1::ToolResult,
    is_left_out: bool,
    refused_keys: usize,
    pause: Duration,
}

impl Undelivered {
    pub(super) fn new(result: v1::ToolResult) -> Self {
        Self { began: Instant::now(), result, is_left_out: false, refused_keys: 0, pause: PAUSE }
    }

    pub(super) fn result(&self) -> &v1::ToolResult {
        &self.result
    }

    /// How often a key was refused: each time it is another one's turn.
    pub(super) fn refused_keys(&self) -> usize {
        self.refused_keys
    }

    /// How long to wait before the next try; `None`: the engine has decided, or it took too long.
    pub(super) fn pause(&mut self, refused: &Refused, keys: usize) -> Option<Duration> {
        if self.began.elapsed() >= KEPT_FOR {
            return None;
        }
        match refused.status {
            // Too large, or no result that can be stored.
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::BAD_REQUEST
            | StatusCode::UNPROCESSABLE_ENTITY
                if self.result.success && !self.is_left_out =>
            {
                self.result = left_out(self.result.duration_ms);
                self.is_left_out = true;
                Some(Duration::ZERO)
            }
            // Of the proxy's own keys some are other organisations', which know no such effect.
            status
                if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    || status == StatusCode::NOT_FOUND
                        && !self.refused_keys.is_multiple_of(keys.max(1)) =>
            {
                self.refused_keys += 1;
                let is_round = self.refused_keys.is_multiple_of(keys.max(1));
                Some(if is_round { self.longer() } else { Duration::ZERO })
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let asked = refused.retry_after_ms.map_or(PAUSE, Duration::from_millis);
                Some(asked.clamp(Duration::from_millis(100), PAUSE_MAX))
            }
            status if status.is_server_error() => Some(self.longer()),
            _ => None,
        }
    }

    fn longer(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use undolog_core::reason::Reason;

    use super::*;

    fn refused(reason: Reason) -> Refused {
        Refused::because(reason, "no")
    }

    #[test]
    fn an_outcome_is_kept_until_the_engine_has_decided() {
        let result = v1::ToolResult { success: true, output: b"1".to_vec(), ..Default::default() };
        let mut report = Undelivered::new(result);
        assert_eq!(report.pause(&refused(Reason::Unavailable), 2), Some(PAUSE));
        assert_eq!(report.pause(&refused(Reason::Internal), 2), Some(2 * PAUSE));
        assert!(report.pause(&refused(Reason::RateLimited), 2).is_some());
        assert_eq!(report.pause(&refused(Reason::Unauthenticated), 2), Some(Duration::ZERO));
        assert_eq!(report.refused_keys(), 1, "the next key's turn");
        assert_eq!(report.pause(&refused(Reason::EffectNotFound), 2), Some(4 * PAUSE));
        assert_eq!(report.refused_keys(), 2, "the caller's own again");
        assert_eq!(report.pause(&refused(Reason::EffectNotFound), 2), None);
        assert_eq!(report.result().output, b"1");
        assert_eq!(report.pause(&refused(Reason::LimitExceeded), 2), Some(Duration::ZERO));
        assert!(report.result().success && report.result().output == b"null");
        assert_eq!(report.pause(&refused(Reason::LimitExceeded), 2), None, "nothing is left");
        assert_eq!(report.pause(&refused(Reason::ResultConflict), 2), None);
    }
}

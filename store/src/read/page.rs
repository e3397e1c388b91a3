//! Pages of lists: sizes, and tokens that mean something to one list only.

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::FromRow;
use undolog_core::{
    limits::{LIST_READ_MAX, PAGE_DEFAULT, PAGE_MAX},
    reason::Reason,
};
use uuid::Uuid;

use crate::error::StepError;

/// Rows of a page together: what a client with gRPC's own 4 MiB limit can take, with the envelope.
pub(crate) const PAGE_BYTES_MAX: i64 = 3 * 1024 * 1024;

/// The bound of a page's statement.
pub(crate) fn page_bytes() -> i64 {
    if crate::guard!("read.page_bytes") { PAGE_BYTES_MAX } else { i64::MAX }
}

/// How a list is asked for.
#[derive(Debug, Clone, Default)]
pub struct Paging {
    /// Rows wanted; 0 is the default.
    pub size: u32,
    /// Where the page before ended; empty: from the start.
    pub token: String,
}

impl Paging {
    /// The number of rows, within its limit.
    pub(crate) fn rows(&self) -> Result<i64, StepError> {
        match self.size {
            0 => Ok(PAGE_DEFAULT.into()),
            size if size <= PAGE_MAX => Ok(size.into()),
            size => Err(StepError::refuse(
                Reason::LimitExceeded,
                format!("a page of {size} rows is larger than {PAGE_MAX}"),
            )),
        }
    }

    /// The key that the page before ended with.
    pub(crate) fn after<K: DeserializeOwned>(&self, list: &str) -> Result<Option<K>, StepError> {
        if self.token.is_empty() {
            return Ok(None);
        }
        from_token(list, &self.token).map(Some)
    }
}

/// One page.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows, in the list's order.
    pub rows: Vec<T>,
    /// The token of the next page; empty: this is the last.
    pub next_token: String,
}

impl<T> Page<T> {
    /// Ends a page. It was read with one row more than `limit`, so that we know whether rows
    /// follow; one that was cut by its bytes has fewer rows than `matched`. `key` is a row's place
    /// in the order.
    pub(crate) fn cut<K: Serialize>(
        list: &str,
        rows: Vec<T>,
        limit: i64,
        matched: i64,
        key: impl Fn(&T) -> K,
    ) -> Result<Self, StepError> {
        Self::cut_at(list, rows, limit, matched, key, None)
    }

    /// The same for a page that was read up to a row and no further: it may be short, or empty, and
    /// the next one goes on behind that row.
    pub(crate) fn cut_at<K: Serialize>(
        list: &str,
        mut rows: Vec<T>,
        limit: i64,
        matched: i64,
        key: impl Fn(&T) -> K,
        until: Option<K>,
    ) -> Result<Self, StepError> {
        let shown = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if shown > limit {
            rows.pop();
        }
        let more = shown > limit || shown < matched;
        let next_token = match (rows.last(), until) {
            (Some(last), _) if more => to_token(list, &key(last))?,
            (_, Some(until)) => to_token(list, &until)?,
            (_, None) => String::new(),
        };
        Ok(Self { rows, next_token })
    }
}

/// The last row that is read for a page; `None`: the list ends before.
#[derive(Debug, Clone, Copy, FromRow)]
pub(crate) struct Until {
    at: DateTime<Utc>,
    id: Uuid,
}

impl Until {
    /// Its place in the order.
    pub(crate) fn key(self) -> (i64, Uuid) {
        (self.at.timestamp_micros(), self.id)
    }

    /// Its place as a statement takes it.
    pub(crate) fn bound(until: Option<Self>) -> (Option<DateTime<Utc>>, Option<Uuid>) {
        until.map(|until| (until.at, until.id)).unzip()
    }
}

/// Bounds of a list from the newest row on, for statements that take no NULL for one: under
/// row-level security Postgres takes a COALESCE for something that could leak, and then filters
/// every row instead of ending the scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) before: (DateTime<Utc>, Uuid),
    pub(crate) until: (DateTime<Utc>, Uuid),
}

impl Bounds {
    pub(crate) fn new(before: Option<(DateTime<Utc>, Uuid)>) -> Self {
        let far = |seconds| DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        // The years 9999 and 1.
        let (latest, earliest) = (far(253_402_300_799), far(-62_135_596_800));
        Self { before: before.unwrap_or((latest, Uuid::max())), until: (earliest, Uuid::nil()) }
    }

    pub(crate) fn until(self, until: Option<Until>) -> Self {
        Self { until: until.map_or(self.until, |until| (until.at, until.id)), ..self }
    }
}

/// How many rows of each part of a list may be read for a page, as an offset.
pub(crate) fn read_max(parts: usize) -> i64 {
    if crate::guard!("read.bounded") {
        i64::from(LIST_READ_MAX) / i64::try_from(parts.max(1)).unwrap_or(i64::MAX)
    } else {
        i64::MAX
    }
}

/// An opaque token for a place in a list.
pub(crate) fn to_token<K: Serialize>(list: &str, key: &K) -> Result<String, StepError> {
    let text = serde_json::to_string(&(list, key))
        .map_err(|error| StepError::Corrupt(format!("a page token of {list}: {error}")))?;
    Ok(hex::encode(text))
}

/// The place that a token of this list means.
pub(crate) fn from_token<K: DeserializeOwned>(list: &str, token: &str) -> Result<K, StepError> {
    let refused =
        || StepError::refuse(Reason::CursorInvalid, "the page token is none of this list");
    let bytes = hex::decode(token).map_err(|_| refused())?;
    let (of, key): (String, K) = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if of == list { Ok(key) } else { Err(refused()) }
}

/// The refusal of a token of another list, or of none.
pub(crate) fn refused() -> StepError {
    StepError::refuse(Reason::CursorInvalid, "the page token or cursor is none of this list")
}

/// A time in a token.
pub(crate) fn time_of(micros: i64) -> Result<DateTime<Utc>, StepError> {
    DateTime::from_timestamp_micros(micros)
        .ok_or_else(|| StepError::refuse(Reason::CursorInvalid, "the page token holds no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_belong_to_one_list() {
        let token = to_token("tools", &("a", "1.0.0")).unwrap();
        let back: (String, String) = from_token("tools", &token).unwrap();
        assert_eq!(back, ("a".to_owned(), "1.0.0".to_owned()));
        for (list, token) in [("sessions", token.as_str()), ("tools", "zz"), ("tools", "7b7d")] {
            let refused: Result<(String, String), _> = from_token(list, token);
            assert!(
                matches!(refused, Err(StepError::Refused(r)) if r.reason == Reason::CursorInvalid)
            );
        }
    }

    #[test]
    fn a_page_has_a_size() {
        let rows = |size| Paging { size, token: String::new() }.rows();
        assert_eq!(rows(0).unwrap(), i64::from(PAGE_DEFAULT));
        assert_eq!(rows(PAGE_MAX).unwrap(), i64::from(PAGE_MAX));
        rows(PAGE_MAX + 1).unwrap_err();
    }
}

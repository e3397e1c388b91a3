//! How each kind of field is shown.

use chrono::{DateTime, SecondsFormat};
use prost_types::Timestamp;

use crate::rest::json::Json;

/// A wire value as it is shown.
pub(crate) trait Wire<T> {
    fn wire(value: T) -> Self;
}

macro_rules! as_they_are {
    ($($kind:ty),+) => {
        $(impl Wire<$kind> for $kind {
            fn wire(value: $kind) -> Self {
                value
            }
        })+
    };
}
as_they_are!(String, u32, u64, bool);

/// An empty text is none.
impl Wire<String> for Option<String> {
    fn wire(value: String) -> Self {
        (!value.is_empty()).then_some(value)
    }
}

impl Wire<Timestamp> for String {
    fn wire(value: Timestamp) -> Self {
        let nanos = u32::try_from(value.nanos).unwrap_or_default();
        DateTime::from_timestamp(value.seconds, nanos)
            .map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true))
            .unwrap_or_default()
    }
}

impl<A, B: Wire<A>> Wire<Option<A>> for Option<B> {
    fn wire(value: Option<A>) -> Self {
        value.map(B::wire)
    }
}

impl<A, B: Wire<A>> Wire<Vec<A>> for Vec<B> {
    fn wire(value: Vec<A>) -> Self {
        value.into_iter().map(B::wire).collect()
    }
}

impl Wire<Vec<u8>> for Json {
    fn wire(value: Vec<u8>) -> Self {
        Self::stored(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc_and_absent_ones_as_none() {
        let at = Timestamp { seconds: 1_700_000_000, nanos: 123_456_000 };
        let shown: Option<String> = Wire::wire(Some(at));
        assert_eq!(shown.as_deref(), Some("2023-11-14T22:13:20.123456Z"));
        let none: Option<String> = Wire::wire(None::<Timestamp>);
        assert_eq!(none, None);
        let empty: Option<String> = Wire::wire(String::new());
        assert_eq!(empty, None);
    }
}

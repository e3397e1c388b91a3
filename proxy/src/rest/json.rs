//! JSON that passes through as it was written: numbers, key order and duplicates included.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::Error as _};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Any JSON value, never reprinted.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = serde_json::Value)]
pub(crate) struct Json(Box<RawValue>);

impl Json {
    /// The value's text.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        Box::<str>::from(self.0).into_string().into_bytes()
    }

    /// The value's text.
    pub(crate) fn text(&self) -> &str {
        self.0.get()
    }

    /// A value of the journal. Nothing stored is null; what is no JSON is shown as a text.
    pub(crate) fn stored(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Self(RawValue::NULL.to_owned());
        }
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let raw =
            RawValue::from_string(text.clone()).or_else(|_| serde_json::value::to_raw_value(&text));
        Self(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

/// A JSON object. Derived forms also take an array of their fields in order, which no document
/// describes and no filter on names sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if !raw.get().starts_with('{') {
            return Err(D::Error::custom("an object is expected"));
        }
        serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom)
    }
}

/// The text of an optional value; empty: none was given.
pub(crate) fn bytes_of(value: Option<Json>) -> Vec<u8> {
    value.map(Json::into_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reprinted() {
        for text in [
            "1e400",
            "-0.0",
            "12345678901234567890123456789",
            r#"{"b":1,"a":1.0,"b":2}"#,
            r#""\ud800""#,
            r#""\u0041""#,
        ] {
            let wrapped = format!(r#"{{"v": {text}}}"#);
            #[derive(Deserialize)]
            struct Wrapped {
                v: Json,
            }
            let read: Wrapped = serde_json::from_str(&wrapped).expect("reads");
            assert_eq!(read.v.text(), text);
            let stored = Json::stored(text.as_bytes().to_vec());
            assert_eq!(serde_json::to_string(&stored).expect("writes"), text);
            assert_eq!(read.v.into_bytes(), text.as_bytes());
        }
        assert_eq!(Json::stored(Vec::new()).text(), "null");
    }
}

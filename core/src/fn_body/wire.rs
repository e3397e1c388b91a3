//! The parts of a call that serde cannot carry by itself: a worker hands a call to another process.

/// A method, by its name.
pub(super) mod method {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::fn_body::Method;

    pub(in super::super) fn serialize<S: Serializer>(m: &Method, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(m.as_str())
    }

    pub(in super::super) fn deserialize<'de, D>(d: D) -> Result<Method, D::Error>
    where
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A body, as its exact JSON text.
pub(super) mod body {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use crate::json::{Node, parse_lossless};

    pub(in super::super) fn serialize<S: Serializer>(
        body: &Option<Node>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        body.as_ref().map(Node::to_text_exact).serialize(s)
    }

    pub(in super::super) fn deserialize<'de, D>(d: D) -> Result<Option<Node>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(d)?;
        text.map(|text| parse_lossless(text.as_bytes()).map_err(D::Error::custom)).transpose()
    }
}

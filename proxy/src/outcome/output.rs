//! An endpoint's answer as the JSON that is committed. No byte of it is lost.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use encoding_rs::Encoding;
use serde_json::json;
use undolog_core::{answer::without_bom, json::parse_lossless};

/// The answer's body: JSON as it was sent, a text as a JSON string, and bytes that are no text as
/// `{"content_type": …, "base64": …}`.
pub(super) fn output(body: Vec<u8>, content_type: &str) -> Vec<u8> {
    let text = match std::str::from_utf8(without_bom(&body)) {
        Ok(text) => text.to_owned(),
        Err(_) => match decoded(&body, content_type) {
            Some(text) => text,
            None => {
                let encoded = STANDARD.encode(&body);
                let kept = json!({"content_type": content_type, "base64": encoded});
                return kept.to_string().into_bytes();
            }
        },
    };
    if text.is_empty() {
        return b"null".to_vec();
    }
    if parse_lossless(text.as_bytes()).is_ok() {
        return text.into_bytes();
    }
    serde_json::Value::from(text).to_string().into_bytes()
}

/// A text in the encoding that the answer names, or that its byte order mark does; `None`: in none,
/// or not without a loss.
fn decoded(body: &[u8], content_type: &str) -> Option<String> {
    let (encoding, mark_bytes) = match Encoding::for_bom(body) {
        Some(found) => found,
        None => (Encoding::for_label(charset(content_type)?.as_bytes())?, 0),
    };
    let text =
        encoding.decode_without_bom_handling_and_without_replacement(body.get(mark_bytes..)?)?;
    Some(text.into_owned())
}

/// The charset that a Content-Type names.
fn charset(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("charset").then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(body: &[u8], content_type: &str) -> String {
        String::from_utf8(output(body.to_vec(), content_type)).expect("JSON is UTF-8")
    }

    #[test]
    fn an_answer_is_kept_as_it_was_sent() {
        assert_eq!(kept(br#"{"n": 1.50}"#, ""), r#"{"n": 1.50}"#);
        assert_eq!(kept(b"", "application/json"), "null");
        assert_eq!(kept(b"plain text", "text/plain"), r#""plain text""#);
        assert_eq!(kept(b"\xef\xbb\xbf{\"n\":1}", "application/json"), r#"{"n":1}"#);
        assert_eq!(kept("über".as_bytes(), "text/plain; charset=iso-8859-1"), "\"über\"");
    }

    #[test]
    fn a_text_in_another_encoding_is_the_same_text() {
        let latin = b"{\"name\":\"M\xfcller\"}";
        for content_type in [
            "application/json; charset=ISO-8859-1",
            "application/json;charset=\"latin1\"",
            "application/json; v=1; Charset=windows-1252",
        ] {
            assert_eq!(kept(latin, content_type), r#"{"name":"Müller"}"#, "{content_type}");
        }
        assert_eq!(kept(b"\xff\xfeh\x00i\x00", "text/plain"), r#""hi""#, "UTF-16 by its mark");
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_too() {
        for content_type in ["image/png", "text/plain; charset=utf-8", "a/b; charset=no-such"] {
            let value: serde_json::Value =
                serde_json::from_str(&kept(b"\x89PNG\xff\x00", content_type)).expect("JSON");
            assert_eq!(value["content_type"], content_type);
            let bytes = STANDARD.decode(value["base64"].as_str().expect("a text"));
            assert_eq!(bytes.expect("base64"), b"\x89PNG\xff\x00");
        }
    }
}

//! A tool's upstream endpoint: how a proxy runs a granted call over HTTP.
//!
//! ```json
//! {"kind":"http","method":"POST","endpoint":"https://pay.example/charges",
//!  "headers":{"Authorization":"Bearer {secret:TOKEN}"},"arg_mapping":{"amount":"{args.amount}"},
//!  "idempotency_key_header":"Idempotency-Key","timeout_ms":10000,"done_statuses":[409],
//!  "not_applied_statuses":[400,404,422]}
//! ```
//!
//! Templates are those of `fn_body`, without `{result…}`, `{comp…}` and `{undo_id}`. Without
//! `arg_mapping` the body is the arguments. The idempotency key is the effect's id.

use uuid::Uuid;

use crate::{
    answer::Rules,
    fn_body::{FnBody, FnBodyError, RenderedCall},
    json::Node,
    template::{Context, Placeholder, RenderError},
};

/// Fields that an upstream endpoint shares with a compensation.
const CALL_FIELDS: [&str; 10] = [
    "kind",
    "method",
    "endpoint",
    "headers",
    "arg_mapping",
    "body",
    "idempotency_key_header",
    "timeout_ms",
    "done_statuses",
    "done_when",
];

/// Why an upstream endpoint is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Not a JSON object.
    #[error("it must be a JSON object")]
    NotAnObject,
    /// A field that does not exist.
    #[error("there is no field {0:?}")]
    UnknownField(String),
    /// What is called cannot be called.
    #[error(transparent)]
    Call(#[from] FnBodyError),
    /// No array of statuses that can mean that nothing was changed.
    #[error("not_applied_statuses must be an array of HTTP statuses from 400 to 499, or 503")]
    NotApplied,
    /// A placeholder that has no value before the call.
    #[error("{0} does not exist before the call")]
    Placeholder(&'static str),
}

/// A parsed and checked upstream endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    call: FnBody,
    not_applied: Vec<u16>,
}

impl Upstream {
    /// Reads and checks an endpoint.
    ///
    /// # Errors
    /// An unknown field, a missing one, or a value that a field cannot have.
    pub fn parse(node: &Node) -> Result<Self, UpstreamError> {
        let Node::Object(members) = node else { return Err(UpstreamError::NotAnObject) };
        let mut call = Vec::new();
        for (key, value) in members {
            match key.as_str() {
                "not_applied_statuses" => {}
                known if CALL_FIELDS.contains(&known) => call.push((key.clone(), value.clone())),
                other => return Err(UpstreamError::UnknownField(other.chars().take(64).collect())),
            }
        }
        let call = FnBody::parse(&Node::Object(call))?;
        let refused = [
            ("{result}", call.needs_result()),
            ("{comp}", call.any(|p| matches!(p, Placeholder::Comp(_)))),
            ("{undo_id}", call.any(|p| matches!(p, Placeholder::UndoId))),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, is_used)| *is_used) {
            return Err(UpstreamError::Placeholder(name));
        }
        Ok(Self { call, not_applied: not_applied(node)? })
    }

    /// Fills the call in. Secrets stay markers.
    ///
    /// # Errors
    /// The first placeholder that has no value, or whose value cannot stand where it is put.
    pub fn render(
        &self,
        args: &Node,
        session_id: Uuid,
        effect_id: Uuid,
    ) -> Result<RenderedCall, RenderError> {
        // Without a mapping the body of a call is what a compensation's arguments would be.
        let context =
            Context { args, result: None, comp: args, session_id, effect_id, undo_id: effect_id };
        self.call.render(&context)
    }

    /// What an answer means.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.call.rules
    }

    /// Whether this answer says that nothing was changed: a registration lists it, or it is 429,
    /// which turns the call away before anything is done.
    #[must_use]
    pub fn is_not_applied(&self, status: u16) -> bool {
        status == 429 || self.not_applied.contains(&status)
    }

    /// How long the call may take.
    #[must_use]
    pub const fn timeout_ms(&self) -> u64 {
        self.call.timeout_ms
    }
}

fn not_applied(node: &Node) -> Result<Vec<u16>, UpstreamError> {
    let items = match node.member("not_applied_statuses") {
        None | Some(Node::Null) => return Ok(Vec::new()),
        Some(Node::Array(items)) => items,
        Some(_) => return Err(UpstreamError::NotApplied),
    };
    let status = |item: &Node| {
        let status = item.as_u64().and_then(|status| u16::try_from(status).ok());
        // Of the server's own failures one alone can say that it did nothing.
        let fits = |status: &u16| (400..500).contains(status) || *status == 503;
        status.filter(fits).ok_or(UpstreamError::NotApplied)
    };
    items.iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse_lossless;

    fn parse(text: &str) -> Result<Upstream, UpstreamError> {
        Upstream::parse(&parse_lossless(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn a_call_is_filled_in_and_keyed_by_its_effect() {
        let upstream = parse(
            r#"{"endpoint":"https://x.example/a/{args.id}","arg_mapping":{"n":"{args.n}"},
                "not_applied_statuses":[404,422]}"#,
        )
        .expect("an endpoint");
        let args = parse_lossless(br#"{"id":"i/1","n":1.50}"#).expect("JSON");
        let (session, effect) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let call = upstream.render(&args, session, effect).expect("renders");
        assert_eq!(call.shown_url(), "https://x.example/a/i%2F1");
        assert_eq!(call.body.as_ref().expect("a body").to_text_exact(), r#"{"n":1.50}"#);
        let key = ("Idempotency-Key".to_owned(), effect.to_string());
        assert!(call.shown_headers().contains(&key));
        assert!(upstream.is_not_applied(404) && !upstream.is_not_applied(400));
        let whole = parse(r#"{"endpoint":"https://x.example/a"}"#).expect("an endpoint");
        let call = whole.render(&args, session, effect).expect("renders");
        assert_eq!(call.body.as_ref().expect("a body").to_text_exact(), r#"{"id":"i/1","n":1.50}"#);
    }

    #[test]
    fn what_cannot_be_known_before_the_call_is_refused() {
        for (text, expected) in [
            ("[]", UpstreamError::NotAnObject),
            (r#"{"repeatable":true}"#, UpstreamError::UnknownField("repeatable".to_owned())),
            (
                r#"{"endpoint":"https://x.example/{result.id}"}"#,
                UpstreamError::Placeholder("{result}"),
            ),
            (
                r#"{"endpoint":"https://x.example/{undo_id}"}"#,
                UpstreamError::Placeholder("{undo_id}"),
            ),
            (
                r#"{"endpoint":"https://x.example/","not_applied_statuses":[500]}"#,
                UpstreamError::NotApplied,
            ),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        assert!(matches!(parse("{}"), Err(UpstreamError::Call(FnBodyError::MissingField(_)))));
    }
}

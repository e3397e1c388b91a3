//! The registry's `fn_body`: how a compensation is called over HTTP.

mod call;
mod check;
mod form;
mod parse;
mod render;
mod wire;

pub use call::{Encoding, Piece, RenderedCall, ResolveError, ResolvedCall};
pub use parse::FnBodyError;

use crate::answer::Rules;
use crate::json::{Node, canonical};
use crate::names::named_enum;
use crate::template::url::UrlTemplate;
use crate::template::{Placeholder, Template, TreeTemplate};

pub use crate::template::url::UrlError;

named_enum! {
    /// The HTTP methods that a compensation may use.
    pub enum Method {
        /// GET, which never has a body.
        Get => "GET",
        /// POST
        Post => "POST",
        /// PUT
        Put => "PUT",
        /// PATCH
        Patch => "PATCH",
        /// DELETE
        Delete => "DELETE",
    }
}

named_enum! {
    /// What a call's body is.
    pub enum BodyKind {
        /// JSON.
        Json => "json",
        /// `application/x-www-form-urlencoded`.
        Form => "form",
        /// There is none, and no content type.
        None => "none",
    }
}

named_enum! {
    /// What becomes of an entry whose template needs a result that does not exist.
    pub enum OnMissingResult {
        /// Skip after a reported failure, dead letter for an unknown effect.
        Auto => "auto",
        /// A dead letter.
        DeadLetter => "dead_letter",
        /// Skip.
        Skip => "skip",
        /// Call with null.
        Null => "null",
    }
}

named_enum! {
    /// What becomes of an entry whose effect is unknown.
    pub enum OnUnknown {
        /// Call the compensation (documented).
        Compensate => "compensate",
        /// Ask the tool's probe first.
        Probe => "probe",
        /// A dead letter.
        DeadLetter => "dead_letter",
    }
}

/// A parsed and checked `fn_body`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FnBody {
    /// The method.
    pub method: Method,
    pub(crate) endpoint: UrlTemplate,
    pub(crate) headers: Vec<(String, Template)>,
    pub(crate) arg_mapping: Option<TreeTemplate>,
    /// What the body is.
    pub body: BodyKind,
    /// The header that carries the undo id.
    pub idempotency_key_header: String,
    /// How long one call may take.
    pub timeout_ms: u64,
    /// What an answer means.
    pub rules: Rules,
    /// What becomes of an entry whose template needs a missing result.
    pub on_missing_result: OnMissingResult,
    /// What becomes of an entry whose effect is unknown.
    pub on_unknown: OnUnknown,
    /// A late commit may run the compensation again under a new undo id.
    pub repeatable: bool,
}

impl FnBody {
    /// Whether a template of the call reads the result.
    #[must_use]
    pub fn needs_result(&self) -> bool {
        self.any(|placeholder| matches!(placeholder, Placeholder::Result(_)))
    }

    /// Whether the call uses the compensation's arguments: in a template, or as its whole body.
    #[must_use]
    pub fn uses_comp(&self) -> bool {
        let is_body = self.arg_mapping.is_none() && self.body != BodyKind::None;
        is_body || self.any(|placeholder| matches!(placeholder, Placeholder::Comp(_)))
    }

    /// The names of the secrets that the call needs, each once.
    #[must_use]
    pub fn secret_names(&self) -> Vec<String> {
        let names = std::cell::RefCell::new(std::collections::BTreeSet::new());
        // Every placeholder is visited, since none of them ends the search.
        self.any(|placeholder| {
            if let Placeholder::Secret(name) = placeholder {
                names.borrow_mut().insert(name.clone());
            }
            false
        });
        names.into_inner().into_iter().collect()
    }

    /// `https://host:port` of the endpoint, which no value can change.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.endpoint.origin()
    }

    pub(crate) fn any(&self, test: impl Fn(&Placeholder) -> bool + Copy) -> bool {
        self.endpoint.any(test)
            || self.headers.iter().any(|(_, template)| template.any(test))
            || self.arg_mapping.as_ref().is_some_and(|tree| tree.any(&test))
    }
}

/// The digest of an `fn_body`, kept on every attempt: 64 lower-case hex characters over its
/// canonical form.
#[must_use]
pub fn digest(fn_body: &Node) -> String {
    blake3::hash(canonical(fn_body).as_bytes()).to_hex().to_string()
}

//! Templates of compensations: `{args.x}`, `{result.x}`, `{comp.x}`, ids and secrets.
//!
//! A template is parsed once into segments and values are put between them, so that an inserted
//! value is never scanned for placeholders again. `{{` and `}}` stand for the braces themselves.
//!
//! There are two dialects. Every `{…}` must be a placeholder that exists, since a typo that was
//! taken as text would undo something else, or nothing, and look like success. In a descriptor's
//! args, which callers write, a bare `{x}` means `{args.x}`, ids and `{comp.…}` are arguments of
//! that name, and secrets do not exist, so that no caller can reach for one.

mod budget;
mod context;
mod descriptor;
mod parse;
mod tree;
pub(crate) mod url;

use crate::limits::RENDERED_BYTES_MAX;
use std::fmt;

pub use context::Context;
pub use descriptor::{
    Pending, PendingSegment, RenderedArgs, check_descriptor, complete, pending_from_node,
    pending_to_node, render_descriptor,
};
pub use tree::TreeTemplate;

pub(crate) use budget::Budget;
pub(crate) use context::{Lookup, Source, Value};

/// Which placeholders exist in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The registry's `fn_body`.
    FnBody,
    /// A descriptor's args.
    Descriptor,
}

/// A path into a value: keys, and indexes of arrays.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path(Vec<String>);

impl Path {
    /// From dotted text; the empty text is the value itself.
    #[must_use]
    pub fn from_dotted(text: &str) -> Self {
        let steps = text.split('.').filter(|_| !text.is_empty());
        Self(steps.map(str::to_owned).collect())
    }

    /// The steps from the root.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// What a `{…}` stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placeholder {
    /// A value of the call's arguments.
    Args(Path),
    /// A value of the result's output.
    Result(Path),
    /// A value of the compensation's rendered arguments.
    Comp(Path),
    /// The session's id.
    SessionId,
    /// The effect's id.
    EffectId,
    /// The undo entry's id.
    UndoId,
    /// A secret that only the worker knows.
    Secret(String),
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dotted = |f: &mut fmt::Formatter<'_>, name: &str, path: &Path| match path.0.is_empty() {
            true => write!(f, "{{{name}}}"),
            false => write!(f, "{{{name}.{path}}}"),
        };
        match self {
            Self::Args(path) => dotted(f, "args", path),
            Self::Result(path) => dotted(f, "result", path),
            Self::Comp(path) => dotted(f, "comp", path),
            Self::SessionId => f.write_str("{session_id}"),
            Self::EffectId => f.write_str("{effect_id}"),
            Self::UndoId => f.write_str("{undo_id}"),
            Self::Secret(name) => write!(f, "{{secret:{name}}}"),
        }
    }
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Text that stands as it is.
    Lit(String),
    /// A value.
    Put(Placeholder),
}

/// A parsed template of one string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub(crate) segments: Vec<Segment>,
}

/// A text that is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `{` that opens no placeholder.
    #[error("{found:?} is no placeholder; write {{{{ and }}}} for braces")]
    Shape {
        /// The text from the brace on, cut.
        found: String,
    },
    /// A placeholder that does not exist here.
    #[error("{{{name}}} does not exist here")]
    Unknown {
        /// What stands between the braces.
        name: String,
    },
}

impl Template {
    /// Parses a template of the registry's `fn_body`.
    ///
    /// # Errors
    /// A brace that opens no placeholder, or a placeholder that does not exist.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        parse::parse(text, Dialect::FnBody)
    }

    /// Parses a template of a descriptor's args.
    ///
    /// # Errors
    /// A placeholder that does not exist in descriptors, such as a secret.
    pub fn parse_descriptor(text: &str) -> Result<Self, TemplateError> {
        parse::parse(text, Dialect::Descriptor)
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Put(placeholder) => Some(placeholder),
            Segment::Lit(_) => None,
        })
    }

    /// The placeholder, when it is the whole template: its value keeps its JSON type.
    pub(crate) fn alone(&self) -> Option<&Placeholder> {
        match &self.segments[..] {
            [Segment::Put(placeholder)] => Some(placeholder),
            _ => None,
        }
    }
}

/// Why a template could not be filled in. Every variant names the placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The arguments have no such value.
    #[error("the call's arguments have no {placeholder}")]
    MissingArg {
        /// The placeholder.
        placeholder: String,
    },
    /// There is no result, or it has no such value.
    #[error("there is no {placeholder}")]
    MissingResult {
        /// The placeholder.
        placeholder: String,
        /// A result exists and lacks the value: no later report will bring it.
        has_result: bool,
    },
    /// The compensation's arguments have no such value.
    #[error("the compensation's arguments have no {placeholder}")]
    MissingComp {
        /// The placeholder.
        placeholder: String,
    },
    /// A value that cannot stand in a URL or header: null, an array or an object.
    #[error("{placeholder} is no text or number, and stands in a URL or header")]
    NotText {
        /// The placeholder.
        placeholder: String,
    },
    /// A value that would change the URL's structure.
    #[error("the URL's part {part:?} would become empty or a dot segment")]
    UrlPart {
        /// The part of the template.
        part: String,
    },
    /// A value that cannot stand in a header.
    #[error("the header {header} would hold a character that headers cannot carry")]
    HeaderValue {
        /// The header's name.
        header: String,
    },
    /// A body that is sent as a form and has no fields.
    #[error("the body cannot be sent as a form: {why}")]
    NotAForm {
        /// Why.
        why: &'static str,
    },
    /// A value that would make the whole too large.
    #[error("with {placeholder} this would become larger than {} bytes", RENDERED_BYTES_MAX)]
    TooLarge {
        /// The placeholder.
        placeholder: String,
    },
    /// A placeholder that does not exist in a descriptor.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl RenderError {
    /// Whether the template waits for a result that a later report may bring.
    #[must_use]
    pub const fn is_missing_result(&self) -> bool {
        matches!(self, Self::MissingResult { .. })
    }
}

//! Where the values of a template come from.

use std::borrow::Cow;

use uuid::Uuid;

use super::{Placeholder, RenderError, Segment, Template};
use crate::json::{Node, Text};

/// The values of one compensation call.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The call's arguments (the approved ones, where they were edited).
    pub args: &'a Node,
    /// The result's output, if the attempt has one.
    pub result: Option<&'a Node>,
    /// The compensation's rendered arguments.
    pub comp: &'a Node,
    /// The session.
    pub session_id: Uuid,
    /// The effect.
    pub effect_id: Uuid,
    /// The undo entry: also the idempotency key.
    pub undo_id: Uuid,
}

/// Where a template's values come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A call that is about to be made.
    Call {
        /// Its values.
        context: Context<'a>,
        /// A missing result is null (`on_missing_result: null`).
        null_for_missing: bool,
    },
    /// A check at Intercept: only the arguments are known, everything else is some text.
    Args(&'a Node),
    /// A check at Intercept: only the compensation's arguments are known.
    Comp(&'a Node),
}

/// One looked-up value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    /// A JSON value.
    Node(Cow<'a, Node>),
    /// A secret that the worker puts in later.
    Secret(&'a str),
}

/// Looks placeholders up in a source.
pub(crate) trait Lookup {
    /// The value of a placeholder.
    fn get<'a>(&'a self, placeholder: &'a Placeholder) -> Result<Value<'a>, RenderError>;
}

impl Lookup for Source<'_> {
    fn get<'a>(&'a self, placeholder: &'a Placeholder) -> Result<Value<'a>, RenderError> {
        let missing = || placeholder.to_string();
        let node = match (placeholder, self) {
            (Placeholder::Secret(name), _) => return Ok(Value::Secret(name)),
            (Placeholder::Args(path), Self::Call { context: Context { args, .. }, .. })
            | (Placeholder::Args(path), Self::Args(args)) => args
                .get(path.steps())
                .ok_or_else(|| RenderError::MissingArg { placeholder: missing() })?,
            (Placeholder::Comp(path), Self::Call { context: Context { comp, .. }, .. })
            | (Placeholder::Comp(path), Self::Comp(comp)) => comp
                .get(path.steps())
                .ok_or_else(|| RenderError::MissingComp { placeholder: missing() })?,
            (Placeholder::Result(path), Self::Call { context, null_for_missing }) => {
                match context.result.and_then(|result| result.get(path.steps())) {
                    Some(node) => node,
                    None if *null_for_missing => &Node::Null,
                    None => {
                        return Err(RenderError::MissingResult {
                            placeholder: missing(),
                            has_result: context.result.is_some(),
                        });
                    }
                }
            }
            (Placeholder::SessionId, Self::Call { context, .. }) => return id(context.session_id),
            (Placeholder::EffectId, Self::Call { context, .. }) => return id(context.effect_id),
            (Placeholder::UndoId, Self::Call { context, .. }) => return id(context.undo_id),
            (_, Self::Args(_) | Self::Comp(_)) => return text("x"),
        };
        Ok(Value::Node(Cow::Borrowed(node)))
    }
}

fn id<'a>(id: Uuid) -> Result<Value<'a>, RenderError> {
    text(id.to_string())
}

fn text<'a>(text: impl Into<String>) -> Result<Value<'a>, RenderError> {
    Ok(Value::Node(Cow::Owned(Node::string(text))))
}

/// A value between other text: strings as they are, everything else as its JSON text, numbers as
/// they were written.
pub(crate) fn as_text(node: &Node) -> Text {
    match node {
        Node::String(text) => text.clone(),
        other => Text::new(other.to_text_exact()),
    }
}

impl Template {
    /// Whether the template holds a placeholder of this kind.
    pub(crate) fn any(&self, test: impl Fn(&Placeholder) -> bool) -> bool {
        self.segments.iter().any(|s| matches!(s, Segment::Put(p) if test(p)))
    }
}

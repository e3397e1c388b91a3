//! Where the values of a template come from.

use std::borrow::Cow;

use uuid::Uuid;

use super::{Budget, Placeholder, RenderError, Segment, Template};
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

/// Where a template's values come from, for one rendering.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    of: Of<'a>,
    budget: Budget,
}

impl<'a> Source<'a> {
    /// A call that is about to be made; `null_for_missing`: a missing result is null.
    pub(crate) const fn call(context: Context<'a>, null_for_missing: bool) -> Self {
        Self { of: Of::Call { context, null_for_missing }, budget: Budget::new() }
    }

    /// A check at Intercept: only the arguments are known, everything else is some text.
    pub(crate) const fn args(args: &'a Node) -> Self {
        Self { of: Of::Args(args), budget: Budget::new() }
    }

    /// A check at Intercept: only the compensation's arguments are known.
    pub(crate) const fn comp(comp: &'a Node) -> Self {
        Self { of: Of::Comp(comp), budget: Budget::new() }
    }
}

#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Call { context: Context<'a>, null_for_missing: bool },
    Args(&'a Node),
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
        let node = match (placeholder, &self.of) {
            (Placeholder::Secret(name), _) => return Ok(Value::Secret(name)),
            (Placeholder::Args(path), Of::Call { context: Context { args, .. }, .. })
            | (Placeholder::Args(path), Of::Args(args)) => args
                .get(path.steps())
                .ok_or_else(|| RenderError::MissingArg { placeholder: missing() })?,
            (Placeholder::Comp(path), Of::Call { context: Context { comp, .. }, .. })
            | (Placeholder::Comp(path), Of::Comp(comp)) => comp
                .get(path.steps())
                .ok_or_else(|| RenderError::MissingComp { placeholder: missing() })?,
            (Placeholder::Result(path), Of::Call { context, null_for_missing }) => {
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
            (Placeholder::SessionId, Of::Call { context, .. }) => return id(context.session_id),
            (Placeholder::EffectId, Of::Call { context, .. }) => return id(context.effect_id),
            (Placeholder::UndoId, Of::Call { context, .. }) => return id(context.undo_id),
            (_, Of::Args(_) | Of::Comp(_)) => return text("x"),
        };
        self.budget.take(node, missing)?;
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

//! A descriptor's args, filled in twice: with the arguments at Intercept, so that they survive the
//! caller, and with the result when the compensation is called.

use std::collections::BTreeMap;

use super::context::as_text;
use super::tree::join;
use super::{Budget, Path, Placeholder, RenderError, Segment, Template};
use crate::json::{Joined, Node, Text};

/// A part of a string that waits for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingSegment {
    /// Text that stands as it is, the call's arguments included.
    Lit(String),
    /// A dotted path into the result's output; empty is the whole output.
    Result(String),
}

/// The strings that wait for a result, by JSON pointer into the args. They are kept as segments:
/// an argument that itself reads `{result.id}` is never taken for a placeholder.
pub type Pending = BTreeMap<String, Vec<PendingSegment>>;

/// A descriptor's args with the call's arguments filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedArgs {
    /// The args; a string that waits for a result still shows its `{result.…}`.
    pub args: Node,
    /// The strings that wait for a result.
    pub pending: Pending,
}

impl RenderedArgs {
    /// Whether anything waits for a result.
    #[must_use]
    pub fn needs_result(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Fills a descriptor's args in with the call's arguments, at Intercept.
///
/// # Errors
/// A placeholder that does not exist in descriptors, or an argument that the call does not have.
pub fn render_descriptor(template: &Node, call_args: &Node) -> Result<RenderedArgs, RenderError> {
    let mut pending = Pending::new();
    let values = Values { of: call_args, budget: Budget::new() };
    let args = fill(template, &values, "", &mut pending)?;
    Ok(RenderedArgs { args, pending })
}

/// Checks that a descriptor's args have no placeholder that does not exist in descriptors, for who
/// registers them before there is a call.
///
/// # Errors
/// The first such placeholder, or a brace that opens or ends none.
pub fn check_descriptor(template: &Node) -> Result<(), RenderError> {
    match template {
        Node::String(text) if text.is_exact() => {
            Template::parse_descriptor(text.as_str())?;
            Ok(())
        }
        Node::Array(items) => items.iter().try_for_each(check_descriptor),
        Node::Object(members) => members.iter().try_for_each(|(_, value)| check_descriptor(value)),
        _ => Ok(()),
    }
}

/// The call's arguments, for one rendering.
struct Values<'a> {
    of: &'a Node,
    budget: Budget,
}

impl<'a> Values<'a> {
    fn arg(&self, path: &Path) -> Result<&'a Node, RenderError> {
        let placeholder = || Placeholder::Args(path.clone()).to_string();
        let node = self.of.get(path.steps());
        let node = node.ok_or_else(|| RenderError::MissingArg { placeholder: placeholder() })?;
        self.budget.take(node, placeholder)?;
        Ok(node)
    }
}

fn fill(
    node: &Node,
    call_args: &Values<'_>,
    pointer: &str,
    pending: &mut Pending,
) -> Result<Node, RenderError> {
    Ok(match node {
        Node::String(text) if text.is_exact() => {
            let template = Template::parse_descriptor(text.as_str())?;
            fill_string(&template, call_args, pointer, pending)?
        }
        Node::Array(items) => {
            let mut filled = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                filled.push(fill(item, call_args, &format!("{pointer}/{index}"), pending)?);
            }
            Node::Array(filled)
        }
        Node::Object(members) => {
            let mut filled = Vec::with_capacity(members.len());
            for (key, value) in members {
                let pointer = join(pointer, key.as_str());
                filled.push((key.clone(), fill(value, call_args, &pointer, pending)?));
            }
            Node::Object(filled)
        }
        fixed => fixed.clone(),
    })
}

fn fill_string(
    template: &Template,
    call_args: &Values<'_>,
    pointer: &str,
    pending: &mut Pending,
) -> Result<Node, RenderError> {
    if let Some(Placeholder::Args(path)) = template.alone() {
        return call_args.arg(path).cloned();
    }
    let mut segments = Vec::new();
    let mut lit = String::new();
    let mut shown = Joined::default();
    for segment in &template.segments {
        let piece = match segment {
            Segment::Lit(text) => Text::new(text.as_str()),
            Segment::Put(Placeholder::Args(path)) => as_text(call_args.arg(path)?),
            Segment::Put(Placeholder::Result(path)) => {
                if !lit.is_empty() {
                    segments.push(PendingSegment::Lit(std::mem::take(&mut lit)));
                }
                segments.push(PendingSegment::Result(path.to_string()));
                let placeholder = Placeholder::Result(path.clone());
                shown.push(&Text::new(placeholder.to_string()));
                continue;
            }
            // The descriptor's dialect makes no other placeholder.
            Segment::Put(other) => {
                return Err(super::TemplateError::Unknown { name: other.to_string() }.into());
            }
        };
        lit.push_str(piece.as_str());
        shown.push(&piece);
    }
    if !segments.is_empty() {
        if !lit.is_empty() {
            segments.push(PendingSegment::Lit(lit));
        }
        pending.insert(pointer.to_owned(), segments);
    }
    Ok(Node::String(shown.finish()))
}

/// Fills the waiting strings in with the result's output, when the compensation is called. With
/// `null_for_missing` (`on_missing_result: null`) a missing value is null.
///
/// # Errors
/// `MissingResult` for the first value that does not exist.
pub fn complete(
    args: &Node,
    pending: &Pending,
    result: Option<&Node>,
    null_for_missing: bool,
) -> Result<Node, RenderError> {
    let budget = Budget::new();
    complete_at(args, "", pending, &|path| {
        let path = Path::from_dotted(path);
        match result.and_then(|result| result.get(path.steps())) {
            Some(node) => {
                budget.take(node, || Placeholder::Result(path).to_string())?;
                Ok(node.clone())
            }
            None if null_for_missing => Ok(Node::Null),
            None => Err(RenderError::MissingResult {
                placeholder: Placeholder::Result(path).to_string(),
                has_result: result.is_some(),
            }),
        }
    })
}

fn complete_at(
    node: &Node,
    pointer: &str,
    pending: &Pending,
    result: &dyn Fn(&str) -> Result<Node, RenderError>,
) -> Result<Node, RenderError> {
    if pending.is_empty() {
        return Ok(node.clone());
    }
    Ok(match node {
        Node::String(_) => match pending.get(pointer).map(Vec::as_slice) {
            None => node.clone(),
            Some([PendingSegment::Result(path)]) => result(path)?,
            Some(segments) => {
                let mut text = Joined::default();
                for segment in segments {
                    let piece = match segment {
                        PendingSegment::Lit(lit) => Text::new(lit.as_str()),
                        PendingSegment::Result(path) => as_text(&result(path)?),
                    };
                    text.push(&piece);
                }
                Node::String(text.finish())
            }
        },
        Node::Array(items) => {
            let mut done = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                done.push(complete_at(item, &format!("{pointer}/{index}"), pending, result)?);
            }
            Node::Array(done)
        }
        Node::Object(members) => {
            let mut done = Vec::with_capacity(members.len());
            for (key, value) in members {
                let pointer = join(pointer, key.as_str());
                done.push((key.clone(), complete_at(value, &pointer, pending, result)?));
            }
            Node::Object(done)
        }
        fixed => fixed.clone(),
    })
}

/// The waiting strings as JSON, for their column: `{"/a": [{"lit": "x"}, {"result": "id"}]}`.
#[must_use]
pub fn pending_to_node(pending: &Pending) -> Node {
    let segment = |segment: &PendingSegment| {
        let (key, text) = match segment {
            PendingSegment::Lit(text) => ("lit", text),
            PendingSegment::Result(path) => ("result", path),
        };
        Node::Object(vec![(Text::new(key), Node::string(text.as_str()))])
    };
    let members = pending.iter().map(|(pointer, segments)| {
        (Text::new(pointer.as_str()), Node::Array(segments.iter().map(segment).collect()))
    });
    Node::Object(members.collect())
}

/// Reads the column back; `None` when it is not what `pending_to_node` writes.
#[must_use]
pub fn pending_from_node(node: &Node) -> Option<Pending> {
    let Node::Object(members) = node else { return None };
    let mut pending = Pending::new();
    for (pointer, segments) in members {
        let Node::Array(segments) = segments else { return None };
        let segments = segments.iter().map(|segment| {
            let Node::Object(members) = segment else { return None };
            let [(key, value)] = &members[..] else { return None };
            match key.as_str() {
                "lit" => Some(PendingSegment::Lit(value.as_str()?.to_owned())),
                "result" => Some(PendingSegment::Result(value.as_str()?.to_owned())),
                _ => None,
            }
        });
        pending.insert(pointer.as_str().to_owned(), segments.collect::<Option<_>>()?);
    }
    Some(pending)
}

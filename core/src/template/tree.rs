//! A JSON value whose strings are templates: `arg_mapping`.

use super::context::as_text;
use super::{Lookup, Placeholder, RenderError, Segment, Source, Template, TemplateError, Value};
use crate::fn_body::Piece;
use crate::json::{Joined, Node, Text};

/// A JSON value whose strings are templates. Keys are never templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeTemplate(Tree);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tree {
    Fixed(Node),
    Text(Template),
    Array(Vec<Tree>),
    Object(Vec<(Text, Tree)>),
}

impl TreeTemplate {
    /// Parses every string of a value as a template of `fn_body`.
    ///
    /// # Errors
    /// The first string that is no template.
    pub fn parse(node: &Node) -> Result<Self, TemplateError> {
        Tree::parse(node).map(Self)
    }

    /// Whether the tree holds a placeholder of this kind.
    pub(crate) fn any(&self, test: &dyn Fn(&Placeholder) -> bool) -> bool {
        self.0.any(test)
    }

    /// Fills the tree in. Strings that hold a secret are shown with the secret's placeholder, and
    /// their pieces are added to `secrets` by JSON pointer.
    pub(crate) fn render(
        &self,
        source: &Source<'_>,
        secrets: &mut Vec<(String, Vec<Piece>)>,
    ) -> Result<Node, RenderError> {
        self.0.render(source, "", secrets)
    }
}

impl Tree {
    fn parse(node: &Node) -> Result<Self, TemplateError> {
        Ok(match node {
            Node::String(text) => Self::Text(Template::parse(text.as_str())?),
            Node::Array(items) => {
                Self::Array(items.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Node::Object(members) => {
                let members = members.iter().map(|(k, v)| Ok((k.clone(), Self::parse(v)?)));
                Self::Object(members.collect::<Result<_, _>>()?)
            }
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    fn any(&self, test: &dyn Fn(&Placeholder) -> bool) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Text(template) => template.any(test),
            Self::Array(items) => items.iter().any(|item| item.any(test)),
            Self::Object(members) => members.iter().any(|(_, value)| value.any(test)),
        }
    }

    fn render(
        &self,
        source: &Source<'_>,
        pointer: &str,
        secrets: &mut Vec<(String, Vec<Piece>)>,
    ) -> Result<Node, RenderError> {
        match self {
            Self::Fixed(node) => Ok(node.clone()),
            Self::Text(template) => render_string(template, source, pointer, secrets),
            Self::Array(items) => {
                let mut rendered = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    rendered.push(item.render(source, &format!("{pointer}/{index}"), secrets)?);
                }
                Ok(Node::Array(rendered))
            }
            Self::Object(members) => {
                let mut rendered = Vec::with_capacity(members.len());
                for (key, value) in members {
                    let pointer = join(pointer, key.as_str());
                    rendered.push((key.clone(), value.render(source, &pointer, secrets)?));
                }
                Ok(Node::Object(rendered))
            }
        }
    }
}

/// A JSON pointer (RFC 6901) to a member.
pub(super) fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn render_string(
    template: &Template,
    source: &Source<'_>,
    pointer: &str,
    secrets: &mut Vec<(String, Vec<Piece>)>,
) -> Result<Node, RenderError> {
    if let Some(placeholder) = template.alone()
        && let Value::Node(node) = source.get(placeholder)?
    {
        return Ok(node.into_owned());
    }
    let mut text = Joined::default();
    let mut pieces = Vec::new();
    let mut has_secret = false;
    for segment in &template.segments {
        let piece = match segment {
            Segment::Lit(lit) => Text::new(lit.as_str()),
            Segment::Put(placeholder) => match source.get(placeholder)? {
                Value::Node(node) => as_text(&node),
                Value::Secret(name) => {
                    has_secret = true;
                    text.push(&Text::new(placeholder.to_string()));
                    pieces.push(Piece::Secret(name.to_owned()));
                    continue;
                }
            },
        };
        text.push(&piece);
        pieces.push(Piece::Text(piece.as_str().to_owned()));
    }
    if has_secret {
        secrets.push((pointer.to_owned(), pieces));
    }
    Ok(Node::String(text.finish()))
}

//! Fills a call in.

use super::call::is_header_value;
use super::{BodyKind, Encoding, FnBody, OnMissingResult, Piece, RenderedCall, form};
use crate::json::Node;
use crate::template::url::scalar;
use crate::template::{
    Context, Lookup, Placeholder, RenderError, RenderedArgs, Segment, Source, Template, Value,
};

impl FnBody {
    /// Fills the call in for one undo entry. Secrets stay markers.
    ///
    /// # Errors
    /// The first placeholder that has no value, or whose value cannot stand where it is put.
    pub fn render(&self, context: &Context<'_>) -> Result<RenderedCall, RenderError> {
        let null_for_missing = self.on_missing_result == OnMissingResult::Null;
        let source = Source::call(*context, null_for_missing);
        let mut body_secrets = Vec::new();
        let body = match (&self.arg_mapping, self.body) {
            (_, BodyKind::None) => None,
            (Some(tree), _) => Some(tree.render(&source, &mut body_secrets)?),
            (None, _) => Some(context.comp.clone()),
        };
        let encoding = match self.body {
            BodyKind::Form => Encoding::Form,
            BodyKind::Json | BodyKind::None => Encoding::Json,
        };
        if let (Encoding::Form, Some(body)) = (encoding, &body) {
            form::check(body)?;
        }
        let mut headers = self.render_headers(&source)?;
        let key = Piece::Text(context.undo_id.to_string());
        headers.push((self.idempotency_key_header.clone(), vec![key]));
        let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if body.is_some() && !has_type {
            let media_type = Piece::Text(encoding.media_type().to_owned());
            headers.push(("Content-Type".to_owned(), vec![media_type]));
        }
        Ok(RenderedCall {
            method: self.method,
            url: self.endpoint.render(&source)?,
            headers,
            body,
            encoding,
            body_secrets,
            timeout_ms: self.timeout_ms,
        })
    }

    /// Whether every `{args.…}` of the call can be filled in with these arguments, and can stand
    /// where it is put: checked at Intercept, so that no effect is granted that cannot be undone.
    ///
    /// # Errors
    /// The first one that cannot.
    pub fn args_placeholders_render(&self, args: &Node) -> Result<(), RenderError> {
        self.trial(&Source::args(args), |placeholder| matches!(placeholder, Placeholder::Args(_)))
    }

    /// The same for every `{comp.…}`. A value that waits for a result counts as there.
    ///
    /// # Errors
    /// The first one that cannot be filled in.
    pub fn comp_placeholders_render(&self, comp: &RenderedArgs) -> Result<(), RenderError> {
        let source = Source::comp(&comp.args);
        self.trial(&source, |placeholder| matches!(placeholder, Placeholder::Comp(_)))
    }

    fn trial(
        &self,
        source: &Source<'_>,
        concerns: impl Fn(&Placeholder) -> bool + Copy,
    ) -> Result<(), RenderError> {
        if self.endpoint.any(concerns) {
            self.endpoint.render(source)?;
        }
        if self.headers.iter().any(|(_, template)| template.any(concerns)) {
            self.render_headers(source)?;
        }
        if let Some(tree) = &self.arg_mapping {
            tree.render(source, &mut Vec::new())?;
        }
        Ok(())
    }

    fn render_headers(
        &self,
        source: &Source<'_>,
    ) -> Result<Vec<(String, Vec<Piece>)>, RenderError> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| Ok((name.clone(), header(name, value, source)?))).collect()
    }
}

fn header(name: &str, template: &Template, source: &Source<'_>) -> Result<Vec<Piece>, RenderError> {
    let mut pieces = Vec::new();
    for segment in &template.segments {
        let text = match segment {
            Segment::Lit(lit) => lit.clone(),
            Segment::Put(placeholder) => match source.get(placeholder)? {
                Value::Node(node) => scalar(&node, placeholder)?,
                Value::Secret(secret) => {
                    pieces.push(Piece::Secret(secret.to_owned()));
                    continue;
                }
            },
        };
        if !is_header_value(&text) {
            return Err(RenderError::HeaderValue { header: name.to_owned() });
        }
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

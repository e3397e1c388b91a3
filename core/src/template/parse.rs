//! Reads a template's text into segments.

use super::{Dialect, Path, Placeholder, Segment, Template, TemplateError};

pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Template, TemplateError> {
    let mut segments = Vec::new();
    let mut lit = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        lit.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            lit.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            lit.push('}');
            rest = after;
        } else if let Some((name, after)) = shape(rest) {
            let placeholder = resolve(name, dialect)
                .ok_or_else(|| TemplateError::Unknown { name: name.to_owned() })?;
            if !lit.is_empty() {
                segments.push(Segment::Lit(std::mem::take(&mut lit)));
            }
            segments.push(Segment::Put(placeholder));
            rest = after;
        } else {
            // Also in a descriptor: taken as text, a slip of the pen would undo something else.
            let found = rest.chars().take(32).collect();
            return Err(TemplateError::Shape { found });
        }
    }
    lit.push_str(rest);
    if !lit.is_empty() || segments.is_empty() {
        segments.push(Segment::Lit(lit));
    }
    Ok(Template { segments })
}

/// The name between braces and the text behind them, when it has the shape of a placeholder:
/// words joined by dots, or `secret:NAME`.
fn shape(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    let words = name.strip_prefix("secret:").unwrap_or(name);
    let is_word = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@'))
    };
    words.split('.').all(is_word).then_some((name, after))
}

fn resolve(name: &str, dialect: Dialect) -> Option<Placeholder> {
    let in_fn_body = dialect == Dialect::FnBody;
    if let Some(secret) = name.strip_prefix("secret:") {
        let is_name = secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        return (in_fn_body && is_name).then(|| Placeholder::Secret(secret.to_owned()));
    }
    let (head, tail) = name.split_once('.').unwrap_or((name, ""));
    match head {
        "args" => Some(Placeholder::Args(Path::from_dotted(tail))),
        "result" => Some(Placeholder::Result(Path::from_dotted(tail))),
        // A descriptor's bare name is an argument, also one that is called comp or session_id.
        _ if !in_fn_body => Some(Placeholder::Args(Path::from_dotted(name))),
        "comp" => Some(Placeholder::Comp(Path::from_dotted(tail))),
        "session_id" if tail.is_empty() => Some(Placeholder::SessionId),
        "effect_id" if tail.is_empty() => Some(Placeholder::EffectId),
        "undo_id" if tail.is_empty() => Some(Placeholder::UndoId),
        _ => None,
    }
}

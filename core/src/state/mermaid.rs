//! The state machines as Mermaid diagrams, drawn from the tables themselves.

use std::fmt::Write as _;

use super::{approval, dead_letter, effect, rollback, session, undo};
use crate::Tier;

/// All machines as Mermaid text, one `stateDiagram-v2` block each, ready for a Markdown page.
#[must_use]
pub fn mermaid() -> String {
    let mut page = String::new();
    macro_rules! draw {
        ($title:literal, $states:ty, $events:ty, $table:expr) => {{
            let mut rows: Vec<(&str, &str, &str)> = Vec::new();
            let froms = std::iter::once(None).chain(<$states>::ALL.iter().copied().map(Some));
            for from in froms {
                for event in <$events>::ALL.iter().copied() {
                    let to: Option<$states> = $table(from, event);
                    if let Some(to) = to {
                        let from = from.map_or("[*]", |state: $states| state.as_str());
                        rows.push((from, to.as_str(), event.as_str()));
                    }
                }
            }
            diagram(&mut page, $title, &rows);
        }};
    }
    draw!("Session", session::SessionState, session::SessionEvent, session::transition);
    draw!("Effect (compensable)", effect::EffectState, effect::EffectEvent, |f, e| {
        effect::transition(f, e, Tier::Compensable)
    });
    draw!("Effect (irreversible)", effect::EffectState, effect::EffectEvent, |f, e| {
        effect::transition(f, e, Tier::Irreversible)
    });
    draw!("Undo entry", undo::UndoState, undo::UndoEvent, undo::transition);
    draw!("Approval", approval::ApprovalState, approval::ApprovalEvent, approval::transition);
    draw!("Rollback", rollback::RollbackState, rollback::RollbackEvent, rollback::transition);
    draw!(
        "Dead letter",
        dead_letter::DeadLetterState,
        dead_letter::DeadLetterEvent,
        dead_letter::transition
    );
    page
}

fn diagram(page: &mut String, title: &str, rows: &[(&str, &str, &str)]) {
    // Writing to a String cannot fail, so the result says nothing.
    let _ = write!(page, "## {title}\n\n```mermaid\nstateDiagram-v2\n");
    let mut drawn: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for (from, to, event) in rows {
        // Steps that change nothing would hide the picture; the tables list them.
        if from == to {
            continue;
        }
        match drawn.iter_mut().find(|(f, t, _)| f == from && t == to) {
            Some((_, _, events)) => events.push(event),
            None => drawn.push((from, to, vec![event])),
        }
    }
    for (from, to, events) in drawn {
        let _ = writeln!(page, "    {from} --> {to}: {}", events.join(", "));
    }
    page.push_str("```\n\n");
}

//! The session's events: live on the screen, and whole at the end.

use undolog_proto::v1::WatchEventsRequest;

use super::{agent::patient, screen::Screen};
use crate::{
    api::Api,
    commands::sessions,
    error::CliError,
    views::{EventView, SessionDetailView},
};

/// Shows how the session is undone until it is over, through any number of lost streams.
pub(super) async fn until_over(
    api: &Api,
    session_id: &str,
    screen: &Screen,
) -> Result<(), CliError> {
    let session = patient(|| sessions::read(api, session_id)).await?;
    let mut cursor = String::new();
    let mut is_failed = false;
    loop {
        let request = request(api, session_id, &cursor, true);
        let opened = patient(|| async {
            Ok(api.sessions().watch_events(request.clone()).await?.into_inner())
        });
        let mut stream = opened.await?;
        loop {
            match stream.message().await.map_err(CliError::from) {
                Ok(Some(event)) => {
                    cursor.clone_from(&event.cursor);
                    let event = EventView::from(&event);
                    is_failed |=
                        event.to_state.as_deref() == Some("failed") && is_of_session(&event);
                    if is_failed && event.subject != "effect" {
                        screen.event(&event, &call_of(&session, &event))?;
                    }
                    if is_over(&event) {
                        return Ok(());
                    }
                }
                // The engine went away, or a proxy in between cut a long stream.
                Ok(None) | Err(CliError::Unavailable(_)) => break,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The session's whole journal.
pub(super) async fn history(api: &Api, session_id: &str) -> Result<Vec<EventView>, CliError> {
    let request = request(api, session_id, "", false);
    let mut stream = api.sessions().watch_events(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(event) = stream.message().await? {
        events.push(EventView::from(&event));
    }
    Ok(events)
}

fn request(api: &Api, session_id: &str, cursor: &str, follow: bool) -> WatchEventsRequest {
    WatchEventsRequest {
        org_id: api.org(),
        session_id: session_id.to_owned(),
        cursor: cursor.to_owned(),
        follow,
        from_now: false,
    }
}

fn is_over(event: &EventView) -> bool {
    let ends = ["compensated", "halted"];
    is_of_session(event) && event.to_state.as_deref().is_some_and(|to| ends.contains(&to))
}

fn is_of_session(event: &EventView) -> bool {
    event.subject == "session"
}

/// What an undo entry's event is about: the call, and what undoes it.
fn call_of(session: &SessionDetailView, event: &EventView) -> String {
    let entry = session.undo_stack.iter().find(|entry| entry.undo_id == event.subject_id);
    let Some(entry) = entry else { return String::new() };
    let effect = session.effects.iter().find(|effect| effect.effect_id == entry.effect_id);
    let tool = effect.map_or("", |effect| effect.tool_name.as_str());
    format!("{tool} by {}", entry.compensation_fn)
}

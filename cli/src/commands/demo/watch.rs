//! The session's events: live on the screen, and whole at the end.

use undolog_proto::v1::WatchEventsRequest;

use super::{agent::patient, screen::Screen};
use crate::{api::Api, error::CliError, views::EventView};

/// Shows the session's events until it is over, through any number of lost streams.
pub(super) async fn until_over(
    api: &Api,
    session_id: &str,
    screen: &Screen,
) -> Result<(), CliError> {
    let mut cursor = String::new();
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
                    screen.event(&event)?;
                    if is_over(&event) {
                        return Ok(());
                    }
                }
                // The engine went away, or a proxy in between cut a long stream.
                Ok(None) | Err(CliError::Unavailable(_)) => break,
                Err(error) if is_broken_stream(&error) => break,
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
    event.subject == "session" && event.to_state.as_deref().is_some_and(|to| ends.contains(&to))
}

/// A killed server's stream ends with a status of the transport, not of the engine.
fn is_broken_stream(error: &CliError) -> bool {
    matches!(error, CliError::Refused { reason, .. } if reason == "Unknown" || reason == "Internal"
        || reason == "Cancelled")
}

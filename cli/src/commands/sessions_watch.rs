//! `undolog sessions --watch`: the newest sessions, kept up to date.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stdout},
    time::Duration,
};

use undolog_proto::v1::{Event, ListSessionsRequest, WatchEventsRequest};

use crate::{api::Api, error::CliError, out::Out, views::SessionView};

/// Sessions that are watched: the newest, as many as a terminal shows.
const SHOWN: u32 = 20;
/// The shortest time between two looks, however much happens.
const PAUSE: Duration = Duration::from_millis(250);
/// How long to wait before looking for an engine that went away.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Clears the screen and goes to its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Shows the newest sessions in these states whenever something happens, until it is interrupted. A
/// terminal shows a table; elsewhere a line is written for each session that changed.
pub(super) async fn run(api: &Api, states: &[String], out: &Out) -> Result<(), CliError> {
    let is_table = stdout().is_terminal() && !out.is_json();
    let mut known: HashMap<String, String> = HashMap::new();
    loop {
        match follow(api, states, is_table, &mut known, out).await {
            // Engines come and go; what is watched stays.
            Ok(()) | Err(CliError::Unavailable(_)) => tokio::time::sleep(AGAIN_AFTER).await,
            Err(error) => return Err(error),
        }
    }
}

async fn follow(
    api: &Api,
    states: &[String],
    is_table: bool,
    known: &mut HashMap<String, String>,
    out: &Out,
) -> Result<(), CliError> {
    let request = WatchEventsRequest {
        org_id: api.org(),
        follow: true,
        from_now: true,
        ..WatchEventsRequest::default()
    };
    // A stream that follows has no deadline.
    let mut events = api.sessions().watch_events(request).await?.into_inner();
    loop {
        look(api, states, is_table, known, out).await?;
        if events.message().await?.is_none() {
            return Ok(());
        }
        rest(&mut events).await?;
    }
}

/// Much can happen at once: a look is enough for all of it.
async fn rest(events: &mut tonic::Streaming<Event>) -> Result<(), CliError> {
    let pause = tokio::time::sleep(PAUSE);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            () = &mut pause => return Ok(()),
            event = events.message() => if event?.is_none() { return Ok(()) },
        }
    }
}

async fn look(
    api: &Api,
    states: &[String],
    is_table: bool,
    known: &mut HashMap<String, String>,
    out: &Out,
) -> Result<(), CliError> {
    let request = ListSessionsRequest {
        org_id: api.org(),
        states: states.to_vec(),
        page_size: SHOWN,
        ..ListSessionsRequest::default()
    };
    let page = api.sessions().list(api.request(request)).await?.into_inner();
    let views: Vec<SessionView> = page.sessions.iter().map(Into::into).collect();
    if is_table {
        out.line(format!("{CLEAR}the newest {SHOWN} sessions; Ctrl-C ends"))?;
        return out.table(&SessionView::HEADERS, views.iter().map(SessionView::row).collect());
    }
    let mut now = HashMap::new();
    // The oldest first: the last line is about what is newest.
    for view in views.iter().rev() {
        let row = view.row().join("  ");
        if known.get(&view.session_id) != Some(&row) {
            if out.is_json() { out.json_line(view)? } else { out.line(&row)? }
        }
        now.insert(view.session_id.clone(), row);
    }
    *known = now;
    Ok(())
}

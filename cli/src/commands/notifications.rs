//! `undolog queue notifications`: webhooks that were given up, and sending them again.

use clap::{Args, Subcommand};
use serde_json::json;
use undolog_proto::v1::{ListNotificationsRequest, ReplayNotificationsRequest};

use crate::{api::Api, error::CliError, out::Out, paged, views::NotificationView};

/// What to do with webhooks.
#[derive(Debug, Subcommand)]
pub enum NotificationsVerb {
    /// List them, the newest first; those that were given up unless a state is named.
    List(ListArgs),
    /// Send webhooks again that were given up, under the same ids and for another day.
    Replay(ReplayArgs),
}

/// Which to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only in these states: pending, sent, failed.
    #[arg(long = "state", value_delimiter = ',', value_name = "STATE,…")]
    pub states: Vec<String>,
    /// The most to list; 0 lists all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub limit: u32,
}

/// Which to send again.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Their ids.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<String>,
    /// Every one that was given up.
    #[arg(long)]
    pub all: bool,
}

/// Runs the verb.
pub(super) async fn run(api: &Api, verb: NotificationsVerb, out: &Out) -> Result<(), CliError> {
    match verb {
        NotificationsVerb::List(args) => list(api, &args, out).await,
        NotificationsVerb::Replay(args) => replay(api, args, out).await,
    }
}

async fn list(api: &Api, args: &ListArgs, out: &Out) -> Result<(), CliError> {
    let found: Vec<NotificationView> = paged::all(args.limit, async |page_size, page_token| {
        let request = ListNotificationsRequest {
            org_id: api.org(),
            states: args.states.clone(),
            page_size,
            page_token,
        };
        let page = api.operator().list_notifications(api.request(request)).await?.into_inner();
        Ok((page.notifications.iter().map(Into::into).collect(), page.next_page_token))
    })
    .await?;
    if out.is_json() {
        return out.json(&found);
    }
    if found.is_empty() {
        return out.line("no notifications");
    }
    out.table(&NotificationView::HEADERS, found.iter().map(NotificationView::row).collect())
}

async fn replay(api: &Api, args: ReplayArgs, out: &Out) -> Result<(), CliError> {
    let mut replayed = 0_u64;
    loop {
        let request = ReplayNotificationsRequest {
            org_id: api.org(),
            notification_ids: args.ids.clone(),
            all: args.all,
        };
        let answer = api.operator().replay_notifications(api.request(request)).await?.into_inner();
        replayed += u64::from(answer.replayed);
        if !(args.all && answer.more) {
            break;
        }
    }
    if out.is_json() {
        return out.json(&json!({"replayed": replayed}));
    }
    out.line(format!("{replayed} notifications are sent again"))
}

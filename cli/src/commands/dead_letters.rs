//! `undolog dead-letters`: what only a human can settle, one by one or by a filter.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use undolog_proto::v1::{
    DeadLetterFilter, DeadLettersChanged, GetDeadLetterRequest, ListDeadLettersRequest,
    ResolveDeadLettersRequest, RetryDeadLettersRequest, SkipDeadLettersRequest,
};

use super::value;
use crate::{
    api::{Api, ApiArgs},
    confirm::confirm,
    error::CliError,
    input::FileArgs,
    out::Out,
    paged,
    views::{
        ChangeView, ChangesView, DeadLetterDetailView, DeadLetterItemView, PlannedUndoView,
        UndoAttemptView,
    },
};

/// Arguments of `undolog dead-letters`.
#[derive(Debug, Args)]
pub struct DeadLettersArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: DeadLettersVerb,
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLettersVerb {
    /// List open dead letters, newest first.
    List(ListArgs),
    /// Show one: each call that was made, and the one that a retry would make.
    Show {
        /// The dead letter's id.
        dead_letter_id: String,
    },
    /// Put compensations back to work; the walk then goes on by itself.
    Retry(RetryArgs),
    /// Leave something undone, for a reason; the walk then goes on by itself.
    Skip(SkipArgs),
    /// Say that something was settled by hand; the walk then goes on by itself.
    Resolve(ResolveArgs),
}

/// Which dead letters: by their ids, or by conditions that must all hold.
#[derive(Debug, Clone, Args)]
pub struct FilterArgs {
    /// Ids; without any, the conditions decide.
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Only those of this session.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only those about calls of this tool.
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only those about this compensation.
    #[arg(long, value_name = "NAME")]
    pub compensation: Option<String>,
    /// Only those of this error class, for example `EXHAUSTED`.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only those that are older: `90s`, `15m`, `2h` or `1d`.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub older_than: Option<u32>,
}

/// Which dead letters a verb changes.
#[derive(Debug, Clone, Args)]
pub struct BulkArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Every open dead letter; needed when nothing else narrows it.
    #[arg(long)]
    pub all: bool,
    /// Show what would be changed, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before many are changed.
    #[arg(long, short)]
    pub yes: bool,
}

/// Which dead letters to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Closed ones instead of open ones.
    #[arg(long)]
    pub closed: bool,
    /// The most to list; 0 lists all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub limit: u32,
}

/// What to put back to work, and how.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Which.
    #[command(flatten)]
    pub bulk: BulkArgs,
    /// A JSON file with other arguments for the compensation of one dead letter; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub args: Option<PathBuf>,
    /// Call under a new idempotency key, because the old one is used up.
    #[arg(long)]
    pub fresh_key: bool,
    /// Why, for the journal.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub note: String,
}

/// What to leave undone.
#[derive(Debug, Args)]
pub struct SkipArgs {
    /// Which.
    #[command(flatten)]
    pub bulk: BulkArgs,
    /// Why it may stay undone, for the journal.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// What was settled by hand.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// Which.
    #[command(flatten)]
    pub bulk: BulkArgs,
    /// What was done, for the journal.
    #[arg(long, value_name = "TEXT")]
    pub note: String,
}

fn parse_age(text: &str) -> Result<u32, String> {
    let refused = || "an age is a number and a unit: 90s, 15m, 2h or 1d".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(refused()),
    };
    let number: u32 = digits.parse().map_err(|_| refused())?;
    number.checked_mul(factor).filter(|seconds| *seconds > 0).ok_or_else(refused)
}

impl FilterArgs {
    fn message(&self, all: bool) -> DeadLetterFilter {
        let given = |value: &Option<String>| value.clone().unwrap_or_default();
        DeadLetterFilter {
            dead_letter_ids: self.ids.clone(),
            session_id: given(&self.session),
            tool_name: given(&self.tool),
            compensation_fn: given(&self.compensation),
            reason: given(&self.class),
            older_than_seconds: self.older_than.unwrap_or_default(),
            created_until: None,
            all,
        }
    }
}

/// Runs the verb.
pub async fn run(args: DeadLettersArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    match args.verb {
        DeadLettersVerb::List(list_args) => list(&api, &list_args, out).await,
        DeadLettersVerb::Show { dead_letter_id } => show(&api, dead_letter_id, out).await,
        DeadLettersVerb::Retry(retry_args) => retry(&api, retry_args, out).await,
        DeadLettersVerb::Skip(skip_args) => skip(&api, &skip_args, out).await,
        DeadLettersVerb::Resolve(resolve_args) => resolve(&api, &resolve_args, out).await,
    }
}

async fn list(api: &Api, args: &ListArgs, out: &Out) -> Result<(), CliError> {
    let items: Vec<DeadLetterItemView> = paged::all(args.limit, async |page_size, page_token| {
        let request = ListDeadLettersRequest {
            org_id: api.org(),
            filter: Some(args.filter.message(false)),
            closed: args.closed,
            page_size,
            page_token,
        };
        let page = api.operator().list_dead_letters(api.request(request)).await?.into_inner();
        Ok((page.dead_letters.iter().map(Into::into).collect(), page.next_page_token))
    })
    .await?;
    if out.is_json() {
        return out.json(&items);
    }
    if items.is_empty() {
        return out.line("no dead letters");
    }
    out.table(&DeadLetterItemView::HEADERS, items.iter().map(DeadLetterItemView::row).collect())
}

async fn show(api: &Api, dead_letter_id: String, out: &Out) -> Result<(), CliError> {
    let request = GetDeadLetterRequest { org_id: api.org(), dead_letter_id };
    let answer = api.operator().get_dead_letter(api.request(request)).await?.into_inner();
    let detail = DeadLetterDetailView::from(&answer);
    if out.is_json() {
        return out.json(&detail);
    }
    out.record(detail.item.record())?;
    if !detail.attempts.is_empty() {
        out.line("\ncalls that were made")?;
        let rows = detail.attempts.iter().map(UndoAttemptView::row).collect();
        out.table(&UndoAttemptView::HEADERS, rows)?;
        if detail.attempts_left_out > 0 {
            out.line(format!("{} older calls are left out", detail.attempts_left_out))?;
        }
    }
    let Some(call) = &detail.next_call else {
        return value::hint(&detail.how_to_read(), out);
    };
    out.line("\na retry would send")?;
    out.table(&PlannedUndoView::HEADERS, vec![call.row()])?;
    if detail.fields_left_out.iter().any(|field| field == "next_call.body") {
        out.line("its body is too large to be shown here")?;
    } else if let Some(body) = detail.next_body().map(crate::views::Raw::whole)
        && !body.is_empty()
    {
        out.line(body)?;
    }
    value::hint(&detail.how_to_read(), out)
}

async fn retry(api: &Api, args: RetryArgs, out: &Out) -> Result<(), CliError> {
    let edited = match args.args {
        Some(file) => FileArgs { file }.json()?,
        None => Vec::new(),
    };
    // A retry can be given up again: it destroys nothing, and asks nothing.
    let bulk = BulkArgs { yes: true, ..args.bulk };
    change(&bulk, "retry", out, async |filter, dry_run| {
        let request = RetryDeadLettersRequest {
            org_id: api.org(),
            filter: Some(filter),
            args: edited.clone(),
            fresh_key: args.fresh_key,
            note: args.note.clone(),
            dry_run,
        };
        Ok(api.operator().retry_dead_letters(api.request(request)).await?.into_inner())
    })
    .await
}

async fn skip(api: &Api, args: &SkipArgs, out: &Out) -> Result<(), CliError> {
    change(&args.bulk, "skip", out, async |filter, dry_run| {
        let reason = args.reason.clone();
        let request =
            SkipDeadLettersRequest { org_id: api.org(), filter: Some(filter), reason, dry_run };
        Ok(api.operator().skip_dead_letters(api.request(request)).await?.into_inner())
    })
    .await
}

async fn resolve(api: &Api, args: &ResolveArgs, out: &Out) -> Result<(), CliError> {
    change(&args.bulk, "resolve", out, async |filter, dry_run| {
        let note = args.note.clone();
        let request =
            ResolveDeadLettersRequest { org_id: api.org(), filter: Some(filter), note, dry_run };
        Ok(api.operator().resolve_dead_letters(api.request(request)).await?.into_inner())
    })
    .await
}

/// Changes what the filter names: with conditions instead of ids, after a dry run and a question.
async fn change(
    bulk: &BulkArgs,
    verb: &str,
    out: &Out,
    call: impl AsyncFn(DeadLetterFilter, bool) -> Result<DeadLettersChanged, CliError>,
) -> Result<(), CliError> {
    let mut filter = bulk.filter.message(bulk.all);
    let is_bulk = filter.dead_letter_ids.is_empty();
    if is_bulk && !bulk.dry_run && !bulk.yes {
        let would = call(filter.clone(), true).await?;
        if would.changed > 0 {
            let more = if would.more { " or more" } else { "" };
            confirm(&format!("{verb} {}{more} dead letters", would.changed), false)?;
        }
    }
    let mut done = ChangesView { dry_run: bulk.dry_run, ..ChangesView::default() };
    loop {
        let answer = call(filter.clone(), bulk.dry_run).await?;
        done.add(&answer);
        // What is given up again meanwhile is for another run of this verb.
        filter.created_until = filter.created_until.or(answer.as_of);
        // One call takes a part of many; those that can be changed come first.
        if bulk.dry_run || !is_bulk || !answer.more || answer.changed == 0 {
            break;
        }
    }
    told(&done, verb, out)?;
    let refused = done.changes.iter().find_map(|change| change.why_not.clone());
    match refused {
        Some(reason) if !is_bulk => {
            let left = done.matched - done.changed;
            let message = format!("{verb}: {left} of {} were left as they are", done.matched);
            Err(CliError::Refused { reason, message })
        }
        _ => Ok(()),
    }
}

fn told(done: &ChangesView, verb: &str, out: &Out) -> Result<(), CliError> {
    if out.is_json() {
        return out.json(done);
    }
    if done.changes.is_empty() {
        return out.line("no dead letter fits");
    }
    out.table(&ChangeView::HEADERS, done.changes.iter().map(ChangeView::row).collect())?;
    let would = if done.dry_run { "would " } else { "" };
    let more = if done.dry_run && done.more { ", and there are more" } else { "" };
    out.line(format!("\n{would}{verb}: {} of {}{more}", done.changed, done.matched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        assert_eq!(parse_age("90s"), Ok(90));
        assert_eq!(parse_age("90"), Ok(90));
        assert_eq!(parse_age("15m"), Ok(900));
        assert_eq!(parse_age("2h"), Ok(7_200));
        assert_eq!(parse_age("1d"), Ok(86_400));
        for bad in ["", "m", "-1s", "1w", "1.5h", "0s", "99999999999s", "4000000000d"] {
            parse_age(bad).expect_err(bad);
        }
    }
}

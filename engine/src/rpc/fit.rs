//! Answers that fit: no message is larger than its limit, and what is left out of a row is named.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;
use prost::Message;
use tonic::Status;
use undolog_core::{
    limits::{GRPC_MESSAGE_BYTES_MAX, ROW_BYTES_MAX},
    reason::{Reason, Refusal},
};
use undolog_proto::v1;
use undolog_store::guard;

use crate::status;

/// A field of a row that can be large.
pub(super) enum Field<'a> {
    Bytes(&'static str, &'a mut Vec<u8>),
    Text(&'static str, &'a mut String),
}

impl Field<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bytes(name, _) | Self::Text(name, _) => name,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(_, bytes) => bytes.len(),
            Self::Text(_, text) => text.len(),
        }
    }

    /// Takes the value out.
    pub(super) fn take(self) -> Vec<u8> {
        match self {
            Self::Bytes(_, bytes) => std::mem::take(bytes),
            Self::Text(_, text) => std::mem::take(text).into_bytes(),
        }
    }
}

/// A row with fields that can be large.
pub(super) trait Row: Message {
    /// These fields, and where the names of those that are left out stand.
    fn fields(&mut self) -> (Vec<Field<'_>>, &mut Vec<String>);
}

macro_rules! rows {
    ($($row:ident { $($kind:ident $field:ident),+ $(,)? })+) => {
        $(impl Row for v1::$row {
            fn fields(&mut self) -> (Vec<Field<'_>>, &mut Vec<String>) {
                let fields = vec![$(Field::$kind(stringify!($field), &mut self.$field)),+];
                (fields, &mut self.fields_left_out)
            }
        })+
    };
}

rows! {
    Effect { Bytes args, Bytes result, Bytes compensation_args, Text error }
    UndoEntry { Bytes compensation_args, Text last_error, Text skip_reason }
    PlannedUndo { Bytes body, Text url, Text note }
    DeadLetter { Text detail, Text note }
    Approval {
        Bytes proposed_args, Bytes approved_args, Bytes agent_context, Text irreversibility_reason,
        Text estimated_impact,
    }
    ApprovalEvent { Bytes args_diff, Text note, Text claimed_actor }
}

/// A row of at most so many bytes: its largest fields are left out, and named.
pub(super) fn row<R: Row>(mut row: R, bytes_max: usize) -> R {
    if !guard!("answer.row") {
        return row;
    }
    let mut over = row.encoded_len().saturating_sub(bytes_max);
    let (mut fields, left_out) = row.fields();
    fields.sort_by_key(Field::len);
    while over > 0
        && let Some(largest) = fields.pop().filter(|field| field.len() > 0)
    {
        over = over.saturating_sub(largest.len());
        left_out.push(largest.name().to_owned());
        largest.take();
    }
    row
}

/// A row of a list.
pub(super) fn listed<R: Row>(one: R) -> R {
    row(one, ROW_BYTES_MAX)
}

/// The last line of defence: an answer over the limit of a message is a refusal that says so, and
/// never a stream that its client has to break off.
pub(super) fn whole<M: Message>(answer: M) -> Result<M, Status> {
    let bytes = answer.encoded_len();
    if bytes <= GRPC_MESSAGE_BYTES_MAX || !guard!("answer.whole") {
        return Ok(answer);
    }
    tracing::error!(bytes, "an answer is larger than a message may be");
    let why = "the answer is larger than a message may be; ask for less of it at once";
    let refusal = Refusal::because(Reason::LimitExceeded, why)
        .with("answer_bytes", bytes)
        .with("limit_bytes", GRPC_MESSAGE_BYTES_MAX);
    Err(status::of_refusal(&refusal))
}

/// The same for each answer of a stream.
#[derive(Debug)]
pub(crate) struct Each<S>(S);

/// Watches over the answers of a stream.
pub(super) fn each<S>(answers: S) -> Each<S> {
    Each(answers)
}

impl<M: Message, S: Stream<Item = Result<M, Status>> + Unpin> Stream for Each<S> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map(|next| next.map(|answer| answer.and_then(whole)))
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn the_largest_fields_are_left_out_and_named() {
        let effect = v1::Effect {
            args: vec![b'1'; 300],
            result: vec![b'2'; 500],
            compensation_args: vec![b'3'; 400],
            error: "e".repeat(10),
            ..v1::Effect::default()
        };
        let fits = row(effect.clone(), 10_000);
        assert_eq!(fits, effect);
        let cut = row(effect.clone(), 800);
        assert_eq!(cut.fields_left_out, ["result"]);
        assert_eq!((cut.args.len(), cut.result.len()), (300, 0));
        let cut = row(effect.clone(), 400);
        assert_eq!(cut.fields_left_out, ["result", "compensation_args"]);
        let cut = row(effect, 0);
        assert_eq!(cut.fields_left_out, ["result", "compensation_args", "args", "error"]);
        // What is empty because there is nothing is not said to be left out.
        let empty = row(v1::Effect { effect_id: "e".repeat(99), ..v1::Effect::default() }, 10);
        assert!(empty.fields_left_out.is_empty());
    }

    #[test]
    fn an_answer_over_the_limit_is_refused_with_its_size() {
        let answer = |bytes| v1::GetValueResponse { part: vec![0; bytes], ..Default::default() };
        whole(answer(GRPC_MESSAGE_BYTES_MAX - 100)).expect("it fits");
        let status = whole(answer(GRPC_MESSAGE_BYTES_MAX)).expect_err("it does not fit");
        let info = status.get_error_details();
        let info = info.error_info().expect("an ErrorInfo");
        assert_eq!(info.reason, "LIMIT_EXCEEDED");
        assert_eq!(info.metadata["limit_bytes"], GRPC_MESSAGE_BYTES_MAX.to_string());
    }
}

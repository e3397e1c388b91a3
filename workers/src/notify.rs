//! Sends an organisation's notifications: signed webhooks, tried again for a day.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use undolog_core::{
    answer::Rules,
    fn_body::{Encoding, Method, Piece, RenderedCall},
    json::parse_strict,
    limits::JITTER_PERCENT_MAX,
    retry::{CallOutcome, backoff_ms},
};
use undolog_store::{
    crash_point,
    notify::{self, Delivery, Outcome},
};
use uuid::Uuid;

use crate::{egress::Call, handler::Shared, walk::random_below};

/// How long one webhook may take.
const TIMEOUT_MS: u64 = 10_000;
/// The delay before the second try; it doubles up to an hour.
const BACKOFF_MS: u64 = 5_000;
/// After so long the rest is left to the next ticket, so that other organisations have their turn.
const RUN: Duration = Duration::from_secs(5);

/// Sends what is due, until nothing is, or the receiver does not take one.
pub(crate) async fn run(shared: &Arc<Shared>, org_id: Uuid) {
    let started = Instant::now();
    loop {
        if shared.stop.is_cancelled() {
            return;
        }
        if started.elapsed() > RUN {
            return hand_over(shared, org_id).await;
        }
        let delivery = match notify::claim(&shared.store, org_id).await {
            Ok(Some(delivery)) => delivery,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(org.id = %org_id, %error, "no notification was claimed");
                return;
            }
        };
        crash_point!("notify.after_claim");
        let outcome = send(shared, &delivery).await;
        crash_point!("notify.after_send");
        settle(shared, org_id, &delivery, &outcome).await;
        // What this receiver did not take now it would not take a moment later either.
        if outcome != Outcome::Sent {
            return;
        }
    }
}

async fn hand_over(shared: &Shared, org_id: Uuid) {
    if let Err(error) = notify::wake(&shared.store, org_id).await {
        // The sweep issues the ticket again.
        tracing::debug!(org.id = %org_id, %error, "notifications were not handed over");
    }
}

async fn settle(shared: &Shared, org_id: Uuid, delivery: &Delivery, outcome: &Outcome) {
    let id = delivery.notification_id;
    match notify::settle(&shared.store, org_id, delivery, outcome).await {
        Ok(Some(state)) => {
            metrics::counter!("undolog_notifications_total", "state" => state).increment(1);
            if let Outcome::Retry { error, .. } | Outcome::Failed { error } = outcome {
                let attempt = delivery.attempts;
                tracing::warn!(org.id = %org_id, notification.id = %id, attempt, state, error,
                    "a notification was not taken");
            }
        }
        Ok(None) => tracing::debug!(notification.id = %id, "somebody else sends it now"),
        Err(error) => {
            tracing::warn!(notification.id = %id, %error, "not written; it is sent again")
        }
    }
}

async fn send(shared: &Shared, delivery: &Delivery) -> Outcome {
    let (Some(url), Some(secret)) = (&delivery.webhook_url, &delivery.webhook_secret) else {
        return Outcome::Failed { error: "the organisation has no webhook any more".to_owned() };
    };
    let secret = match shared.egress.secret(&delivery.org_slug, secret).await {
        Ok(secret) => secret,
        Err(refused) => return retry(delivery, None, refused.to_string()),
    };
    let Ok(body) = parse_strict(delivery.body_text.as_bytes()) else {
        return Outcome::Failed { error: "its stored body is no JSON".to_owned() };
    };
    let id = delivery.notification_id.to_string();
    let timestamp = delivery.sent_at_seconds.to_string();
    let signed = format!("{id}.{timestamp}.{}", body.to_text_exact());
    let Some(signature) = sign(&secret, signed.as_bytes()) else {
        return retry(delivery, None, "the signing secret cannot be read".to_owned());
    };
    let header = |name: &str, value: String| (name.to_owned(), vec![Piece::Text(value)]);
    let rendered = RenderedCall {
        method: Method::Post,
        url: vec![Piece::Text(url.clone())],
        headers: vec![
            header("Content-Type", "application/json".to_owned()),
            header("webhook-id", id),
            header("webhook-timestamp", timestamp),
            header("webhook-signature", signature),
        ],
        body: Some(body),
        encoding: Encoding::Json,
        body_secrets: Vec::new(),
        timeout_ms: TIMEOUT_MS,
    };
    let call = Call { org_slug: delivery.org_slug.clone(), rendered, rules: Rules::default() };
    let answer = shared.egress.call(&call).await;
    match answer.outcome {
        CallOutcome::Done => Outcome::Sent,
        _ => retry(delivery, answer.retry_after_ms, answer.error.unwrap_or_default()),
    }
}

/// Every answer but a success is tried again: a receiver that refuses today can be mended.
fn retry(delivery: &Delivery, asked_ms: Option<u64>, error: String) -> Outcome {
    let n = u32::try_from(delivery.attempts).unwrap_or(1);
    let jitter = random_below(JITTER_PERCENT_MAX + 1);
    let wait_ms = backoff_ms(n, BACKOFF_MS, jitter).max(asked_ms.unwrap_or(0).min(3_600_000));
    Outcome::Retry { after_ms: i64::try_from(wait_ms).unwrap_or(3_600_000), error }
}

/// `v1,` and the base64 of HMAC-SHA256, as Standard Webhooks has it: a secret that begins with
/// `whsec_` holds its key as base64, any other is the key.
fn sign(secret: &SecretString, message: &[u8]) -> Option<String> {
    let text = secret.expose_secret();
    let key = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None => text.as_bytes().to_vec(),
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(message);
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        // The example of the specification's reference libraries.
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let message = br#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#;
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign(&secret, message).as_deref(), Some(expected));
        assert_eq!(sign(&SecretString::from("whsec_???"), message), None);
        assert!(sign(&SecretString::from("plain"), message).is_some());
    }
}

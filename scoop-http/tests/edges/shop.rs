//! Sagas that webhooks start, and the router of the webhooks.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use scoop::prelude::*;
use scoop_http::{Delivery, Reaction, Refusal, Signer, Verifier, webhook};
use serde_json::Value;
use tower::ServiceExt as _;

/// 24 bytes, for the tests that sign by themselves.
pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

/// Any delivery.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "edges.received")]
pub(crate) struct Received {
    kind: String,
    text: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "edges.orders")]
pub(crate) struct OrderPlaced {
    pub(crate) order: u64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "edges.paid")]
pub(crate) struct Paid {
    pub(crate) cents: u64,
}

#[derive(Default)]
pub(crate) struct Receiver;

#[saga]
#[subscribes(Received)]
impl Receiver {
    #[step]
    async fn receive(&self, _: &mut Scope<'_>, _: &Received) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Orders;

#[saga(queue = 1)]
#[subscribes(OrderPlaced)]
impl Orders {
    #[step(awaits(Paid, by = key))]
    async fn ship(&self, _: &mut Scope<'_>, _: &OrderPlaced, paid: &Paid) -> Result<u64> {
        Ok(paid.cents)
    }

    async fn key(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
        Ok(format!("order {}", order.order))
    }
}

#[derive(Deserialize)]
struct Invoice {
    order: u64,
    cents: u64,
}

fn react(scoop: &Scoop, delivery: &Delivery) -> Result<Reaction, Refusal> {
    match &*delivery.kind {
        "order.placed" => {
            Ok(scoop.launch(delivery.json::<OrderPlaced>()?).priority(scoop::Priority::High).into())
        }
        "invoice.settled" => {
            let Invoice { order, cents } = delivery.json()?;
            Ok(scoop.signal(Paid { cents }, format!("order {order}")).into())
        }
        "order.untyped" => Ok(scoop.launch_untyped("edges.orders", delivery.json()?).into()),
        "order.looked-at" => Ok(Reaction::ignore()),
        kind => {
            let text = String::from_utf8_lossy(&delivery.body).into_owned();
            Ok(scoop.launch(Received { kind: kind.into(), text }).into())
        }
    }
}

/// The webhooks of a program at `/webhook`.
pub(crate) fn router(scoop: &Scoop, verifier: Verifier) -> Router {
    Router::new().route("/webhook", webhook(scoop.clone(), verifier, react))
}

/// The same, for what [`signed`] signs.
pub(crate) fn own_router(scoop: &Scoop) -> Router {
    router(scoop, Verifier::standard(SECRET).unwrap())
}

pub(crate) fn signed(id: &str, body: &Value) -> Request<Body> {
    Signer::standard(SECRET).unwrap().request("/webhook", id, body).unwrap().map(Body::from)
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

pub(crate) async fn answer(router: &Router, request: Request<Body>) -> Answer {
    let answered = router.clone().oneshot(request);
    let response = tokio::time::timeout(Duration::from_secs(60), answered).await.unwrap().unwrap();
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, 10_000).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(text.to_vec()).unwrap() }
}

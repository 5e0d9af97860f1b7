//! The stream of changes over HTTP.

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use futures_util::{FutureExt as _, StreamExt as _};
use tower::ServiceExt as _;

use crate::shop::{Collected, Plan, Shop};

/// A browser that follows.
struct Stream(BodyDataStream);

impl Stream {
    /// Follows, past the message about what happened before.
    async fn of(shop: &Shop, query: &str) -> Self {
        let request = Request::get(format!("/changes{query}")).body(Body::empty()).unwrap();
        let response = shop.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self(response.into_body().into_data_stream());
        stream.hears().await;
        stream
    }

    /// Waits for the next message.
    async fn hears(&mut self) {
        loop {
            let part = self.0.next().await.expect("the stream goes on").unwrap();
            match std::str::from_utf8(&part).unwrap() {
                // That the connection is alive.
                ":\n\n" => {}
                message => return assert_eq!(message, "event: changed\ndata: changed\n\n"),
            }
        }
    }

    /// Whether there is a message now.
    fn has_news(&mut self) -> bool {
        self.hears().now_or_never().is_some()
    }
}

/// A server that stops waits for its streams.
#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_shutdown_of_the_program_begins() {
    let shop = Shop::open().await;
    let mut stream = Stream::of(&shop, "").await;
    let end = async {
        while let Some(part) = stream.0.next().await {
            part.unwrap();
        }
    };
    let (stopped, ()) = tokio::join!(shop.scoop.shutdown(), end);
    stopped.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_told_to_those_who_follow_its_hierarchy() {
    let shop = Shop::open().await;
    let (own, other) = (shop.shipped(1).await, shop.order(Plan::Commit).await);
    let mut of_all = Stream::of(&shop, "").await;
    let mut of_own = Stream::of(&shop, &format!("?hierarchy={}", own.id())).await;
    let mut of_other = Stream::of(&shop, &format!("?hierarchy={}", other.id())).await;
    // What was told late of the beginning.
    while of_all.has_news() || of_own.has_news() || of_other.has_news() {}
    shop.scoop.rollback(other.id(), "a test").await.unwrap();
    of_other.hears().await;
    of_all.hears().await;
    assert!(!of_own.has_news(), "it is another hierarchy");
    shop.scoop.signal(Collected {}, "parcel 0").await.unwrap();
    own.wait().await.unwrap();
    of_own.hears().await;
    let wrong = shop.get("/changes?hierarchy=x").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

//! Signed callbacks.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use scoop::Outcome;
use scoop::prelude::*;
use scoop_http::{BadSecret, Signer, delivered};
use scoop_test_support::postgres::Database;
use scoop_test_support::{Ends as _, Notes};
use tower::ServiceExt as _;

use crate::recorded::{self, Recorded};
use crate::shop::{Received, Receiver, SECRET, own_router};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "edges.callbacks")]
struct CallbackDue {
    url: String,
    order: u64,
}

struct Callbacks {
    signer: Signer,
    client: reqwest::Client,
}

#[saga]
#[subscribes(CallbackDue)]
impl Callbacks {
    #[step(retry(max = 3, backoff = "1ms..10ms"))]
    async fn send(&self, scope: &mut Scope<'_>, due: &CallbackDue) -> Result<()> {
        let request = self.signer.request(&due.url, scope.idempotency_key(), due)?;
        delivered(self.client.execute(request.try_into()?).await?.status())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_that_is_refused_is_repeated_with_its_id() {
    let db = Database::new().await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let callbacks = Callbacks { signer: Signer::standard(SECRET).unwrap(), client };
    let program = db.scoop().only::<Callbacks>().only::<Receiver>().provide(callbacks);
    let scoop = program.start().await.unwrap();

    let (webhook, ids) = (own_router(&scoop), Notes::default());
    let noted = ids.clone();
    let receive = async move |request: Request<Body>| -> Response {
        noted.add(request.headers()["webhook-id"].to_str().unwrap());
        match noted.all().len() {
            1 => Redirect::to("/elsewhere").into_response(),
            _ => webhook.oneshot(request).await.unwrap(),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhook", listener.local_addr().unwrap());
    // Where a client that follows the redirect would get 200.
    let routes = Router::new().route("/webhook", post(receive)).route("/elsewhere", get(async || "a page"));
    let server = axum::serve(listener, routes);
    let server = tokio::spawn(server.into_future());

    let sent = scoop.launch(CallbackDue { url, order: 7 }).await.unwrap();
    assert_eq!(sent.ends().await.unwrap(), Outcome::Committed);
    let ids = ids.all();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    let received = scoop.find_by_key::<Received>(&format!("standard {}", ids[0])).await.unwrap();
    assert_eq!(received.ends().await.unwrap(), Outcome::Committed);
    server.abort();
    scoop.shutdown().await.unwrap();
}

#[test]
fn callback_is_signed_as_the_vector_of_the_specification() {
    let Recorded { secret, headers: recorded, body } = Recorded::read(recorded::STANDARD);
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_614_265_330);
    let signed = |signer: Signer| signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", at, &body).unwrap();
    let signer = || Signer::standard(&secret).unwrap();
    let headers = signed(signer());
    assert_eq!(headers.len(), 3);
    for (name, value) in &headers {
        assert_eq!(recorded[name], value, "{name}");
    }
    let twice = signed(signer().and_secret(SECRET).unwrap());
    let second = signed(Signer::standard(SECRET).unwrap());
    let [first, second] = [&headers, &second].map(|it| &it["webhook-signature"]);
    let both = format!("{} {}", first.to_str().unwrap(), second.to_str().unwrap());
    assert_eq!(twice["webhook-signature"], *both);
}

#[test]
fn callback_with_a_bad_secret_id_or_url_is_refused_for_good() {
    for (secret, why) in [
        ("whsec_", BadSecret::Length),
        ("whsec_dG9vIHNob3J0", BadSecret::Length),
        ("whsec_?", BadSecret::NotBase64),
    ] {
        assert_eq!(Signer::standard(secret).unwrap_err(), why);
    }
    let signer = Signer::standard(SECRET).unwrap();
    assert!(!format!("{signer:?}").contains("MDEy"));
    for (url, id) in
        [("http://h/", ""), ("http://h/", "a.b"), ("http://h/", "a\nb"), ("http:// h/", "a"), ("", "a")]
    {
        let refused = signer.request(url, id, &7).unwrap_err();
        assert!(refused.is_permanent(), "{url} {id}: {refused}");
    }
}

#[test]
fn callback_fails_for_good_where_the_receiver_is_gone() {
    assert!(delivered(StatusCode::NO_CONTENT).is_ok());
    for (status, is_permanent) in
        [(StatusCode::FOUND, false), (StatusCode::SERVICE_UNAVAILABLE, false), (StatusCode::GONE, true)]
    {
        let refused = delivered(status).unwrap_err();
        assert_eq!(refused.is_permanent(), is_permanent, "{refused}");
        assert!(refused.to_string().contains(status.as_str()), "{refused}");
    }
}

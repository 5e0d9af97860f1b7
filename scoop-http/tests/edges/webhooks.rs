//! Webhooks on a real PostgreSQL.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use scoop::{Outcome, Scoop};
use scoop_http::{Signer, Verifier};
use scoop_test_support::Ends as _;
use scoop_test_support::postgres::Database;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::recorded::{self, Recorded};
use crate::shop::{OrderPlaced, Orders, Received, Receiver, SECRET, answer, own_router, router, signed};

async fn messages(db: &Database) -> i64 {
    db.number("SELECT count(*) FROM scoop.message").await
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_that_comes_twice_is_launched_once() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Receiver>().start().await.unwrap();
    for (number, (request, verifier, id)) in recorded::all().into_iter().enumerate() {
        // Two files have the same id.
        let source = format!("sender {number}");
        let before = messages(&db).await;
        let router = router(&scoop, verifier.source(&*source));
        let (first, second) =
            tokio::join!(answer(&router, request.request()), answer(&router, request.request()));
        let third = answer(&router, request.request()).await;
        for answer in [first, second, third] {
            assert_eq!((answer.status, &*answer.text), (StatusCode::ACCEPTED, ""));
        }
        assert_eq!(messages(&db).await, before + 1);
        let launched = scoop.find_by_key::<Received>(&format!("{source} {id}")).await.unwrap();
        assert_eq!(launched.ends().await.unwrap(), Outcome::Committed);
    }
    scoop.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_with_another_secret_time_or_body_launches_nothing() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Receiver>().start().await.unwrap();
    let [_, (standard, verifier, _), ..] = recorded::all();
    let strict = Verifier::standard(&standard.secret).unwrap();
    for (request, verifier, header) in [
        (standard.clone(), Verifier::standard(SECRET).unwrap().tolerance(Duration::MAX), "webhook-signature"),
        (standard.clone(), strict, "webhook-timestamp"),
        (standard.with_body("{\"test\": 2}"), verifier.clone(), "webhook-signature"),
        (standard.without("webhook-id"), verifier, "webhook-id"),
    ] {
        let got = answer(&router(&scoop, verifier), request.request()).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{}", got.text);
        assert!(
            got.text.starts_with(&format!("header `{header}`: ")) && got.text.ends_with('\n'),
            "{}",
            got.text
        );
    }
    assert_eq!(messages(&db).await, 0);
    scoop.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_above_the_bound_is_refused() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Receiver>().start().await.unwrap();
    let of_bytes = |bytes| {
        let body = vec![b'x'; bytes];
        let headers = Signer::standard(SECRET).unwrap().headers("msg_1", SystemTime::now(), &body).unwrap();
        let mut request = Request::post("/webhook").body(Body::from(body)).unwrap();
        *request.headers_mut() = headers;
        request
    };
    let verifier = || Verifier::standard(SECRET).unwrap();
    for (verifier, bytes_max) in [(verifier(), 1_048_576), (verifier().body_bytes_max(100), 100)] {
        let router = router(&scoop, verifier);
        let got = answer(&router, of_bytes(bytes_max + 1)).await;
        assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(got.text, format!("body: more than {bytes_max} bytes\n"));
        assert_eq!(messages(&db).await, 0);
    }
    let router = router(&scoop, verifier().body_bytes_max(100));
    assert_eq!(answer(&router, of_bytes(100)).await.status, StatusCode::ACCEPTED);
    assert_eq!(messages(&db).await, 1);
    scoop.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_does_not_decode_is_refused_with_its_field() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().start().await.unwrap();
    let router = own_router(&scoop);
    for (body, text) in [
        (
            json!({ "type": "order.placed", "order": "seven" }),
            "body, field `order`: invalid type: string \"seven\"",
        ),
        (json!({ "type": "order.placed" }), "body: missing field `order`"),
        (json!({ "type": "order.untyped", "order": "\0" }), "a message for topic `edges.orders`"),
    ] {
        let got = answer(&router, signed("msg_1", &body)).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{}", got.text);
        assert!(got.text.starts_with(text), "{}", got.text);
    }
    let got = answer(&router, signed("msg_1", &json!({ "type": "order.looked-at", "id": 7 }))).await;
    assert_eq!((got.status, &*got.text), (StatusCode::NO_CONTENT, ""));
    let get = Request::get("/webhook").body(Body::empty()).unwrap();
    assert_eq!(answer(&router, get).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(messages(&db).await, 0);
    scoop.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_of_a_delivery_that_comes_twice_is_sent_once() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().start().await.unwrap();
    let router = own_router(&scoop);
    let paid = json!({ "type": "invoice.settled", "order": 7, "cents": 990 });
    for body in [&paid, &paid, &json!({ "type": "order.untyped", "order": 7 })] {
        let id = if body == &paid { "msg_1" } else { "msg_2" };
        assert_eq!(answer(&router, signed(id, body)).await.status, StatusCode::ACCEPTED);
    }
    assert_eq!(db.number("SELECT count(*) FROM scoop.signal").await, 1);
    let order = scoop.find_by_key::<OrderPlaced>("standard msg_2").await.unwrap();
    assert_eq!(order.ends().await.unwrap(), Outcome::Committed);
    scoop.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_for_a_full_queue_is_refused_until_later() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().start().await.unwrap();
    // Its saga stays subscribed, and no worker empties the queue.
    scoop.shutdown().await.unwrap();
    let router = own_router(&db.client());
    let order = json!({ "type": "order.placed", "order": 7 });
    assert_eq!(answer(&router, signed("msg_1", &order)).await.status, StatusCode::ACCEPTED);
    let got = answer(&router, signed("msg_2", &order)).await;
    assert_eq!((got.status, &*got.text), (StatusCode::TOO_MANY_REQUESTS, "the queue is full\n"));
    assert_eq!(got.headers["retry-after"], "10");
    assert_eq!(messages(&db).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_while_the_database_is_away_is_refused_until_later() {
    let db = Database::new().await;
    db.scoop().only::<Receiver>().start().await.unwrap().shutdown().await.unwrap();
    let (connected, pool) = forwarded(&db).await;
    let client =
        Scoop::builder().postgres(pool).retry_for(Duration::from_millis(300)).client().await.unwrap();
    let request = Recorded::read(recorded::STANDARD);
    let verifier = Verifier::standard(&request.secret).unwrap().tolerance(Duration::MAX);
    drop(connected);
    let got = answer(&router(&client, verifier.clone()), request.request()).await;
    assert_eq!((got.status, &*got.text), (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n"));
    assert_eq!(got.headers["retry-after"], "10");
    assert_eq!(messages(&db).await, 0);
    let again = answer(&router(&db.client(), verifier), request.request()).await;
    assert_eq!((again.status, messages(&db).await), (StatusCode::ACCEPTED, 1));
}

/// A pool whose connections break when the tasks are dropped, after which there are no others.
async fn forwarded(db: &Database) -> (JoinSet<()>, sqlx::PgPool) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let to = (*db.pool().connect_options()).clone();
    let (user, database) = (to.get_username(), to.get_database().unwrap());
    let options =
        PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(listener.local_addr().unwrap().port());
    let options = options.username(user).database(database).ssl_mode(PgSslMode::Disable);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((program, _)) = listener.accept().await {
            connections.spawn(forward(program, to.clone()));
        }
    });
    (tasks, PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap())
}

async fn forward(mut program: TcpStream, to: PgConnectOptions) {
    let (host, port) = (to.get_host(), to.get_port());
    let folder = to.get_socket().cloned().or_else(|| host.starts_with('/').then(|| host.into()));
    if let Some(folder) = folder {
        let mut server = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut program, &mut server).await;
    } else {
        let mut server = TcpStream::connect((host, port)).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut program, &mut server).await;
    }
}

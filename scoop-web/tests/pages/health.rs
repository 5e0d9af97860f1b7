//! The health endpoints.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use scoop::Scoop;
use scoop_test_support::eventually;
use scoop_test_support::postgres::Database;
use scoop_web::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::shop::{Got, Orders, Shop, TOKEN, sent};

async fn probe(router: &Router, path: &str) -> Got {
    sent(router.clone(), Request::get(path).body(Body::empty()).unwrap()).await
}

/// The status of both endpoints, with the text of `/ready`.
async fn health_of(router: &Router) -> (u16, u16, String) {
    let (live, ready) = (probe(router, "/live").await, probe(router, "/ready").await);
    (live.status.as_u16(), ready.status.as_u16(), ready.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_endpoints_follow_the_program_without_the_page() {
    let shop = Shop::open().await;
    let router = Router::new().merge(scoop_web::health(shop.scoop.clone()));
    assert_eq!(health_of(&router).await, (200, 200, "ready\n".into()));
    let got = probe(&router, "/live").await;
    assert_eq!(got.text, "live\n");
    assert_eq!(got.headers["cache-control"], "no-store");
    assert_eq!(probe(&router, "/runs").await.status, StatusCode::NOT_FOUND);
    let below = Router::new().nest("/health", router.clone());
    assert_eq!(probe(&below, "/health/ready").await.status, StatusCode::OK);
    shop.scoop.shutdown().await.unwrap();
    assert_eq!(health_of(&router).await, (200, 503, "not ready: the engine stops\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_its_database_is_live_and_not_ready() {
    // Nothing listens at this port.
    let pool = sqlx::PgPool::connect_lazy("postgres://absent:secret@127.0.0.1:1/nothing").unwrap();
    let router = scoop_web::health(Scoop::client(pool));
    assert_eq!(health_of(&router).await, (200, 503, "not ready: the database does not answer\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_whose_engine_has_failed_is_not_live() {
    let db = Database::new().await;
    let builder = db.scoop().only::<Orders>();
    let started = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The runtime ends after that, with all tasks in it.
        runtime.block_on(builder.start()).unwrap()
    });
    let router = scoop_web::health(started.await.unwrap());
    eventually("it is not live", async || probe(&router, "/live").await.status != StatusCode::OK).await;
    let got = probe(&router, "/live").await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
    got.has("not live: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_beside_the_page_need_no_token() {
    let shop = Shop::open().await;
    let options = Options::new().with_token(TOKEN).unwrap();
    let page = scoop_web::bind(([127, 0, 0, 1], 0), shop.scoop.clone(), options).await.unwrap();
    let (address, _) = page.url().trim_start_matches("http://").split_once('/').unwrap();
    let address = address.to_owned();
    let served = tokio::spawn(page.until(std::future::pending()));
    for (path, status) in [("/live", "200"), ("/ready", "200"), ("/runs", "401")] {
        let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: probe.example\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
    }
    served.abort();
}

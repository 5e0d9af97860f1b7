//! Token, read-only mode, forms of other sites, headers, paths.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use scoop_operate::OperateExt as _;
use scoop_web::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::browsing::{first_parcel, first_run};
use crate::shop::{Plan, Shop, TOKEN, sent};

fn with_token() -> Options {
    Options::new().with_token(TOKEN).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_without_the_token_is_asked_for_it() {
    let shop = Shop::with(with_token()).await;
    for path in ["/", "/runs", "/changes", "/?token=wrong", "/search?q=x", "/no-such-page"] {
        let got = shop.get(path).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{path}");
        got.has("needs a token").lacks("Workers");
    }
    let got = shop.get_with("/", "scoop-00000000=abc; other=1").await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_in_the_url_becomes_a_cookie() {
    let shop = Shop::with(with_token()).await;
    let got = shop.get("/runs?state=stuck&token=the+token+of+the+tests").await;
    assert_eq!(got.location(), "/runs?state=stuck");
    assert_eq!(shop.get("//evil.example?token=the+token+of+the+tests").await.location(), "/");
    let cookies = got.cookies();
    assert!(!cookies.contains("token"), "{cookies}");
    assert!(got.headers["set-cookie"].to_str().unwrap().contains("HttpOnly; SameSite=Lax"));
    assert_eq!(shop.get_with("/runs?state=stuck", &cookies).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_in_the_form_leads_back_to_the_page() {
    let shop = Shop::with(with_token()).await;
    let got = shop.post("/login", &[("token", "wrong"), ("next", "/runs")]).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    got.has("not valid").has("value=\"/runs\"");
    assert_eq!(shop.post("/login", &[("token", TOKEN), ("next", "/runs")]).await.location(), "/runs");
    assert_eq!(shop.post("/login", &[("token", TOKEN), ("next", "//evil.example")]).await.location(), "/");
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_page_has_its_path_in_all_addresses() {
    let shop = Shop::with(with_token()).await;
    let service = Router::new().nest("/ops/sagas", shop.router.clone());
    let get = |path: &str, cookies: &str| {
        let request = Request::get(path).header("cookie", cookies).body(Body::empty()).unwrap();
        sent(service.clone(), request)
    };
    let got = get("/ops/sagas?token=the+token+of+the+tests", "").await;
    assert_eq!(got.location(), "/ops/sagas");
    let cookies = got.cookies();
    assert!(got.headers["set-cookie"].to_str().unwrap().contains("; Path=/ops/sagas;"));
    let got = get("/ops/sagas", &cookies).await;
    got.has("<h1>Overview</h1>").has("action=\"/ops/sagas/search\"").lacks("href=\"/ops/sagas/\"");
    let got = get("/ops/sagas/runs", &cookies).await;
    assert_eq!(got.status, StatusCode::OK);
    got.has("href=\"/ops/sagas/assets/").has("action=\"/ops/sagas/runs\"").lacks("href=\"/runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_restrict_the_browser() {
    let shop = Shop::open().await;
    let got = shop.get("/").await;
    let policy = got.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(got.headers[name], value);
    }
    got.lacks("<style").lacks(" style=").lacks("<script>").lacks("onclick");
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_site_is_refused() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let path = format!("/actions/cancel/{}", order.id());
    let page = shop.get(&path).await;
    let fields = [("form", page.form()), ("name", "Ada"), ("reason", "a test")];
    let got = shop.post_from("cross-site", &path, &fields).await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    let got = shop.post(&path, &[("form", "guessed"), ("name", "Ada"), ("reason", "a test")]).await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(order.tree().await.unwrap().cancellations().is_empty());
    shop.post(&path, &fields).await.location();
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_page_has_no_actions_and_refuses_them() {
    let shop = Shop::with(Options::new().without_token().read_only()).await;
    let order = shop.shipped(1).await;
    let got = shop.get(&format!("/hierarchies/{}", order.id())).await;
    got.has("read-only").lacks("/actions/");
    let path = format!("/actions/cancel/{}", order.id());
    assert_eq!(shop.get(&path).await.status, StatusCode::FORBIDDEN);
    assert_eq!(shop.post(&path, &[("name", "Ada"), ("reason", "x")]).await.status, StatusCode::FORBIDDEN);
    assert!(order.tree().await.unwrap().cancellations().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_a_token_is_bound_to_this_machine_only() {
    let shop = Shop::open().await;
    let bound = scoop_web::bind(([0, 0, 0, 0], 0), shop.scoop.clone(), Options::new().without_token()).await;
    let error = bound.err().unwrap().to_string();
    assert!(error.contains("can be reached from other machines"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_a_token_is_not_answered_for_other_hosts() {
    let shop = Shop::open().await;
    let page = scoop_web::bind(([127, 0, 0, 1], 0), shop.scoop.clone(), Options::new().without_token());
    let page = page.await.unwrap();
    let address = page.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let served = tokio::spawn(page.until(std::future::pending()));
    let (own, localhost) = (address.clone(), address.replace("127.0.0.1", "localhost"));
    for (host, status) in
        [(&*own, "200"), (&*localhost, "200"), ("evil.example", "421"), ("127.0.0.1.evil.example", "421")]
    {
        let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {response}");
        assert_eq!(response.contains("Options::hosts"), status == "421", "{host}");
    }
    served.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_values_of_a_query_are_refused_or_escaped() {
    let shop = Shop::open().await;
    for path in [
        "/runs?code=%00",
        "/runs?handler=a%00b",
        "/entities?name=%00",
        "/entities?name=a&key=%00",
        "/search?q=%00&topic=a",
    ] {
        let got = shop.get(path).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{path}");
        got.has("has a NUL character");
    }
    shop.get("/runs?handler=a%1b%E2%80%AE")
        .await
        .has("u{1b}")
        .has("u{202e}")
        .lacks("\u{1b}")
        .lacks("\u{202e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_is_mounted_as_a_service_is_answered_with_a_slash_at_its_end() {
    let shop = Shop::open().await;
    let service = Router::new().nest_service("/ops/sagas", shop.router.clone());
    for path in ["/ops/sagas", "/ops/sagas/", "/ops/sagas/runs"] {
        let got = sent(service.clone(), Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        got.has("action=\"/ops/sagas/search\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_page_has_no_signals_schedules_and_selections() {
    let shop = Shop::with_all_sagas().await;
    let order = shop.shipped(1).await;
    let failed = shop.order(Plan::FailToUndo).await;
    let (parcel, failed) = (first_parcel(&order).await, first_run(&failed).await);
    shop.get("/schedules").await.has("/trigger?saga=report");
    shop.get("/inbox").await.has("type=\"checkbox\"");
    let reader = Shop { router: read_only(&shop), ..shop };
    reader.get(&format!("/runs/{parcel}")).await.has("awaiting signal").lacks("/actions/");
    reader.get("/schedules").await.has("every 1 h 30 min").lacks("/trigger");
    reader.get("/inbox").await.has("the bank is closed").lacks("checkbox").lacks("/retry");
    for path in
        [format!("/actions/signal/{parcel}"), "/trigger?saga=report".into(), format!("/retry?run={failed}")]
    {
        assert_eq!(reader.get(&path).await.status, StatusCode::FORBIDDEN, "{path}");
        let fields = [("run", &*failed), ("name", "Ada"), ("reason", "why"), ("payload", "{}")];
        assert_eq!(reader.post(&path, &fields).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert!(reader.scoop.operate().failures().interventions(order.id()).await.unwrap().is_empty());
}

fn read_only(shop: &Shop) -> Router {
    scoop_web::router(shop.scoop.clone(), Options::new().without_token().read_only())
}

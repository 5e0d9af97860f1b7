//! The answers for programs, and their description: each answer has exactly the fields that it describes.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, COOKIE};
use axum::http::{Method, Request, StatusCode};
use scoop::operate::{Delay, LimitKey, OperateExt as _, WaitReason};
use scoop::pauses::PauseTarget;
use scoop_runtime::RunPhase;
use scoop_web::Options;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::shop::{CARD, Fill, Got, Plan, Report, Shop, TOKEN};

/// The description, as the page answers it.
struct Description {
    value: Value,
    /// The routes that were asked.
    asked: BTreeSet<String>,
}

impl Description {
    async fn of(shop: &Shop) -> Self {
        let got = shop.get("/api/openapi.json").await;
        Self { value: serde_json::from_str(&got.text).unwrap(), asked: BTreeSet::new() }
    }

    /// The value at a place, or that to which it refers.
    fn at(&self, place: &Value) -> Value {
        match place.get("$ref").and_then(Value::as_str) {
            Some(place) => self.value.pointer(place.trim_start_matches('#')).expect("it exists").clone(),
            None => place.clone(),
        }
    }

    #[track_caller]
    fn check_schema(&self, schema: &Value, value: &Value) {
        let schema = json!({ "allOf": [schema], "components": self.value["components"] });
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        let errors: Vec<_> =
            validator.iter_errors(value).map(|it| format!("{}: {it}", it.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?} in {value:#}");
    }

    /// Checks that a response is one that the route describes, and returns its JSON.
    #[track_caller]
    fn check(&mut self, route: &str, got: &Got) -> Value {
        let responses = &self.value["paths"][route]["get"]["responses"];
        let response = responses.get(got.status.as_str());
        let response = self.at(response.unwrap_or_else(|| panic!("{route} describes no {}", got.status)));
        assert_eq!(got.headers[CONTENT_TYPE], "application/json", "{route}");
        let value = serde_json::from_str(&got.text).unwrap();
        self.check_schema(&response["content"]["application/json"]["schema"], &value);
        self.asked.insert(route.to_owned());
        value
    }

    /// Asks a route with these values in place of its parameters, and this query.
    async fn ask(&mut self, shop: &Shop, route: &str, values: &[&str], query: &str) -> Value {
        let mut path = route.to_owned();
        for value in values {
            let (from, to) = (path.find('{').unwrap(), path.find('}').unwrap());
            path.replace_range(from..=to, value);
        }
        let got = shop.get(&format!("/api{path}{query}")).await;
        assert_eq!(got.status, StatusCode::OK, "{path}{query}: {}", got.text);
        assert!(!got.text.contains(CARD), "{path}{query} has a redacted field");
        self.check(route, &got)
    }

    /// The elements of a list.
    async fn list(&mut self, shop: &Shop, route: &str, query: &str) -> Vec<Value> {
        self.ask(shop, route, &[], query).await["items"].as_array().unwrap().clone()
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_answers_as_it_is_described() {
    let shop = Shop::with_all_sagas().await;
    shop.order(Plan::Commit).await;
    shop.order(Plan::Fail("none left".into())).await;
    let failed = shop.order(Plan::FailToUndo).await;
    let failed = failed.tree().await.unwrap().roots()[0].id();
    shop.scoop.operate().failures().retry(failed).source("a test").await.unwrap();
    shop.order(Plan::FailBelow).await;
    shop.retried().await;
    shop.stuck().await;
    let shipped = shop.shipped(2).await;
    shop.scoop.trigger::<Report>().await.unwrap().wait().await.unwrap();
    for units in 1..=51 {
        shop.scoop.send(Fill { sku: "b/b".into(), units }).await.unwrap().decision().await.unwrap();
    }
    let parcels = PauseTarget::handler("parcels");
    shop.scoop.operate().pauses().pause(&parcels).reason("a test").await.unwrap();
    shop.scoop.cancel(shipped.id(), "a test").await.unwrap();

    let mut api = Description::of(&shop).await;
    api.ask(&shop, "/openapi.json", &[], "").await;
    let runs = api.list(&shop, "/runs", "?limit=1000").await;
    let states: BTreeSet<_> = runs.iter().map(|run| text(run, "state")).collect();
    for state in ["committed", "rolled back", "rollback failed", "stuck", "retrying", "waiting"] {
        assert!(states.contains(state), "{state} is not in {states:?}");
    }
    let mut waits = BTreeSet::new();
    for run in &runs {
        let id = text(run, "run");
        let explained = api.ask(&shop, "/runs/{id}", &[id], "").await;
        waits.insert(text(&explained["waiting"], "for").to_owned());
        api.ask(&shop, "/runs/{id}/contents", &[id], "").await;
        api.ask(&shop, "/hierarchies/{id}", &[text(run, "hierarchy")], "").await;
        api.ask(&shop, "/hierarchies/{id}/explanation", &[text(run, "hierarchy")], "").await;
    }
    assert!(["nothing", "operator", "time", "children"].iter().all(|it| waits.contains(*it)), "{waits:?}");
    let of_state = api.list(&shop, "/runs", "?state=rolled-back&handler=orders&code=sold-out&since=1h").await;
    assert!(!of_state.is_empty() && of_state.iter().all(|run| run["state"] == "rolled back"));
    let counts = api.ask(&shop, "/counts", &[], "").await;
    assert!(!counts["unfinished"].as_array().unwrap().is_empty(), "{counts}");
    for (route, length) in [
        ("/failures", 3),
        ("/stuck", 1),
        ("/pauses", 1),
        ("/handlers", 6),
        ("/workers", 1),
        ("/schedules", 1),
        ("/entities", 1),
    ] {
        assert_eq!(api.list(&shop, route, "").await.len(), length, "{route}");
    }
    assert!(api.ask(&shop, "/topology", &[], "").await["services"][0]["name"] == "shop");
    assert_eq!(api.ask(&shop, "/entities/{name}", &["stock"], "").await["items"], json!(["b/b"]));
    let stock = ["stock", "b%2Fb"];
    let entity = api.ask(&shop, "/entities/{name}/{key}", &stock, "").await;
    assert_eq!((&entity["state"], &entity["next"]), (&json!({ "value": { "units": 1326 } }), &json!(50)));
    let rest = api.ask(&shop, "/entities/{name}/{key}", &stock, "?after=50").await;
    assert_eq!(rest["events"][0]["version"], 51);
    assert!(!api.list(&shop, "/events", &format!("?hierarchy={}", shipped.id())).await.is_empty());
    let described: BTreeSet<_> = api.value["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(api.asked, described);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_goes_on_after_its_place() {
    let shop = Shop::open().await;
    for _ in 0..3 {
        shop.order(Plan::FailToUndo).await;
    }
    let mut api = Description::of(&shop).await;
    let ids = |items: &[Value], id: &str| items.iter().map(|it| text(it, id).to_owned()).collect::<Vec<_>>();
    for route in ["/runs", "/failures"] {
        let all = api.list(&shop, route, "").await;
        let (mut parts, mut query) = (vec![], "?limit=2".to_owned());
        while parts.len() < all.len() {
            let part = api.ask(&shop, route, &[], &query).await;
            parts.extend(part["items"].as_array().unwrap().clone());
            query = format!("?limit=2&after={}", part["next"].as_str().unwrap_or_default());
        }
        assert_eq!(ids(&parts, "run"), ids(&all, "run"), "{route}");
    }
    let all = api.list(&shop, "/events", "").await;
    let first = api.ask(&shop, "/events", &[], "?limit=2").await;
    let rest = api.list(&shop, "/events", &format!("?after={}", text(&first, "next"))).await;
    let first = first["items"].as_array().unwrap();
    assert_eq!(ids(first, "id"), ids(&all[..2], "id"));
    // Those of the first part come again while a transaction is open since then.
    assert!(ids(&rest, "id").ends_with(&ids(&all[2..], "id")), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_is_answered_as_it_is_described() {
    let shop = Shop::with(Options::new().with_token(TOKEN).unwrap()).await;
    let send = async |method: Method, path: &str, token: Option<&str>| {
        let request = Request::builder().method(method).uri(format!("/api{path}"));
        let request = token.iter().fold(request, |request, token| request.header(AUTHORIZATION, *token));
        shop.send(request.body(Body::empty()).unwrap()).await
    };
    let own = format!("Bearer {TOKEN}");
    let got = send(Method::GET, "/openapi.json", Some(&own)).await;
    let mut api = Description { value: serde_json::from_str(&got.text).unwrap(), asked: BTreeSet::new() };
    let unknown = Uuid::nil();
    for (route, path, token, status) in [
        ("/runs", "/runs".to_owned(), None, StatusCode::UNAUTHORIZED),
        ("/runs", "/runs".to_owned(), Some("Bearer wrong"), StatusCode::UNAUTHORIZED),
        ("/runs", "/runs".to_owned(), Some("Basic eDp5"), StatusCode::UNAUTHORIZED),
        ("/runs", "/runs?token=wrong".to_owned(), None, StatusCode::UNAUTHORIZED),
        ("/runs", "/runs".to_owned(), Some(&*own), StatusCode::OK),
        ("/runs", "/runs?state=done".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs", "/runs?waiting=x".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs", "/runs?where=order".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs", "/runs?since=yesterday".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs", "/runs?limit=1001".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs", "/runs?topic=%00".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/stuck", "/stuck?after=x".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/events", "/events?after=x".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/entities/{name}", "/entities/%00".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/entities/{name}", "/entities/%ff".to_owned(), Some(&*own), StatusCode::BAD_REQUEST),
        ("/runs/{id}", format!("/runs/{unknown}"), Some(&*own), StatusCode::NOT_FOUND),
        ("/runs/{id}", "/runs/x".to_owned(), Some(&*own), StatusCode::NOT_FOUND),
        ("/runs/{id}/contents", format!("/runs/{unknown}/contents"), Some(&*own), StatusCode::NOT_FOUND),
        ("/hierarchies/{id}", format!("/hierarchies/{unknown}"), Some(&*own), StatusCode::NOT_FOUND),
        ("/entities/{name}/{key}", "/entities/stock/7".to_owned(), Some(&*own), StatusCode::NOT_FOUND),
    ] {
        let got = send(Method::GET, &path, token).await;
        assert_eq!(got.status, status, "{path} {token:?}: {}", got.text);
        api.check(route, &got);
    }
    let order = shop.order(Plan::Commit).await;
    let got = send(Method::GET, &format!("/runs/{}", order.id()), Some(&own)).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    api.check("/runs/{id}", got.has("the hierarchy that begins with run"));
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let got = send(method, "/runs", Some(&own)).await;
        assert_eq!(
            (got.status, &got.headers[ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET,HEAD".parse().unwrap())
        );
        api.check("/runs", &got);
    }
    for path in ["", "/no-such-route"] {
        let got = send(Method::GET, path, Some(&own)).await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
        api.check("/runs/{id}", &got);
    }
    let many = (0..17).map(|n| format!("where=f{n}=1")).collect::<Vec<_>>().join("&");
    let got = send(Method::GET, &format!("/runs?{many}"), Some(&own)).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    api.check("/runs", got.has("16 times"));
    // A session of a browser is as good, unless another site sends it.
    let cookies = shop.get(&format!("/?token={}", TOKEN.replace(' ', "+"))).await.cookies();
    for (site, status) in
        [("same-origin", StatusCode::OK), ("none", StatusCode::OK), ("cross-site", StatusCode::FORBIDDEN)]
    {
        let request = Request::get("/api/runs").header(COOKIE, &cookies).header("sec-fetch-site", site);
        let got = shop.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(got.status, status, "{site}: {}", got.text);
        api.check("/runs", &got);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_cannot_be_read_in_time_are_refused() {
    let shop = Shop::open().await;
    shop.order(Plan::Commit).await;
    let mut api = Description::of(&shop).await;
    let mut tx = shop.db.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE scoop.message_event IN ACCESS EXCLUSIVE MODE").execute(&mut *tx).await.unwrap();
    let got = shop.get("/api/events").await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE, "{}", got.text);
    api.check("/events", got.has("not read in 10 s"));
    tx.rollback().await.unwrap();
    assert_eq!(shop.get("/api/events").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_wait_is_described() {
    let shop = Shop::open().await;
    let api = Description::of(&shop).await;
    let until = UNIX_EPOCH + Duration::from_secs(90);
    let key = || Some(LimitKey::new("customer", "7"));
    let (ahead, queued) = (0, 1);
    for wait in [
        WaitReason::Ended,
        WaitReason::Executing { worker: None },
        WaitReason::Children { unfinished: 2, blocking: vec![], blocking_count: 1, strategies: vec![] },
        WaitReason::Time { until, delay: Delay::Backoff },
        WaitReason::Slot { ahead, queued, is_suspect: false, workers: vec![] },
        WaitReason::Program { definition: Some(2), why: None },
        WaitReason::Operator { why: "it is stuck".into(), failed_below: vec![], has_more_below: false },
        WaitReason::Limit {
            concurrency: 2,
            serial: false,
            key: key(),
            holders: vec![(Uuid::nil().into(), RunPhase::Running)],
            ahead,
            queued,
        },
        WaitReason::Rate {
            runs: 5,
            period: Duration::from_secs(60),
            key: None,
            opens_at: Some(until),
            ahead,
            queued,
        },
        WaitReason::Pause { pauses: vec![] },
    ] {
        let schema = json!({ "$ref": "#/components/schemas/Waiting" });
        api.check_schema(&schema, &serde_json::to_value(&wait).unwrap());
    }
}

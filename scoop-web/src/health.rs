//! Health endpoints, for the probes of an orchestrator.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use scoop_runtime::{EngineState, Health, Scoop};

/// The health of this process, at `/live` and `/ready`: status 200 or 503, with a line of text. To mount anywhere, with or
/// without the page, whose address of its own ([`bind`](crate::bind)) has them, too.
///
/// They need no token, and tell nothing but this state. `/live` does not ask the database, `/ready` waits for it for 2 s.
///
/// ```no_run
/// # async fn example(scoop: scoop_runtime::Scoop) -> std::io::Result<()> {
/// let service = axum::Router::new().merge(scoop_web::health(scoop));
/// axum::serve(tokio::net::TcpListener::bind("0.0.0.0:8080").await?, service).await
/// # }
/// ```
pub fn health(scoop: Scoop) -> Router {
    Router::new().route("/live", get(live)).route("/ready", get(ready)).with_state(scoop)
}

async fn live(State(scoop): State<Scoop>) -> Response {
    if scoop.health().is_live() {
        answer(StatusCode::OK, "live\n")
    } else {
        answer(
            StatusCode::SERVICE_UNAVAILABLE,
            "not live: a task of the engine panicked, or its runtime has ended\n",
        )
    }
}

async fn ready(State(scoop): State<Scoop>) -> Response {
    let health = scoop.health().await;
    if health.is_ready() {
        answer(StatusCode::OK, "ready\n")
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, why_not_ready(&health))
    }
}

fn why_not_ready(health: &Health) -> &'static str {
    match (health.engine, health.database) {
        (EngineState::Failed, _) => "not ready: the engine has failed\n",
        (EngineState::Stopping, _) => "not ready: the engine stops\n",
        (_, None) => "not ready: the database does not answer\n",
        (_, Some(_)) if health.has_session => {
            "not ready: the process or one of its sagas is not registered\n"
        }
        (_, Some(_)) => "not ready: the session of the worker is lost\n",
    }
}

fn answer(status: StatusCode, text: &'static str) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], text).into_response()
}

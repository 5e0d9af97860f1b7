//! The web page of Scoop: finds, explains and repairs sagas, in a browser.
//!
//! [`router`] is an axum [`Router`] to mount in a service; [`bind`] serves the page alone; [`health()`] has the endpoints for the
//! probes of an orchestrator. All take a [`Scoop`] of a program with sagas, or a client. The page reads and writes by the public functions of the library only, so the rights
//! of the role decide what it can do: those of a reader are enough for all but the actions.
//!
//! The same is there for programs, as JSON: `GET /api/runs` and others, which `/api/openapi.json` describes.
//!
//! By default a token protects the page, which [`Options::token`] returns, and each action needs a confirmation and the
//! name of its requester, which is recorded.
//!
//! ```no_run
//! # async fn example(scoop: scoop_runtime::Scoop) -> std::io::Result<()> {
//! let options = scoop_web::Options::new();
//! println!("http://localhost:8080/sagas?token={}", options.token().unwrap_or_default());
//! let service = axum::Router::new().nest_service("/sagas", scoop_web::router(scoop, options));
//! axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8080").await?, service).await
//! # }
//! ```

mod access;
mod api;
mod assets;
mod fault;
mod health;
mod live;
mod options;
mod pages;
mod secret;
mod serving;
mod shown;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get};
use scoop_runtime::Scoop;

pub use crate::health::health;
use crate::live::Live;
pub use crate::options::{Options, WeakToken};
use crate::pages::action::Action;
use crate::secret::Secret;
pub use crate::serving::{Serving, bind};

/// The maximum size of a form.
const FORM_BYTES_MAX: usize = 64 * 1024;

/// What all requests share.
struct Web {
    scoop: Scoop,
    options: Options,
    secret: Secret,
    live: Live,
}

type SharedWeb = Arc<Web>;

/// The pages, as a service to mount at any path: `Router::new().nest_service("/sagas", scoop_web::router(scoop, options))`.
/// Mounted by `nest`, it does not get requests for `/sagas/`.
///
/// A server with a graceful shutdown waits for its streams of live updates. They end when the shutdown of this `scoop` begins, so
/// shut it down beside the server and not after it, as the program in the guide does. Otherwise a stream ends after a minute, and
/// is opened again.
pub fn router(scoop: Scoop, options: Options) -> Router {
    let live = Live::new(scoop.clone());
    routes(Arc::new(Web { secret: Secret::of(options.token()), scoop, options, live }))
}

/// The pages of a request about many runs.
fn many(action: Action) -> MethodRouter<SharedWeb> {
    let confirm = move |web, base, headers, query| pages::many::confirm(action, web, base, headers, query);
    let carry_out = move |web, base, headers, form| pages::many::carry_out(action, web, base, headers, form);
    get(confirm).post(carry_out)
}

fn routes(web: SharedWeb) -> Router {
    Router::new()
        .route("/", get(pages::overview::show))
        .route("/runs", get(pages::runs::list))
        .route("/search", get(pages::search::find))
        .route("/hierarchies/{id}", get(pages::hierarchy::show))
        .route("/runs/{id}", get(pages::run::show))
        .route("/actions/{action}/{id}", get(pages::action::confirm).post(pages::action::carry_out))
        .route("/failures", get(pages::failures::show))
        .route("/inbox", get(pages::inbox::show))
        .route("/topology", get(pages::topology::show))
        .route("/error-queue", get(pages::error_queue::show))
        .route("/schedules", get(pages::schedules::show))
        .route("/entities", get(pages::entities::show))
        .route("/retry", many(Action::Retry))
        .route("/relaunch", many(Action::Relaunch))
        .route("/trigger", get(pages::trigger::confirm).post(pages::trigger::carry_out))
        .route("/pause", get(pages::pause::confirm).post(pages::pause::carry_out))
        .route("/resume", get(pages::pause::confirm).post(pages::pause::carry_out))
        .route("/changes", get(live::stream))
        .route("/login", get(access::login).post(access::log_in))
        .route("/assets/{name}", get(assets::serve))
        .nest(api::PREFIX, api::routes())
        .fallback(pages::not_found)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(from_fn_with_state(web.clone(), access::guard))
        .with_state(web)
}

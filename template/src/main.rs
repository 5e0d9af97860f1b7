//! The service: sagas, an HTTP interface, the web page, health, and a clean shutdown at SIGTERM.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use scoop::prelude::*;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use {{crate_name}}::checkout::OrderPlaced;

/// How long running steps may take after SIGTERM. The others continue in other processes, or when the service starts again.
const SHUTDOWN_MAX: Duration = Duration::from_secs(20);

async fn place(State(scoop): State<Scoop>, Path((order, city)): Path<(u32, String)>) -> (StatusCode, String) {
    match scoop.launch(OrderPlaced { order, city }).await {
        Ok(placed) => (StatusCode::ACCEPTED, placed.id().to_string()),
        Err(error) => {
            tracing::error!(%error, "an order was not placed");
            (StatusCode::SERVICE_UNAVAILABLE, "try again later".into())
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt::init();
    let mut terminate = signal(SignalKind::terminate())?;
    let database = std::env::var("DATABASE_URL")
        .unwrap_or_else(|_| "postgres://postgres:postgres@localhost:5432/postgres".into());
    let pool = PgPoolOptions::new().max_connections(10).connect(&database);
    let pool = pool.await.map_err(|error| Error::msg(format!("no connection to the database of DATABASE_URL: {error}")))?;
    // Without a server, for first steps: `.embedded()` in place of `.postgres(pool)`, with the feature `embedded`.
    let scoop = Scoop::builder().postgres(pool).start().await?;

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let page = scoop_web::Options::new();
    println!("http://localhost:8080/sagas?token={}", page.token().unwrap_or_default());
    let service = Router::new()
        .route("/orders/{order}/{city}", post(place))
        .with_state(scoop.clone())
        .nest_service("/sagas", scoop_web::router(scoop.clone(), page))
        .merge(scoop_web::health(scoop.clone()));
    let (stop, stopped) = oneshot::channel();
    let server = axum::serve(listener, service).with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
    let sagas = async {
        terminate.recv().await;
        let _ = stop.send(());
        scoop.shutdown_within(SHUTDOWN_MAX).await
    };
    let (served, shut_down) = tokio::join!(server.into_future(), sagas);
    served?;
    shut_down?;
    Ok(())
}

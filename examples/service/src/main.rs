//! A service: a saga, an HTTP interface, the web page, and a clean shutdown at SIGTERM.
//!
//! `cargo run -p service`, then `curl -X POST http://localhost:8080/orders/7`.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use scoop::prelude::*;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "service.orders")]
struct OrderPlaced {
    order: u32,
}

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn ship(&self, _: &mut Scope<'_>, placed: &OrderPlaced) -> Result<()> {
        println!("shipped order {}", placed.order);
        Ok(())
    }
}

async fn place(State(scoop): State<Scoop>, Path(order): Path<u32>) -> (StatusCode, String) {
    match scoop.launch(OrderPlaced { order }).await {
        Ok(placed) => (StatusCode::ACCEPTED, placed.id().to_string()),
        Err(error) if error.is_queue_full() => (StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let scoop = Scoop::builder().embedded().start().await?; // in production: `.postgres(pool)`
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let options = scoop_web::Options::new();
    let token = options.token().unwrap_or_default();
    println!("http://{}/sagas?token={token}", listener.local_addr()?);

    let service = Router::new()
        .route("/orders/{order}", post(place))
        .with_state(scoop.clone())
        .nest_service("/sagas", scoop_web::router(scoop.clone(), options))
        .merge(scoop_web::health(scoop.clone()));
    let (stop, stopped) = oneshot::channel();
    let server =
        axum::serve(listener, service).with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
    // Both stop at the same time: the server waits for the live updates of open pages, which end when the shutdown begins.
    let sagas = async {
        terminate.recv().await;
        let _ = stop.send(());
        scoop.shutdown_within(Duration::from_secs(20)).await
    };
    let (served, shut_down) = tokio::join!(server.into_future(), sagas);
    served?;
    shut_down?;
    Ok(())
}

//! The record of a command: what is stored before and with its decision, and how its state is looked up.

use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use scoop::Decider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, eventually};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Scale {
    grams: i64,
}

#[entity(name = "scale", key = u8)]
impl Scale {
    fn weighed(&mut self, event: &Weighed) {
        self.grams += event.grams;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "scale.weighed")]
struct Weighed {
    grams: i64,
    command: Uuid,
}

/// The information from outside.
#[derive(Serialize, Deserialize)]
struct Weight {
    grams: i64,
}

/// What the scale shows. Each look at it changes that.
static SHOWN: AtomicI64 = AtomicI64::new(100);

#[derive(Serialize, Deserialize)]
struct Weigh {
    scale: u8,
}

#[command(entity = Scale, topic = "scale.weigh")]
impl Weigh {
    fn key(&self) -> u8 {
        self.scale
    }

    async fn fetch(&self, _: &mut Scope<'_>) -> Result<Weight> {
        Ok(Weight { grams: SHOWN.fetch_add(1, Ordering::SeqCst) })
    }

    fn decide(&self, _: &Scale, weight: &Weight, id: Uuid) -> Decision<Weighed> {
        match weight.grams {
            ..0 => Decision::Rejected(()),
            grams => Decision::Accepted(Weighed { grams, command: id }),
        }
    }
}

handler! {
    Printing(gate): "printing" on Weighed;
    step "print" print => at_gate();
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let builder = db.scoop().only::<Decider<Weigh>>();
    Ok(builder.only::<Printing>().provide(Printing { gate: gate.clone() }).start().await?)
}

/// The entity, locked by another session until that ends its transaction.
async fn locked(db: &Database) -> Result<sqlx::Transaction<'static, sqlx::Postgres>> {
    sqlx::raw_sql("INSERT INTO scoop.entity (name, key) VALUES ('scale', '1')").execute(db.pool()).await?;
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.entity FOR UPDATE").execute(&mut *other).await?;
    Ok(other)
}

const FETCHED: &str = "SELECT count(*) FROM scoop.return_value WHERE variable_name LIKE 'Output of fetch%'";

#[tokio::test(flavor = "multi_thread")]
async fn fetched_data_is_recorded_before_the_decision_which_gets_the_id_of_the_command() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    gate.open(1);
    let scoop = start(&db, &gate).await?;
    let other = locked(&db).await?;
    let sent = scoop.send(Weigh { scale: 1 }).await?;
    eventually("its data is recorded", async || db.number(FETCHED).await == 1).await;
    let shown = SHOWN.load(Ordering::SeqCst);
    scoop.shutdown().await?;
    other.rollback().await?;
    let another = start(&db, &gate).await?;
    let sent = another.find(sent.id()).await?;
    let decision = sent.decision::<Weigh>().await?;
    let weighed = decision.accepted().expect("it is accepted");
    assert_eq!(weighed.command, sent.id().uuid());
    assert!(weighed.grams < shown, "the data is that of the first program");
    assert_eq!(db.number(FETCHED).await, 1, "it is not fetched again");
    assert_eq!(sent.ends().await?, Outcome::Committed);
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN weigh ·
        M0 SUSPENDED weigh fetch next=1
        M0 SUSPENDED weigh decide
        M0 COMMITTED weigh decide",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_has_the_events_of_its_user_and_no_others() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    gate.open(1);
    let scoop = start(&db, &gate).await?;
    assert_eq!(scoop.send(Weigh { scale: 1 }).await?.ends().await?, Outcome::Committed);
    let events = scoop.operate().entities().events::<Scale>(1).await?;
    let topics: Vec<_> = events.iter().map(|event| &*event.topic).collect();
    assert_eq!(topics, ["scale.weighed"]);
    let messages = db.texts("SELECT topic::text FROM scoop.message ORDER BY created_at, id").await;
    assert_eq!(messages, ["scale.weigh", "scale.weighed"], "no message of the engine is among them");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_applied_with_its_decision_and_not_again_when_its_handlers_run() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let sent = scoop.send(Weigh { scale: 1 }).await?;
    let weighed = sent.decision().await?.accepted().expect("it is accepted");
    gate.arrivals(1).await;
    let before = scoop.entity::<Scale>(1).await?;
    assert_eq!((before.version, before.state.grams), (1, weighed.grams), "its handler has not finished");
    gate.open(2);
    assert_eq!(sent.ends().await?, Outcome::Committed);
    // A message on the topic of the event that no command has decided.
    assert_eq!(scoop.launch(weighed.clone()).await?.ends().await?, Outcome::Committed);
    gate.arrivals(1).await;
    let after = scoop.entity::<Scale>(1).await?;
    assert_eq!(
        (after.version, after.state.grams),
        (1, weighed.grams),
        "handlers run, and the entity ignores it"
    );
    Ok(())
}

/// Answers the state of a command as JSON: `null` without a decision.
async fn command_state(State(scoop): State<Scoop>, Path(id): Path<Uuid>) -> Result<String, StatusCode> {
    let state = async { scoop.find(id).await?.command_state().await };
    match state.await {
        Ok(state) => {
            let state = state.map(|state| serde_json::json!({ "state": state.to_string() }));
            Ok(serde_json::json!({ "data": { "AsyncCommandState": state } }).to_string())
        }
        Err(error) if error.is_not_found() => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// The status line and the body of the response.
async fn ask(listener: std::net::SocketAddr, id: Uuid) -> Result<(String, String)> {
    let mut connection = TcpStream::connect(listener).await?;
    let request = format!("GET /commands/{id} HTTP/1.1\r\nHost: scoop\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").expect("a response has a head");
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_command_over_http_is_null_until_it_is_decided() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    gate.open(1);
    let scoop = start(&db, &gate).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/commands/{id}", get(command_state)).with_state(scoop.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let other = locked(&db).await?;
    let sent = scoop.send(Weigh { scale: 1 }).await?;
    let id = sent.id().uuid();
    let (status, body) = ask(address, id).await?;
    assert_eq!((&*status, &*body), ("HTTP/1.1 200 OK", r#"{"data":{"AsyncCommandState":null}}"#));
    other.rollback().await?;
    sent.decision().await?;
    let (_, body) = ask(address, id).await?;
    assert_eq!(body, r#"{"data":{"AsyncCommandState":{"state":"accepted"}}}"#);
    let (status, _) = ask(address, Uuid::from_u128(7)).await?;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    Ok(())
}

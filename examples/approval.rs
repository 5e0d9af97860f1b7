//! Waiting for a signal. Each expense waits for the decision of a person, which arrives over HTTP, in any process, now or
//! in weeks. A decision that comes too late finds no run; one that comes early is kept.
//!
//! ```text
//! cargo run -p examples --example approval
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use scoop::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Message, Serialize, Deserialize)]
struct ExpenseReported {
    number: u64,
    euros: u64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "expenses.decided", retention = "7 days")]
struct Decision {
    approved: bool,
}

#[derive(Default)]
struct Expenses;

#[saga]
#[subscribes(ExpenseReported)]
impl Expenses {
    #[step(rollback = release)]
    async fn set_aside(&self, _: &mut Scope<'_>, expense: &ExpenseReported) -> Result<()> {
        println!("{} € are set aside for expense {}", expense.euros, expense.number);
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, expense: &ExpenseReported, _: &Failure) -> Result<()> {
        println!("{} € are free again", expense.euros);
        Ok(())
    }

    /// Two seconds stand for two weeks.
    #[step(awaits(Decision, by = number, within = "2 seconds"))]
    async fn pay(
        &self,
        _: &mut Scope<'_>,
        expense: &ExpenseReported,
        decision: Option<&Decision>,
    ) -> Result<()> {
        match decision {
            Some(Decision { approved: true }) => println!("expense {} is paid", expense.number),
            Some(Decision { approved: false }) => return Err(Error::msg("it was declined")),
            None => return Err(Error::msg("it was not decided in time")),
        }
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, expense: &ExpenseReported) -> Result<String> {
        Ok(expense.number.to_string())
    }
}

/// The signal for a click on one of two links.
async fn decide(
    State(scoop): State<Scoop>,
    Path((number, decision)): Path<(u64, String)>,
) -> Result<String, StatusCode> {
    let approved = match &*decision {
        "approve" => true,
        "decline" => false,
        _ => return Err(StatusCode::NOT_FOUND),
    };
    let reached = scoop.signal(Decision { approved }, number.to_string()).await;
    let reached = reached.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(if reached > 0 { "thank you".into() } else { "no expense waits for that now".into() })
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/expenses/{number}/{decision}", post(decide)).with_state(scoop.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });

    // The decision on the third expense is early, that on the fourth never comes.
    click(address, "/expenses/3/approve").await?;
    let reported = (1..=4).map(|number| ExpenseReported { number, euros: 10 * number });
    let [first, second, third, fourth] = &*scoop.launch_all(reported).await? else {
        unreachable!("four were launched")
    };
    for (expense, path) in [(first, "/expenses/1/approve"), (second, "/expenses/2/decline")] {
        while !expense.tree().await?.roots().iter().any(|run| run.awaits.is_some()) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(click(address, path).await?.contains("thank you"));
    }
    assert_eq!(first.wait().await?, Outcome::Committed);
    assert!(
        matches!(second.wait().await?, Outcome::RolledBack(failure) if failure.message == "it was declined")
    );
    assert_eq!(third.wait().await?, Outcome::Committed);
    let Outcome::RolledBack(failure) = fourth.wait().await? else { panic!("it was not decided") };
    assert_eq!(failure.message, "it was not decided in time");
    assert!(click(address, "/expenses/4/approve").await?.contains("no expense waits"));
    println!("{}", fourth.tree().await?);
    scoop.shutdown().await?;
    Ok(())
}

/// Sends a request like a browser, and returns the response.
async fn click(address: SocketAddr, path: &str) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    Ok(response)
}

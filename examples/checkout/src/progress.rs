//! Shows the progress of the orders.

use std::convert::Infallible;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use scoop::prelude::*;

const PAUSE: Duration = Duration::from_millis(100);

/// Writes to stderr until it is dropped: one line that changes, or many where lines cannot. `orders` is the number
/// of orders, if that is known.
/// Returns only if it fails.
pub async fn show(scoop: &Scoop, orders: Option<usize>, quiet: bool) -> Error {
    match show_forever(scoop, orders, quiet).await {
        Err(error) => error,
    }
}

async fn show_forever(scoop: &Scoop, orders: Option<usize>, quiet: bool) -> Result<Infallible> {
    let mut line = Line { last: String::new() };
    let of = orders.map(|orders| format!(" of {orders}")).unwrap_or_default();
    loop {
        let (placed, confirmed, rejected): (i64, i64, i64) = sqlx::query_as(
            "SELECT count(*),
                    count(*) FILTER (WHERE status = 'confirmed'),
                    count(*) FILTER (WHERE status = 'rejected')
             FROM orders.orders",
        )
        .fetch_one(scoop.pool())
        .await?;
        if !quiet {
            line.show(format!("{placed}{of} orders placed, {confirmed} confirmed, {rejected} rejected"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Line {
    last: String,
}

impl Line {
    fn show(&mut self, text: String) {
        if text == self.last {
            return;
        }
        if stderr().is_terminal() {
            eprint!("\r{text}\x1b[K");
            let _ = stderr().flush();
        } else {
            eprintln!("{text}");
        }
        self.last = text;
    }
}

/// Ends the line, so that further output begins a new one.
impl Drop for Line {
    fn drop(&mut self) {
        if stderr().is_terminal() && !self.last.is_empty() {
            eprintln!();
        }
    }
}

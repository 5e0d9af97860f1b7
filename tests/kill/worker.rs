//! A worker: this program again, configured by environment variables.

use std::env;
use std::io::BufRead;

use scoop::Interrupted;
use scoop::prelude::*;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::mpsc;

use crate::sagas::{Bill, Feed, Order, Outside, Payments, Plot, Reader, Shop};

/// Set for a worker: the database, through the proxy.
pub(crate) const DATABASE: &str = "SCOOP_KILL_DATABASE";
/// The database of the ledger outside, through the proxy.
pub(crate) const OUTSIDE: &str = "SCOOP_KILL_OUTSIDE";

/// Has workers write their warnings, if it is set at all.
const LOG: &str = "SCOOP_KILL_LOG";

/// The engine needs four for itself; the rest is for steps.
const CONNECTIONS: u32 = 7;

/// Runs sagas until its input ends. For each line `<plot> <number>` it launches that hierarchy, unless it exists, and
/// writes a line with its outcome.
pub(crate) async fn work() -> Result<()> {
    if env::var_os(LOG).is_some() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    }
    let mut orders = lines_of_input();
    let variable = |name| env::var(name).map_err(|_| Error::msg(format!("`{name}` is not set")));
    let options: PgConnectOptions = variable(OUTSIDE)?.parse()?;
    let outside = Outside(PgPoolOptions::new().max_connections(1).connect_lazy_with(options));
    let options: PgConnectOptions = variable(DATABASE)?.parse()?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
    let scoop = Scoop::builder()
        .postgres(pool)
        .provide(Shop { outside: outside.clone() })
        .provide(Payments { outside: outside.clone() })
        .provide(Reader { outside })
        .start()
        .await?;
    println!("started");
    while let Some(order) = orders.recv().await {
        let (plot, number) =
            order.split_once(' ').ok_or_else(|| Error::msg(format!("no order: {order:?}")))?;
        println!("{}", play(&scoop, plot.parse()?, number.parse()?).await?);
    }
    Ok(())
}

/// The end of the input ends the process, too: the test is gone then.
fn lines_of_input() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    receiver
}

async fn play(scoop: &Scoop, plot: Plot, number: i64) -> Result<String> {
    let key = number.to_string();
    let root = match plot {
        Plot::Ships => scoop.launch(Order { number, fails: false }).unique(key).await?,
        Plot::Fails => scoop.launch(Order { number, fails: true }).unique(key).await?,
        Plot::Pays => scoop.launch(Bill { number }).unique(key).await?,
        Plot::Reads => scoop.launch(Feed { number, cursor: 0 }).unique(key).await?,
    };
    Ok(match root.wait().await? {
        Outcome::Committed => "committed".to_owned(),
        Outcome::RolledBack(why) => match why.find::<Interrupted>() {
            Some(interrupted) => format!("rolled back: interrupted {}", interrupted.step),
            None => format!("rolled back: {}", why.root_causes()[0].message),
        },
        other => format!("{other:?}"),
    })
}

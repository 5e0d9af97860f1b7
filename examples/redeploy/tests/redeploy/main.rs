//! A saga that changes under load: a rolling deployment, its rollback, the deployment once more, and a crash.
//!
//! Two builds of one program differ in the saga `checkout`: read `src/bin/before.rs` and `src/bin/after.rs`. Orders are
//! placed all the time while processes of the two builds start and end. In the end every step of every order must have
//! taken effect once and in its order.
//!
//! ```text
//! cargo test -p redeploy --test redeploy                              # on a private PostgreSQL
//! DATABASE_URL=postgres://.. cargo test -p redeploy --test redeploy   # in a schema of its own, which is dropped at the end
//! ```

#[path = "../common/books.rs"]
mod books;
#[path = "../common/build.rs"]
mod build;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use redeploy::{Order, connect};
use scoop::HierarchyId;
use scoop::embedded::Embedded;
use scoop::prelude::*;
use sqlx::AssertSqlSafe;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::build::Build;

/// How many orders are placed between two deployments, at least.
const ORDERS: usize = 30;

/// The time between two orders.
const PAUSE: Duration = Duration::from_millis(8);

/// How long the last orders may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let private = match env::var_os("DATABASE_URL") {
        Some(_) => None,
        None => Some(Embedded::start().await?),
    };
    let url = private.as_ref().map_or_else(|| env::var("DATABASE_URL").unwrap_or_default(), Embedded::url);
    let schema = format!("deploys_{}", Uuid::new_v4().simple());
    let pool = connect(&url, &schema).await?;
    let client = Scoop::builder().postgres(pool.clone()).schema(&schema).migrate(true).client().await?;
    sqlx::raw_sql(books::TABLE).execute(&pool).await?;

    let orders = deploy_under_load(&client, &url, &schema).await?;
    let books = books::check(&pool, orders).await?;

    sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    pool.close().await;
    if let Some(private) = private {
        private.stop().await?;
    }
    // It has to show that orders go on in the other build.
    Ok(if books.are_right && books.changed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Deploys while orders are placed, and waits for all of them. Returns their number.
async fn deploy_under_load(client: &Scoop, url: &str, schema: &str) -> Result<usize> {
    let first = Build::before("before", url, schema).await?;
    let (placed, mut progress) = watch::channel(0);
    let placing = tokio::spawn(place_orders(client.clone(), placed));
    let deployed = deploy(client, url, schema, first, &mut progress).await;
    drop(progress); // No more orders.
    let orders = placing.await.map_err(|error| Error::msg(error.to_string()))??;
    let last = deployed?;
    for order in &orders {
        let Ok(outcome) = timeout(PATIENCE, client.find(*order).await?.wait()).await else {
            return Err(Error::msg(format!(
                "this does not end:\n{}",
                client.find(*order).await?.tree().await?
            )));
        };
        assert_eq!(outcome?, Outcome::Committed);
    }
    assert!(client.stuck_runs().await?.is_empty(), "all have ended");
    for build in last {
        build.end().await?;
    }
    Ok(orders.len())
}

/// Places orders until the receiver of their count is dropped.
async fn place_orders(client: Scoop, placed: watch::Sender<usize>) -> Result<Vec<HierarchyId>> {
    let mut orders = vec![];
    while placed.send(orders.len()).is_ok() {
        let number = i64::try_from(orders.len())?;
        orders.push(client.launch(Order { number }).await?.id());
        sleep(PAUSE).await;
    }
    Ok(orders)
}

/// One deployment after the other, with orders in between. Returns the builds that still run.
async fn deploy(
    client: &Scoop,
    url: &str,
    schema: &str,
    old: Build,
    progress: &mut watch::Receiver<usize>,
) -> Result<[Build; 2]> {
    orders(client, progress, "`before` runs").await?;
    let new = Build::after(url, schema).await?;
    orders(client, progress, "`after` runs as well, and wins").await?;
    old.end().await?;
    orders(client, progress, "`before` has ended").await?;
    let old = Build::before("before again", url, schema).await?;
    orders(client, progress, "rolled back: `before` runs again, and wins").await?;
    new.end().await?;
    // `before` does not know `dispatch`: orders that completed it are stuck until `after` starts again.
    orders(client, progress, "`after` has ended").await?;
    let new = Build::after(url, schema).await?;
    orders(client, progress, "forward again: `after` wins").await?;
    new.kill().await?;
    orders(client, progress, "`after` was killed").await?;
    let new = Build::after(url, schema).await?;
    orders(client, progress, "`after` runs again").await?;
    Ok([old, new])
}

/// Waits for more orders, and prints how many were placed and are stuck.
async fn orders(client: &Scoop, progress: &mut watch::Receiver<usize>, deployment: &str) -> Result<()> {
    let enough = *progress.borrow() + ORDERS;
    let ended = || Error::msg("no orders are placed any more");
    let placed = *progress.wait_for(|placed| *placed >= enough).await.map_err(|_| ended())?;
    let stuck = client.stuck_runs().limit(1_000).await?.len();
    println!("{placed:4} orders, {stuck:3} stuck: {deployment}");
    Ok(())
}

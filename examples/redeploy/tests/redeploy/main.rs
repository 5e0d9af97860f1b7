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
#[path = "../common/shop.rs"]
mod shop;

use std::process::ExitCode;

use scoop::prelude::*;
use tokio::sync::watch;

use crate::build::Build;
use crate::shop::{Shop, more_orders, place_orders};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let shop = Shop::open().await?;
    let orders = deploy_under_load(&shop).await?;
    let books = books::check(&shop.pool, orders).await?;
    shop.close().await?;
    // It has to show that orders go on in the other build.
    Ok(if books.are_right && books.changed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Deploys while orders are placed, and waits for all of them. Returns their number.
async fn deploy_under_load(shop: &Shop) -> Result<usize> {
    let Shop { client, url, schema, .. } = shop;
    let first = Build::before("before", url, schema).await?;
    let (placed, mut progress) = watch::channel(0);
    let placing = tokio::spawn(place_orders(client.clone(), placed));
    let deployed = deploy(client, url, schema, first, &mut progress).await;
    drop(progress); // No more orders.
    let orders = placing.await.map_err(|error| Error::msg(error.to_string()))??;
    let last = deployed?;
    shop.fulfil(&orders).await?;
    assert!(client.operate().failures().stuck().await?.is_empty(), "all have ended");
    for build in last {
        build.end().await?;
    }
    Ok(orders.len())
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
    let placed = more_orders(progress).await?;
    let stuck = client.operate().failures().stuck().limit(1_000).await?.len();
    println!("{placed:4} orders, {stuck:3} stuck: {deployment}");
    Ok(())
}

//! A deployment that is a saga: it pauses what the new build changes for new runs, waits until the begun ones have ended, starts
//! the new build, and has the pauses end however that comes out. See `deployments.rs`.
//!
//! Orders are placed all the time. The first deployment succeeds while a process is killed. The second one is of a build that does not
//! start, so its rollback starts the former build again. No order goes through two builds, and every step of every order takes
//! effect once.
//!
//! ```text
//! cargo test -p redeploy --test deployment                              # on a private PostgreSQL
//! DATABASE_URL=postgres://.. cargo test -p redeploy --test deployment   # in a schema of its own, which is dropped at the end
//! ```

#[path = "../common/books.rs"]
mod books;
#[path = "../common/build.rs"]
mod build;
mod deployments;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use redeploy::{Order, connect};
use scoop::embedded::Embedded;
use scoop::prelude::*;
use scoop::{EndedPause, HierarchyId};
use sqlx::AssertSqlSafe;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::deployments::{Deployment, Deployments, Fleet, Rollouts, Version};

/// The number of orders that are placed between two deployments, at least.
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

    let fleet = Fleet::new(client.clone(), &url, &schema);
    let deployer =
        Scoop::builder().postgres(connect(&url, &schema).await?).schema(&schema).service("deployer");
    let deployer = deployer.only::<Deployments>().only::<Rollouts>();
    let deployer = deployer.provide(Deployments::of(&fleet)).provide(Rollouts::of(&fleet)).start().await?;
    let orders = deploy_under_load(&deployer, &fleet).await?;
    deployer.shutdown().await?;
    let books = books::check(&pool, orders).await?;
    println!("{} orders went through both builds", books.changed);

    sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
    pool.close().await;
    if let Some(private) = private {
        private.stop().await?;
    }
    Ok(if books.are_right && books.changed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Deploys while orders are placed, and waits for all of them. Returns their number.
async fn deploy_under_load(scoop: &Scoop, fleet: &Fleet) -> Result<usize> {
    fleet.start(Version::Before).await?;
    let (placed, mut progress) = watch::channel(0);
    let placing = tokio::spawn(place_orders(scoop.clone(), placed));
    let deployed = deploy(scoop, fleet, &mut progress).await;
    drop(progress); // No more orders.
    let orders = placing.await.map_err(|error| Error::msg(error.to_string()))??;
    deployed?;
    for order in &orders {
        let Ok(outcome) = timeout(PATIENCE, scoop.find(*order).await?.wait()).await else {
            return Err(Error::msg(format!(
                "this does not end:\n{}",
                scoop.find(*order).await?.tree().await?
            )));
        };
        assert_eq!(outcome?, Outcome::Committed);
    }
    assert!(scoop.pauses().await?.is_empty(), "all have been resumed");
    for EndedPause { pause, ended_at, ended_by, .. } in scoop.ended_pauses().await?.into_iter().rev() {
        let long = ended_at.duration_since(pause.since).unwrap_or_default();
        println!("{} was paused for {long:.1?}, until {}", pause.target, ended_by.unwrap_or_default());
    }
    fleet.end().await?;
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

/// One deployment after the other, with orders in between.
async fn deploy(scoop: &Scoop, fleet: &Fleet, progress: &mut watch::Receiver<usize>) -> Result<()> {
    more_orders(progress).await?;
    let to_after = Deployment { saga: "checkout".into(), from: Version::Before, to: Version::After };
    let deployment = scoop.launch(to_after).await?;
    // A process of the former build is killed while it is drained, and another one takes its runs over.
    fleet.crash().await?;
    println!("{:4} orders: to `after`: {}", more_orders(progress).await?, deployment.wait().await?);
    assert_eq!(deployment.wait().await?, Outcome::Committed);
    assert_eq!(fleet.version().await, Some(Version::After));
    let to_broken = Deployment { saga: "checkout".into(), from: Version::After, to: Version::Broken };
    let deployment = scoop.launch(to_broken).await?;
    println!("{:4} orders: to `broken`: {}", more_orders(progress).await?, deployment.wait().await?);
    assert!(matches!(deployment.wait().await?, Outcome::RolledBack(_)));
    assert_eq!(fleet.version().await, Some(Version::After), "the former build runs again");
    more_orders(progress).await?;
    Ok(())
}

/// Waits for more orders. Returns how many were placed.
async fn more_orders(progress: &mut watch::Receiver<usize>) -> Result<usize> {
    let enough = *progress.borrow() + ORDERS;
    let ended = || Error::msg("no orders are placed any more");
    Ok(*progress.wait_for(|placed| *placed >= enough).await.map_err(|_| ended())?)
}

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
#[path = "../common/shop.rs"]
mod shop;

use std::process::ExitCode;

use redeploy::connect;
use scoop::operate::EndedPause;
use scoop::prelude::*;
use tokio::sync::watch;

use crate::deployments::{Deployment, Deployments, Fleet, Rollouts, Version};
use crate::shop::{Shop, more_orders, place_orders};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let shop = Shop::open().await?;
    let Shop { client, url, schema, pool, .. } = &shop;
    let fleet = Fleet::new(client.clone(), url, schema);
    let deployer = Scoop::builder().postgres(connect(url, schema).await?).schema(schema).service("deployer");
    let deployer = deployer.only::<Deployments>().only::<Rollouts>();
    let deployer = deployer.provide(Deployments::of(&fleet)).provide(Rollouts::of(&fleet)).start().await?;
    let orders = deploy_under_load(&shop, &deployer, &fleet).await?;
    deployer.shutdown().await?;
    let books = books::check(pool, orders).await?;
    shop.close().await?;
    Ok(if books.are_right && books.changed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Deploys while orders are placed, and waits for all of them. Returns their number.
async fn deploy_under_load(shop: &Shop, scoop: &Scoop, fleet: &Fleet) -> Result<usize> {
    fleet.start(Version::Before).await?;
    let (placed, mut progress) = watch::channel(0);
    let placing = tokio::spawn(place_orders(scoop.clone(), placed));
    let deployed = deploy(scoop, fleet, &mut progress).await;
    drop(progress); // No more orders.
    let orders = placing.await.map_err(|error| Error::msg(error.to_string()))??;
    deployed?;
    shop.fulfil(&orders).await?;
    assert!(scoop.operate().pauses().list().await?.is_empty(), "all have been resumed");
    for EndedPause { pause, ended_at, ended_by, .. } in
        scoop.operate().pauses().ended().await?.into_iter().rev()
    {
        let long = ended_at.duration_since(pause.since).unwrap_or_default();
        println!("{} was paused for {long:.1?}, until {}", pause.target, ended_by.unwrap_or_default());
    }
    fleet.end().await?;
    Ok(orders.len())
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

//! A shop whose checkout spans four services: orders, stock, payments and a courier.
//!
//! Each service is a saga with tables of its own. They share only their messages. An order is held together by
//! one rule: a step starts only when all children of the previous step have finished. Read `orders.rs` first,
//! then the other three.
//!
//! ```text
//! cargo run -p checkout                        # a small shop on a private PostgreSQL
//! cargo run -p checkout -- --state /tmp/shop   # kept: kill it, start it again
//! cargo run -p checkout -- --serve             # with the web page, and orders until Ctrl+C
//! DATABASE_URL=postgres://.. cargo run -p checkout   # in as many terminals as you like
//! ```

// In a service, `pub` marks the items for the other services.
#![allow(unreachable_pub)]

mod books;
mod courier;
mod data;
mod orders;
mod payments;
mod progress;
mod provider;
mod report;
mod serving;
mod settings;
mod stock;
mod tables;

use std::process::ExitCode;
use std::time::Instant;

use scoop::prelude::*;

use crate::data::Shop;
use crate::orders::Ended;
use crate::payments::Payments;
use crate::provider::Provider;
use crate::serving::OpenShop;
use crate::settings::Settings;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Some(settings) = Settings::from_arguments()? else {
        print!("{}", settings::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    let shop = data::read(&settings.data)?;
    let provider = Provider::at(settings.ledger_folder())?;
    if settings.serve {
        provider.go_down();
    }

    // The sagas without dependencies are registered automatically.
    let scoop = settings
        .choose_database(Scoop::builder())
        .provide(Payments::through(provider.clone()))
        .start()
        .await?;
    tables::create(&scoop, &provider).await?;

    let mut open = if settings.serve { Some(OpenShop::open(&scoop).await?) } else { None };
    let began = Instant::now();
    let steps_before = report::count_steps(&scoop).await?;
    let ended = tokio::select! {
        ended = trade(&scoop, &settings, &shop) => ended?,
        error = progress::show(&scoop, Some(shop.orders.len()), settings.quiet) => return Err(error),
        interrupted = serving::interrupted(open.as_mut()) => {
            interrupted?;
            println!("\nthe shop closes before its first orders have ended, and goes on with them at the next start");
            scoop.shutdown().await?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let steps = report::count_steps(&scoop).await? - steps_before;

    report::print(&ended, steps, began.elapsed()).await?;
    let balanced = match open {
        None => books::check(&scoop, &provider, &shop, &ended, &[]).await?,
        Some(open) => {
            open.until_interrupted(&scoop, &settings, &shop).await?;
            serving::close(&scoop, &provider, &shop).await?
        }
    };
    scoop.shutdown().await?;
    settings.clear_up();
    Ok(if balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fills the shelves, places all orders, and waits until every one has ended. Work that an earlier or another
/// process has done is not repeated.
async fn trade(scoop: &Scoop, settings: &Settings, shop: &Shop) -> Result<Vec<Ended>> {
    stock::receive(scoop.pool(), &shop.products, settings.stock_times).await?;
    orders::place(scoop, &shop.orders).await?;
    orders::wait_for_all(scoop).await
}

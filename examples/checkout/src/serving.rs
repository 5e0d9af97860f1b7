//! The shop while its web page is served: it goes on placing orders, until Ctrl+C.

use std::env;
use std::future::pending;
use std::io;
use std::time::Duration;

use scoop::prelude::*;
use sqlx::ConnectOptions as _;
use tokio::task::JoinHandle;

use crate::books;
use crate::data::Shop;
use crate::orders;
use crate::progress;
use crate::provider::Provider;
use crate::settings::Settings;
use crate::stock;

/// How long the shop waits for orders that are under way when it closes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A shop with a web page.
pub struct OpenShop {
    url: String,
    /// Ends at Ctrl+C.
    page: JoinHandle<io::Result<()>>,
}

impl OpenShop {
    /// Serves the web page on any free port of this machine.
    pub async fn open(scoop: &Scoop) -> Result<Self> {
        let page = scoop_web::bind(([127, 0, 0, 1], 0), scoop.clone(), scoop_web::Options::new()).await?;
        let url = page.url().to_owned();
        println!("the web page: {url}");
        let page = tokio::spawn(page.until(async { tokio::signal::ctrl_c().await.unwrap_or_default() }));
        Ok(Self { url, page })
    }

    /// Says what an operator can do, and places orders until Ctrl+C.
    pub async fn until_interrupted(mut self, scoop: &Scoop, settings: &Settings, shop: &Shop) -> Result<()> {
        self.invite(scoop).await?;
        tokio::select! {
            interrupted = self.place_further(scoop, settings, shop) => interrupted,
            error = progress::show(scoop, None, settings.quiet) => Err(error),
        }
    }

    /// Places an order after each pause, with what it needs on the shelves as far as they had it at first. Ctrl+C ends a pause: an
    /// order that was cut off within its commit might be placed after the orders are counted.
    async fn place_further(&mut self, scoop: &Scoop, settings: &Settings, shop: &Shop) -> Result<()> {
        loop {
            tokio::select! {
                ended = &mut self.page => return Ok(ended??),
                () = tokio::time::sleep(settings.every) => {}
            }
            let order = orders::next(scoop.pool(), &shop.orders).await?;
            let wanted = |product: i32| order.lines.iter().any(|line| line.product == product);
            for product in shop.products.iter().filter(|product| wanted(product.id)) {
                stock::refill(scoop.pool(), product, settings.stock_times).await?;
            }
            orders::place(scoop, &[order]).await?;
        }
    }

    async fn invite(&self, scoop: &Scoop) -> Result<()> {
        println!("\nthe shop goes on until Ctrl+C; in a browser:\n    {}", self.url);
        println!("on the command line (cargo install --path scoop-cli):");
        if env::var_os("DATABASE_URL").is_none() {
            println!("    export DATABASE_URL='{}'", private_url(scoop));
        }
        println!("    scoop runs --waiting-for operator");
        let failed = scoop.operate().failures().list().await?;
        if let Some(failed) = failed.iter().find(|it| it.failed_below.is_empty()) {
            println!("    scoop explain {}", failed.id());
            println!("    scoop retry {}", failed.id());
        }
        Ok(())
    }
}

/// Waits for Ctrl+C, which ends the web page. Without a page, Ctrl+C ends the process.
pub async fn interrupted(open: Option<&mut OpenShop>) -> Result<()> {
    match open {
        Some(shop) => Ok((&mut shop.page).await??),
        None => pending().await,
    }
}

/// The URL of the private PostgreSQL, to which other programs of the same user can connect.
fn private_url(scoop: &Scoop) -> String {
    let mut url = scoop.pool().connect_options().to_url_lossy();
    url.set_query(None);
    url.to_string()
}

/// Waits for the orders that are under way, and audits the books. Returns false if they do not balance.
pub async fn close(scoop: &Scoop, provider: &Provider, shop: &Shop) -> Result<bool> {
    println!("\nthe shop closes");
    let Ok(ended) = tokio::time::timeout(PATIENCE, orders::wait_for_all(scoop)).await else {
        println!("orders are still under way, and the books are not checked");
        return Ok(true);
    };
    let is_unsettled = |order: &orders::Ended| matches!(order.outcome, Outcome::RollbackFailed(_));
    let (unsettled, ended): (Vec<_>, Vec<_>) = ended?.into_iter().partition(is_unsettled);
    if !unsettled.is_empty() {
        let numbers: Vec<_> = unsettled.iter().map(|order| order.order.to_string()).collect();
        println!("awaiting an operator: order {}", numbers.join(", "));
    }
    books::check(scoop, provider, shop, &ended, &unsettled).await
}

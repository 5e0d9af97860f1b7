//! The database of the shop, and the orders that are placed while it is deployed.

use std::env;
use std::time::Duration;

use redeploy::{Order, connect};
use scoop::HierarchyId;
use scoop::embedded::Embedded;
use scoop::prelude::*;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::books;

/// The number of orders that are placed between two deployments, at least.
const ORDERS: usize = 30;

/// The time between two orders.
const PAUSE: Duration = Duration::from_millis(8);

/// How long the last orders may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A schema of its own, which is dropped at the end.
pub(crate) struct Shop {
    /// None with `DATABASE_URL`.
    private: Option<Embedded>,
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) pool: PgPool,
    pub(crate) client: Scoop,
}

impl Shop {
    pub(crate) async fn open() -> Result<Self> {
        let private = match env::var_os("DATABASE_URL") {
            Some(_) => None,
            None => Some(Embedded::start().await?),
        };
        let url =
            private.as_ref().map_or_else(|| env::var("DATABASE_URL").unwrap_or_default(), Embedded::url);
        let schema = format!("deploys_{}", Uuid::new_v4().simple());
        let pool = connect(&url, &schema).await?;
        let client = Scoop::builder().postgres(pool.clone()).schema(&schema).migrate(true).client().await?;
        sqlx::raw_sql(books::TABLE).execute(&pool).await?;
        Ok(Self { private, url, schema, pool, client })
    }

    pub(crate) async fn close(self) -> Result<()> {
        let Self { private, schema, pool, .. } = self;
        sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&pool).await?;
        pool.close().await;
        if let Some(private) = private {
            private.stop().await?;
        }
        Ok(())
    }

    /// Waits until all orders have committed.
    pub(crate) async fn fulfil(&self, orders: &[HierarchyId]) -> Result<()> {
        for order in orders {
            let order = self.client.find(*order).await?;
            let Ok(outcome) = timeout(PATIENCE, order.wait()).await else {
                return Err(Error::msg(format!("this does not end:\n{}", order.tree().await?)));
            };
            assert_eq!(outcome?, Outcome::Committed);
        }
        Ok(())
    }
}

/// Places orders until the receiver of their count is dropped.
pub(crate) async fn place_orders(client: Scoop, placed: watch::Sender<usize>) -> Result<Vec<HierarchyId>> {
    let mut orders = vec![];
    while placed.send(orders.len()).is_ok() {
        let number = i64::try_from(orders.len())?;
        orders.push(client.launch(Order { number }).await?.id());
        sleep(PAUSE).await;
    }
    Ok(orders)
}

/// Waits for more orders. Returns how many were placed.
pub(crate) async fn more_orders(progress: &mut watch::Receiver<usize>) -> Result<usize> {
    let enough = *progress.borrow() + ORDERS;
    let ended = || Error::msg("no orders are placed any more");
    Ok(*progress.wait_for(|placed| *placed >= enough).await.map_err(|_| ended())?)
}

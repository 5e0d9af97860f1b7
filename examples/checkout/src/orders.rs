//! The orders service: takes an order through reservation, payment and shipping, or rolls it back.

use scoop::Handle;
use scoop::prelude::*;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::courier::{self, ShipOrder};
use crate::payments::ChargePayment;
use crate::stock::ReserveStock;

pub const TABLES: &str = "
    CREATE SCHEMA orders;
    CREATE TABLE orders.orders (
        id             int PRIMARY KEY,
        cents          bigint NOT NULL,
        status         text NOT NULL DEFAULT 'open',  -- then 'confirmed' or 'rejected'
        reason         text,
        second_shipper int,
        hierarchy      uuid  -- under which scoop knows it
    );
    CREATE TABLE orders.lines (
        order_id   int REFERENCES orders.orders,
        product_id int,
        units      int NOT NULL,
        PRIMARY KEY (order_id, product_id)
    );";

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
pub struct OrderPlaced {
    pub order: i32,
    pub country: String,
    pub shipper: i32,
    pub lines: Vec<Line>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Line {
    pub product: i32,
    pub units: i32,
    pub cents: i64,
}

impl OrderPlaced {
    pub fn cents(&self) -> i64 {
        self.lines.iter().map(|line| line.cents).sum()
    }

    /// Whether the customer withdraws the order: by rule, one in a hundred does.
    fn is_withdrawn(&self) -> bool {
        self.order % 100 == 77
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the customer withdrew order {0}")]
struct Withdrawn(i32);

/// One order, from the shelf to the courier.
#[derive(Default)]
pub struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    /// Requests all lines at once. `charge` starts when every one of them is reserved. If one cannot be, the
    /// others are put back and the order ends here.
    #[step(rollback = reject)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        for line in &order.lines {
            let (product, units) = (line.product, line.units);
            scope.launch(ReserveStock { product, units }).await?;
        }
        Ok(())
    }

    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        let (order, cents) = (order.order, order.cents());
        scope.launch(ChargePayment { order, cents }).await?;
        Ok(())
    }

    #[step(on_child_failure = ask_another_shipper)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        scope.launch(shipment(order, order.shipper)).await?;
        Ok(())
    }

    /// The last step: an error here still rolls back all steps above, the shipment first.
    #[step]
    async fn confirm(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        if order.is_withdrawn() {
            return Err(Withdrawn(order.order).into());
        }
        sqlx::query("UPDATE orders.orders SET status = 'confirmed' WHERE id = $1")
            .bind(order.order)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }

    /// Called when the child of `ship` has failed and is rolled back. A new launch is another attempt: if it
    /// succeeds, the saga goes on, and if not, this is called again.
    async fn ask_another_shipper(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        why: &Failure,
    ) -> Result<()> {
        let another = courier::after(order.shipper);
        let noted = sqlx::query(
            "UPDATE orders.orders SET second_shipper = $2 WHERE id = $1 AND second_shipper IS NULL",
        )
        .bind(order.order)
        .bind(another)
        .execute(scope.tx().await?)
        .await?;
        if noted.rows_affected() == 0 {
            // Two shippers have refused. Failing with the failure of the child keeps the cause in sight.
            return Err(Error::failure(why.clone()));
        }
        scope.launch(shipment(order, another)).await?;
        Ok(())
    }

    /// Runs last in a rollback, when the other services have compensated their part.
    async fn reject(&self, scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) -> Result<()> {
        sqlx::query("UPDATE orders.orders SET status = 'rejected', reason = $2 WHERE id = $1")
            .bind(order.order)
            .bind(&why.root_causes()[0].message)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }
}

fn shipment(order: &OrderPlaced, shipper: i32) -> ShipOrder {
    ShipOrder { order: order.order, country: order.country.clone(), shipper }
}

/// How many orders are placed in one transaction.
const BATCH: usize = 50;

/// Places each order exactly once, over restarts and among processes.
pub async fn place(scoop: &Scoop, orders: &[OrderPlaced]) -> Result<()> {
    for batch in orders.chunks(BATCH) {
        let mut transaction = scoop.pool().begin().await?;
        for order in batch {
            place_one(scoop, &mut transaction, order).await?;
        }
        transaction.commit().await?;
    }
    Ok(())
}

/// A further order: the given ones in turns, under the next free number.
pub async fn next(pool: &PgPool, given: &[OrderPlaced]) -> Result<OrderPlaced> {
    let last: i32 =
        sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM orders.orders").fetch_one(pool).await?;
    let order = last + 1;
    let turn = usize::try_from(order)? % given.len().max(1);
    let again = given.get(turn).ok_or_else(|| Error::msg("there is no order to place again"))?;
    Ok(OrderPlaced { order, ..again.clone() })
}

/// The row and the message are committed together, so an existing row implies the launch.
async fn place_one(scoop: &Scoop, tx: &mut PgConnection, order: &OrderPlaced) -> Result<()> {
    let inserted =
        sqlx::query("INSERT INTO orders.orders (id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(order.order)
            .bind(order.cents())
            .execute(&mut *tx)
            .await?;
    if inserted.rows_affected() == 0 {
        return Ok(());
    }
    let products: Vec<_> = order.lines.iter().map(|line| line.product).collect();
    let units: Vec<_> = order.lines.iter().map(|line| line.units).collect();
    sqlx::query("INSERT INTO orders.lines SELECT $1, * FROM unnest($2::int[], $3::int[])")
        .bind(order.order)
        .bind(products)
        .bind(units)
        .execute(&mut *tx)
        .await?;
    let handle = scoop.launch(order.clone()).in_transaction(tx).await?;
    sqlx::query("UPDATE orders.orders SET hierarchy = $2 WHERE id = $1")
        .bind(order.order)
        .bind(handle.id())
        .execute(tx)
        .await?;
    Ok(())
}

/// An order that has ended, with its outcome.
pub struct Ended {
    pub order: i32,
    pub cents: i64,
    pub handle: Handle,
    pub outcome: Outcome,
}

/// Waits for every order, including those that other processes placed or handle.
pub async fn wait_for_all(scoop: &Scoop) -> Result<Vec<Ended>> {
    let orders: Vec<(i32, i64, Uuid)> =
        sqlx::query_as("SELECT id, cents, hierarchy FROM orders.orders ORDER BY id")
            .fetch_all(scoop.pool())
            .await?;
    let mut ended = vec![];
    for (order, cents, hierarchy) in orders {
        let handle = scoop.find(hierarchy).await?;
        let outcome = handle.wait().await?;
        ended.push(Ended { order, cents, handle, outcome });
    }
    Ok(ended)
}

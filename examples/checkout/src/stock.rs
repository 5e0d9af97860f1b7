//! The stock service: takes units from the shelf, and puts them back.

use scoop::prelude::*;
use sqlx::PgPool;

use crate::data::Product;

pub const TABLES: &str = "
    CREATE SCHEMA stock;
    CREATE TABLE stock.products (
        id           int PRIMARY KEY,
        name         text NOT NULL,
        received     int NOT NULL,  -- what was there at first, and what was refilled
        units        int NOT NULL CHECK (units >= 0),
        discontinued boolean NOT NULL
    );";

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stock.reserve")]
pub struct ReserveStock {
    pub product: i32,
    pub units: i32,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} is not sold any more")]
struct Discontinued(String);

#[derive(Debug, thiserror::Error)]
#[error("{wanted} of {product} were wanted, {left} are left")]
struct OutOfStock {
    product: String,
    wanted: i32,
    left: i32,
}

/// One line of one order.
#[derive(Default)]
pub struct Stock;

#[saga]
#[subscribes(ReserveStock)]
impl Stock {
    /// The transaction is the step's own: its writes and the completion of the step are committed together. So
    /// the units leave the shelf exactly once.
    #[step(rollback = put_back)]
    async fn take(&self, scope: &mut Scope<'_>, line: &ReserveStock) -> Result<()> {
        let tx = scope.tx().await?;
        let (name, left, discontinued): (String, i32, bool) =
            sqlx::query_as("SELECT name, units, discontinued FROM stock.products WHERE id = $1 FOR UPDATE")
                .bind(line.product)
                .fetch_one(&mut *tx)
                .await?;
        if discontinued {
            return Err(Discontinued(name).into());
        }
        if left < line.units {
            return Err(OutOfStock { product: name, wanted: line.units, left }.into());
        }
        sqlx::query("UPDATE stock.products SET units = units - $2 WHERE id = $1")
            .bind(line.product)
            .bind(line.units)
            .execute(tx)
            .await?;
        Ok(())
    }

    /// Called only if `take` was completed, and then exactly once: no check is needed whether there is anything
    /// to put back.
    async fn put_back(&self, scope: &mut Scope<'_>, line: &ReserveStock, _why: &Failure) -> Result<()> {
        sqlx::query("UPDATE stock.products SET units = units + $2 WHERE id = $1")
            .bind(line.product)
            .bind(line.units)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }
}

/// Fills the shelf of a product up to what was there at first.
pub async fn refill(pool: &PgPool, product: &Product, times: i32) -> Result<()> {
    let refill = "UPDATE stock.products SET received = received + $2 - units, units = $2
                  WHERE id = $1 AND units < $2";
    sqlx::query(refill).bind(product.id).bind(product.units * times).execute(pool).await?;
    Ok(())
}

/// Fills the shelves, unless that was done before.
pub async fn receive(pool: &PgPool, products: &[Product], times: i32) -> Result<()> {
    for product in products {
        sqlx::query("INSERT INTO stock.products VALUES ($1, $2, $3, $3, $4) ON CONFLICT DO NOTHING")
            .bind(product.id)
            .bind(&product.name)
            .bind(product.units * times)
            .bind(product.discontinued)
            .execute(pool)
            .await?;
    }
    Ok(())
}

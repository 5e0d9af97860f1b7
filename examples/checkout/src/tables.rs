//! Creates the tables of all four services once, for any number of processes that start at the same time.

use scoop::prelude::*;

use crate::provider::Provider;
use crate::{courier, orders, payments, stock};

pub async fn create(scoop: &Scoop, provider: &Provider) -> Result<()> {
    let mut transaction = scoop.pool().begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('checkout'))").execute(&mut *transaction).await?;
    let new: bool = sqlx::query_scalar("SELECT to_regclass('orders.orders') IS NULL")
        .fetch_one(&mut *transaction)
        .await?;
    if new {
        provider.open_account()?;
        for tables in [orders::TABLES, stock::TABLES, payments::TABLES, courier::TABLES] {
            sqlx::raw_sql(tables).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

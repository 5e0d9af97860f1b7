use std::env;

use dbos::{Config, DBOS, StartOptions, StepOptions, step, step_with};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize)]
struct OrderPlaced { order: i64, sku: String }

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum ShopError {
    #[error("no courier for order {0}")]
    Refused(i64),
    #[error("database: {0}")]
    Database(String),
}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

type Result<T> = dbos::Result<T, ShopError>;

fn patient() -> StepOptions<ShopError> {
    StepOptions { max_attempts: 5, ..StepOptions::default() }
}

async fn checkout(pool: PgPool, order: OrderPlaced) -> Result<()> {
    let forward = async {
        step_with("reserve", patient(), || reserve(&pool, &order)).await?;
        step_with("charge", patient(), || charge_card(order.order)).await?;
        step("book", || book_courier(order.order)).await
    };
    let ended = forward.await;
    // Other errors are the engine's, such as a shutdown: the workflow is recovered later.
    if let Err(dbos::Error::Application(_) | dbos::Error::MaxStepRetriesExceeded { .. }) = &ended {
        step_with("refund", patient(), || refund_card(order.order)).await?;
        step_with("release", patient(), || release(&pool, &order)).await?;
    }
    ended
}

// A step may run twice, and its transaction is not that of the checkpoint: so it looks for its own row.
async fn reserve(pool: &PgPool, order: &OrderPlaced) -> Result<()> {
    let update = "WITH new AS (INSERT INTO reservation VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1)
        UPDATE stock SET units = units - 1 WHERE sku = $2 AND EXISTS (SELECT FROM new)";
    sqlx::query(update).bind(order.order).bind(&order.sku).execute(pool).await.map_err(ShopError::from)?;
    Ok(())
}

async fn release(pool: &PgPool, order: &OrderPlaced) -> Result<()> {
    let update = "WITH old AS (DELETE FROM reservation WHERE id = $1 RETURNING 1)
        UPDATE stock SET units = units + 1 WHERE sku = $2 AND EXISTS (SELECT FROM old)";
    sqlx::query(update).bind(order.order).bind(&order.sku).execute(pool).await.map_err(ShopError::from)?;
    Ok(())
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let url = env::var("DATABASE_URL")?;
    let pool = PgPool::connect(&url).await?;
    let tables = "DROP TABLE IF EXISTS stock, reservation; CREATE TABLE reservation (id bigint PRIMARY KEY);
        CREATE TABLE stock (sku text, units int); INSERT INTO stock VALUES ('chair', 9)";
    sqlx::raw_sql(tables).execute(&pool).await?;

    let dbos = DBOS::new(Config { app_version: Some("1".into()), ..Config::new("shop", url) });
    let shared = pool.clone();
    let checkout = dbos.register_workflow("checkout", move |order| checkout(shared.clone(), order))?;
    dbos.launch().await?;
    let order = OrderPlaced { order: 7, sku: "chair".into() };
    let options = StartOptions { workflow_id: Some("order 7"), ..StartOptions::default() };
    let handle = checkout.start_with(order, options).await?;
    println!("{:?}", handle.result().await);
    let left: i32 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(&pool).await?;
    assert_eq!(left, 9);
    dbos.shutdown().await;
    Ok(())
}

// The providers: each knows the order, and does nothing twice for it.
async fn charge_card(order: i64) -> Result<()> {
    println!("charged order {order}");
    Ok(())
}

async fn refund_card(order: i64) -> Result<()> {
    println!("refunded order {order}");
    Ok(())
}

async fn book_courier(order: i64) -> Result<()> {
    Err(ShopError::Refused(order))?
}

use std::env;

use riverqueue::database::begin_postgres;
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, EventKind, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Clone, Serialize, Deserialize, JobArgs)]
#[river(kind = "checkout", unique(by_args))]
struct Checkout { order: i64, sku: String }

#[derive(Clone, Serialize, Deserialize, JobArgs)]
#[river(kind = "undo_checkout", unique(by_args))]
struct UndoCheckout { order: i64, sku: String }

async fn checkout(pool: PgPool, context: WorkContext, job: Job<Checkout>) -> Result<WorkOutcome, BoxError> {
    let Checkout { order, sku } = job.args;
    let (steps, stock) = (&context, (&pool, &sku));
    steps
        .resumable_step("reserve", || async move {
            let mut tx = begin_postgres(stock.0).await?;
            let update = sqlx::query("UPDATE stock SET units = units - 1 WHERE sku = $1").bind(stock.1);
            update.execute(&mut *tx).await?;
            steps.resumable_set_step_tx(&mut tx).await?;
            tx.commit().await?;
            Ok::<_, BoxError>(())
        })
        .await?;
    steps.resumable_step("charge", || charge_card(order)).await?;

    // Not a resumable step: a job of which one has failed is tried again, whatever it returns.
    if let Err(refused) = book_courier(order).await {
        println!("{refused}");
        let mut tx = begin_postgres(&pool).await?;
        context.client().ok_or("no client")?.insert(UndoCheckout { order, sku }).tx(&mut tx).await?;
        context.job_complete_tx(&mut tx).await?;
        tx.commit().await?;
    }
    Ok(WorkOutcome::Complete)
}

async fn undo(pool: PgPool, context: WorkContext, job: Job<UndoCheckout>) -> Result<WorkOutcome, BoxError> {
    refund_card(job.args.order).await?;
    let mut tx = begin_postgres(&pool).await?;
    let update = sqlx::query("UPDATE stock SET units = units + 1 WHERE sku = $1").bind(&job.args.sku);
    update.execute(&mut *tx).await?;
    context.job_complete_tx(&mut tx).await?;
    tx.commit().await?;
    Ok(WorkOutcome::Complete)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let pool = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    let tables = "DROP TABLE IF EXISTS stock; CREATE TABLE stock (sku text, units int); INSERT INTO stock VALUES ('chair', 9)";
    sqlx::raw_sql(tables).execute(&pool).await?;
    PostgresMigrator::new(pool.clone()).migrate_up().await?;

    let (forward, back) = (pool.clone(), pool.clone());
    let mut workers = Workers::new();
    workers.add_fn(move |context, job| checkout(forward.clone(), context, job))?;
    workers.add_fn(move |context, job| undo(back.clone(), context, job))?;
    let queue = QueueConfig::new(10);
    let client = Client::builder(pool.clone()).workers(workers).queue("default", queue).build()?;
    let mut completed = client.subscribe(&[EventKind::JobCompleted])?;
    let mut run = client.start()?;
    client.insert(Checkout { order: 7, sku: "chair".into() }).await?;
    // Nothing waits for both: here for the end of the second job.
    while completed.recv().await?.as_job().is_none_or(|event| event.job.kind != "undo_checkout") {}
    let left: i32 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(&pool).await?;
    assert_eq!(left, 9);
    run.stop().await?;
    Ok(())
}

// The providers: each knows the order, and does nothing twice for it.
async fn charge_card(order: i64) -> Result<(), BoxError> {
    println!("charged order {order}");
    Ok(())
}

async fn refund_card(order: i64) -> Result<(), BoxError> {
    println!("refunded order {order}");
    Ok(())
}

async fn book_courier(order: i64) -> Result<(), BoxError> {
    Err(format!("no courier for order {order}").into())
}

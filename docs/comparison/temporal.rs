use std::env;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use temporalio_client::envconfig::LoadClientConfigProfileOptions;
use temporalio_client::{Client, ClientOptions, Connection, WorkflowGetResultOptions, WorkflowStartOptions};
use temporalio_common::RetryPolicy;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{
    ActivityExecutionError, ActivityOptions, ApplicationFailure, Runtime, Worker, WorkerOptions,
    WorkflowCancellationToken, WorkflowContext, WorkflowResult,
};

#[derive(Clone, Serialize, Deserialize)]
struct OrderPlaced { order: i64, sku: String }

#[workflow]
#[derive(Default)]
struct Checkout;

#[workflow_methods]
impl Checkout {
    #[run]
    async fn run(ctx: &mut WorkflowContext<Self>, order: OrderPlaced) -> WorkflowResult<()> {
        if let Err(error) = Self::forward(ctx, &order).await {
            // A token of its own: a cancellation of the workflow must not stop these.
            let options = options(0, Some(WorkflowCancellationToken::new()));
            ctx.execute_activity(Shop::refund, order.order, options.clone()).await?;
            ctx.execute_activity(Shop::release, order, options).await?;
            return Err(error.into());
        }
        Ok(())
    }

    async fn forward(ctx: &WorkflowContext<Self>, order: &OrderPlaced) -> Result<(), ActivityExecutionError> {
        ctx.execute_activity(Shop::reserve, order.clone(), options(5, None)).await?;
        ctx.execute_activity(Shop::charge, order.order, options(5, None)).await?;
        ctx.execute_activity(Shop::book, order.order, options(1, None)).await
    }
}

/// `attempts` of 0 are any number.
fn options(attempts: u32, token: Option<WorkflowCancellationToken>) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(Duration::from_secs(10))
        .retry_policy(RetryPolicy::builder().maximum_attempts(attempts).build())
        .maybe_cancellation_token(token)
        .build()
}

struct Shop { pool: PgPool }

#[activities]
impl Shop {
    // An activity may run twice, and the server knows nothing of its transaction: so it looks for its own row.
    #[activity]
    async fn reserve(self: Arc<Self>, _: ActivityContext, order: OrderPlaced) -> Result<(), ActivityError> {
        let update = "WITH new AS (INSERT INTO reservation VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1)
            UPDATE stock SET units = units - 1 WHERE sku = $2 AND EXISTS (SELECT FROM new)";
        sqlx::query(update).bind(order.order).bind(&order.sku).execute(&self.pool).await?;
        Ok(())
    }

    #[activity]
    async fn release(self: Arc<Self>, _: ActivityContext, order: OrderPlaced) -> Result<(), ActivityError> {
        let update = "WITH old AS (DELETE FROM reservation WHERE id = $1 RETURNING 1)
            UPDATE stock SET units = units + 1 WHERE sku = $2 AND EXISTS (SELECT FROM old)";
        sqlx::query(update).bind(order.order).bind(&order.sku).execute(&self.pool).await?;
        Ok(())
    }

    #[activity]
    async fn charge(_: ActivityContext, order: i64) -> Result<(), ActivityError> {
        println!("charged order {order}");
        Ok(())
    }

    #[activity]
    async fn refund(_: ActivityContext, order: i64) -> Result<(), ActivityError> {
        println!("refunded order {order}");
        Ok(())
    }

    #[activity]
    async fn book(_: ActivityContext, order: i64) -> Result<(), ActivityError> {
        let refused = format!("no courier for order {order}");
        Err(ActivityError::application(ApplicationFailure::non_retryable(refused)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    let tables = "DROP TABLE IF EXISTS stock, reservation; CREATE TABLE reservation (id bigint PRIMARY KEY);
        CREATE TABLE stock (sku text, units int); INSERT INTO stock VALUES ('chair', 9)";
    sqlx::raw_sql(tables).execute(&pool).await?;

    let runtime = Runtime::from_current_tokio(Default::default())?;
    let (connection, options) = ClientOptions::load_from_config(LoadClientConfigProfileOptions::default())?;
    let client = Client::new(Connection::connect(connection).await?, options)?;
    let settings = WorkerOptions::new("shop")
        .register_workflow::<Checkout>()?
        .register_activities(Shop { pool: pool.clone() })
        .build();
    let mut worker = Worker::new(&runtime, client.clone(), settings)?;
    let stop = worker.shutdown_handle();
    let starter = async {
        let order = OrderPlaced { order: 7, sku: "chair".into() };
        let started = client.start_workflow(Checkout::run, order, WorkflowStartOptions::new("shop", "order-7").build());
        println!("{:?}", started.await?.get_result(WorkflowGetResultOptions::default()).await);
        stop();
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let (started, ran) = tokio::join!(starter, worker.run());
    started?;
    ran?;
    let left: i32 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(&pool).await?;
    assert_eq!(left, 9);
    Ok(())
}

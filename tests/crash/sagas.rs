//! The sagas that suffer: an order with two parcels, every effect entered in one table.

use scoop::prelude::*;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

/// The application name of workers, by which their sessions are found.
pub(crate) const WORKER: &str = "crash-worker";

/// How long a worker does nothing between two launches.
const PACE: std::time::Duration = std::time::Duration::from_millis(40);

/// The table of effects. Deliberately without any constraint that would hide a second one.
const TABLES: &str = "CREATE TABLE IF NOT EXISTS effect (number int NOT NULL, what text NOT NULL)";

#[derive(Message, Serialize, Deserialize)]
struct Ordered {
    number: i32,
}

#[derive(Message, Serialize, Deserialize)]
struct Packed {
    number: i32,
    parcel: i32,
}

/// Every seventh order fails in its last step, every fifth in a parcel's last step.
fn order_fails(number: i32) -> bool {
    number % 7 == 0
}

fn parcel_fails(number: i32, parcel: i32) -> bool {
    number % 5 == 0 && parcel == 1
}

/// Whether the whole hierarchy has to be rolled back in the end.
pub(crate) fn fails(number: i32) -> bool {
    order_fails(number) || parcel_fails(number, 1)
}

/// Whether somebody cancels it at some time, perhaps too late.
pub(crate) fn is_cancelled(number: i32) -> bool {
    number % 11 == 3
}

/// Whether the workers launch it, all of them, since each may be killed before it has.
fn is_launched_by_workers(number: i32) -> bool {
    number % 2 == 1 && !is_cancelled(number)
}

/// Enters an effect in the step's own transaction.
async fn enter(scope: &mut Scope<'_>, number: i32, what: String) -> Result<()> {
    sqlx::query("INSERT INTO effect VALUES ($1, $2)")
        .bind(number)
        .bind(what)
        .execute(scope.tx().await?)
        .await?;
    Ok(())
}

#[derive(Default)]
struct Order;

#[saga]
#[subscribes(Ordered)]
impl Order {
    #[step(rollback = unregister, finally = tidy_up)]
    async fn register(&self, scope: &mut Scope<'_>, order: &Ordered) -> Result<()> {
        enter(scope, order.number, "register".into()).await?;
        for parcel in 0..2 {
            scope.launch(Packed { number: order.number, parcel }).await?;
        }
        Ok(())
    }

    async fn unregister(&self, scope: &mut Scope<'_>, order: &Ordered, _: &Failure) -> Result<()> {
        enter(scope, order.number, "undo register".into()).await
    }

    async fn tidy_up(&self, scope: &mut Scope<'_>, order: &Ordered) -> Result<()> {
        enter(scope, order.number, "tidy up".into()).await
    }

    /// Does not touch the database: recorded together with others. Needs another attempt, and then
    /// some sleep.
    #[step(retry(max = 3, backoff = "5ms"), sleep = "20ms")]
    async fn consider(&self, scope: &mut Scope<'_>, _: &Ordered) -> Result<()> {
        if scope.attempt() == 0 { Err(Error::msg("it has to be slept over")) } else { Ok(()) }
    }

    #[step]
    async fn close(&self, scope: &mut Scope<'_>, order: &Ordered) -> Result<()> {
        enter(scope, order.number, "close".into()).await?;
        if order_fails(order.number) { Err(Error::msg("nobody is at home")) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Parcel;

#[saga]
#[subscribes(Packed)]
impl Parcel {
    #[step(rollback = unpack)]
    async fn pack(&self, scope: &mut Scope<'_>, parcel: &Packed) -> Result<()> {
        enter(scope, parcel.number, format!("pack {}", parcel.parcel)).await
    }

    async fn unpack(&self, scope: &mut Scope<'_>, parcel: &Packed, _: &Failure) -> Result<()> {
        enter(scope, parcel.number, format!("undo pack {}", parcel.parcel)).await
    }

    #[step(rollback = take_back)]
    async fn hand_over(&self, scope: &mut Scope<'_>, parcel: &Packed) -> Result<()> {
        enter(scope, parcel.number, format!("hand over {}", parcel.parcel)).await?;
        if parcel_fails(parcel.number, parcel.parcel) {
            Err(Error::msg("the parcel is torn"))
        } else {
            Ok(())
        }
    }

    async fn take_back(&self, scope: &mut Scope<'_>, parcel: &Packed, _: &Failure) -> Result<()> {
        enter(scope, parcel.number, format!("undo hand over {}", parcel.parcel)).await
    }
}

/// A worker: launches its share of the orders, and runs until it is killed.
pub(crate) async fn work(url: &str, orders: i32) -> Result<()> {
    let options = url.parse::<sqlx::postgres::PgConnectOptions>()?.application_name(WORKER);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    let scoop = Scoop::builder().postgres(pool).concurrency(16).start().await?;
    let mut numbers: Vec<_> = (0..orders).filter(|number| is_launched_by_workers(*number)).collect();
    let first = usize::try_from(std::process::id())? % numbers.len();
    numbers.rotate_left(first);
    for number in numbers {
        let launch = || scoop.launch(Ordered { number }).unique(number.to_string());
        while launch().await.is_err() {
            tokio::time::sleep(PACE).await;
        }
        // In between, so that there are free slots for some.
        tokio::time::sleep(PACE).await;
    }
    std::future::pending::<()>().await;
    scoop.shutdown().await;
    Ok(())
}

/// Makes the tables, and launches the orders that the workers do not. A process of its own kind starts and stops for it,
/// so that the handlers are listed before the first message. Returns the hierarchies that somebody
/// will cancel.
pub(crate) async fn launch(pool: &PgPool, orders: i32) -> Result<Vec<Uuid>> {
    sqlx::raw_sql(TABLES).execute(pool).await?;
    let scoop = Scoop::builder().postgres(pool.clone()).concurrency(1).start().await?;
    let numbers: Vec<_> = (0..orders).filter(|number| !is_launched_by_workers(*number)).collect();
    let launched = scoop.launch_all(numbers.iter().map(|number| Ordered { number: *number })).await?;
    scoop.shutdown().await;
    let numbered = numbers.into_iter().zip(&launched);
    Ok(numbered.filter(|(number, _)| is_cancelled(*number)).map(|(_, order)| order.id()).collect())
}

/// Cancels a hierarchy, however often it takes.
pub(crate) async fn cancel(pool: &PgPool, order: Uuid) -> Result<()> {
    let scoop = Scoop::client(pool.clone());
    loop {
        match scoop.cancel(order, "the customer left").await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

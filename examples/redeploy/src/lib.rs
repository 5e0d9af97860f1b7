//! The code that both builds share: the messages, two sagas that stay as they are, and the record of effects.

#![allow(missing_docs)]

use std::env;
use std::str::FromStr;

use scoop::prelude::*;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The tables of the example and of Scoop are in this schema of the database of `DATABASE_URL`.
pub const SCHEMA: &str = "REDEPLOY_SCHEMA";

/// The name under which a start of a build records its effects.
pub const BUILD: &str = "REDEPLOY_BUILD";

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders")]
pub struct Order {
    pub number: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "picks")]
pub struct Pick {
    pub number: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "deliveries")]
pub struct Delivery {
    pub number: i64,
}

#[derive(Default)]
pub struct Picking;

#[saga(name = "picking")]
#[subscribes(Pick)]
impl Picking {
    #[step(sleep = "50ms")]
    async fn pick(&self, scope: &mut Scope<'_>, pick: &Pick) -> Result<()> {
        takes_effect(scope, pick.number, "pick").await
    }
}

#[derive(Default)]
pub struct Courier;

#[saga(name = "courier")]
#[subscribes(Delivery)]
impl Courier {
    #[step(sleep = "800ms")]
    async fn deliver(&self, scope: &mut Scope<'_>, delivery: &Delivery) -> Result<()> {
        takes_effect(scope, delivery.number, "deliver").await
    }
}

/// Records the effect of a step, with its build, in the transaction of the step.
pub async fn takes_effect(scope: &mut Scope<'_>, order: i64, step: &str) -> Result<()> {
    let (key, build) = (scope.idempotency_key(), variable(BUILD)?);
    sqlx::query("INSERT INTO effect (number, step, build, key) VALUES ($1, $2, $3, $4)")
        .bind(order)
        .bind(step)
        .bind(build)
        .bind(key)
        .execute(scope.tx().await?)
        .await?;
    Ok(())
}

/// Connections whose unqualified names are those of the schema.
pub async fn connect(url: &str, schema: &str) -> Result<PgPool> {
    let options = PgConnectOptions::from_str(url)?.options([("search_path", schema)]);
    Ok(PgPoolOptions::new().max_connections(12).connect_with(options).await?)
}

/// Runs the sagas of the build until its standard input ends.
pub async fn serve() -> Result<()> {
    let (url, schema) = (variable("DATABASE_URL")?, variable(SCHEMA)?);
    let scoop = Scoop::builder().postgres(connect(&url, &schema).await?).schema(schema).service("shop");
    let scoop = scoop.start().await?;
    let mut stdout = tokio::io::stdout();
    stdout.write_all(b"ready\n").await?;
    stdout.flush().await?;
    tokio::io::stdin().read_to_end(&mut vec![]).await?;
    scoop.shutdown().await?;
    Ok(())
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|_| Error::msg(format!("the variable {name} is not set")))
}

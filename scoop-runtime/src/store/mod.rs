//! Where runs and their history are kept: PostgreSQL. The only place that speaks SQL.

mod client;
mod engine;
mod migrate;
mod rows;
mod sql;

pub(crate) use client::{HandlerOutcome, Launched, Standing};
pub(crate) use engine::{Parent, Release};
pub(crate) use migrate::migrate;
pub(crate) use rows::{Claimed, Key, Settled, Settlement, Unreadable};
pub(crate) use sql::{Schema, Statements};

use sqlx::PgPool;

/// The tables of one schema, reached through the user's pool.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: PgPool,
    sql: Statements,
}

impl Store {
    pub(crate) fn new(pool: PgPool, schema: &Schema) -> Self {
        Self { pool, sql: Statements::of(schema) }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

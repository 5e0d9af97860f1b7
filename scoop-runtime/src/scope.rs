//! What a step's code holds.

use std::marker::PhantomData;

use scoop_core::{Message, Result};
use serde::de::DeserializeOwned;
use sqlx::PgConnection;

/// What a step may do.
pub struct Scope<'a> {
    life: PhantomData<&'a mut ()>,
}

impl Scope<'_> {
    /// The step's own transaction.
    ///
    /// # Errors
    ///
    /// When no connection is to be had.
    pub async fn tx(&mut self) -> Result<&mut PgConnection> {
        Err(scoop_core::Error::msg("skeleton"))
    }

    /// Launches a child message.
    ///
    /// # Errors
    ///
    /// When the message cannot be serialised.
    pub async fn launch<M: Message>(&mut self, message: M) -> Result<()> {
        drop(message);
        Ok(())
    }

    /// The loop iteration of the step.
    pub fn iteration(&self) -> u32 {
        0
    }

    /// A key for outside effects.
    pub fn idempotency_key(&self) -> String {
        String::new()
    }

    pub(crate) fn output<T: DeserializeOwned>(&self, step: &str) -> Result<T> {
        Err(scoop_core::Error::msg(step))
    }
}
